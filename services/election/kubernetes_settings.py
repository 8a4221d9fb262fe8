"""The settings of a cluster's election by a Lease of Kubernetes."""

from __future__ import annotations

import math

import msgspec

from ...infra.config.option_types import SECOND
from ..configuration import Configuration
from ..configuration.options.high_availability import HIGH_AVAILABILITY
from ..configuration.options.kubernetes_election import KUBERNETES_BASE_EPOCH, LEASE_DURATION, RETRY_PERIOD
from ..kubernetes.api_client import Place, TimeLimits, require_client

_BEATS = 6
"""Renewals within a lease duration, at least."""


class KubernetesElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `cluster_id` is the cluster's name in the Lease."""

    place: Place
    cluster_id: str
    duration_s: int = 15
    retry_s: float = 2.0
    base_epoch: int = 0

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> KubernetesElectionSettings:
        """Reads the settings. Raises ConfigurationError if the official client is not installed."""
        require_client(HIGH_AVAILABILITY.key)
        get = configuration.get
        duration_s = math.ceil(get(LEASE_DURATION) / SECOND)
        return cls(
            place=Place.from_configuration(configuration),
            cluster_id=configuration.ha_cluster_id,
            duration_s=duration_s,
            retry_s=get(RETRY_PERIOD) / SECOND,
            base_epoch=get(KUBERNETES_BASE_EPOCH),
        )

    @property
    def period_s(self) -> float:
        """The time between two renewals."""
        return min(self.retry_s, self.duration_s / _BEATS)

    @property
    def limits(self) -> TimeLimits:
        """A request must not take so long that no other one can follow while the Lease is held."""
        return TimeLimits(self.duration_s / _BEATS, self.duration_s / _BEATS)
