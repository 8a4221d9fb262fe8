"""The candidates of a cluster in Kubernetes: each has a Lease of its own and renews it, as API servers do.

Whether a candidate lives is judged by the time of its last renewal. That compares clocks; only lists for people, and
the check before a feature level is raised, go by it.
"""

from __future__ import annotations

import time
from typing import Final

from ...schemas.feature_level import FIRST_LEVEL
from ..kubernetes.api_client import ApiFailure, Resource
from ..kubernetes.names import selector_of
from .candidates import Candidate, CandidatesReader, ElectionUnreachable
from .kubernetes_settings import KubernetesElectionSettings
from .lease_api import LeaseApi
from .lease_record import (
    LEVEL_ANNOTATION,
    candidate_lease_name,
    duration_of,
    held_spec,
    holder_of,
    leader_lease_name,
    lease_labels,
    new_lease,
    renewal_time,
    renewed,
)

_LIVE_DURATIONS: Final = 2
_EXPIRED_DURATIONS: Final = 20


class CandidateLease:
    """The Lease that lists one candidate, used on one thread. Methods raise ApiFailure."""

    def __init__(self, api: LeaseApi, settings: KubernetesElectionSettings, me: Candidate) -> None:
        self._api = api
        self._settings = settings
        self._me = me
        self._name = candidate_lease_name(settings.cluster_id, me.address)
        self._written: Resource | None = None
        self._may_exist = False

    def show(self) -> None:
        """Creates or renews the Lease."""
        self._may_exist = True
        settings, me = self._settings, self._me
        annotations = {LEVEL_ANNOTATION: str(me.feature_level)}
        if self._written is None:
            spec = held_spec(me.address, settings.duration_s, 0, time.time())
            self._written = self._api.create(new_lease(settings.cluster_id, self._name, spec, annotations))
            if self._written is not None:
                return
            # An earlier process of this address has left it, or the answer was lost.
            self._written = self._api.read(self._name)
        if self._written is not None:
            self._written = self._api.replace(renewed(self._written, time.time(), annotations))

    def remove(self) -> None:
        """Deletes the Lease."""
        if self._may_exist:
            self._api.delete(self._name)
            self._may_exist, self._written = False, None

    def remove_expired(self) -> None:
        """Deletes the Leases of candidates that ended long ago without removing theirs."""
        settings = self._settings
        leader, now = leader_lease_name(settings.cluster_id), time.time()
        for lease in self._api.list(selector_of(lease_labels(settings.cluster_id))):
            age_s = now - renewal_time(lease)
            if lease["metadata"]["name"] != leader and age_s > _EXPIRED_DURATIONS * duration_of(lease):
                self._api.delete(lease["metadata"]["name"])


class KubernetesCandidatesReader(CandidatesReader):
    """A reader with its own connection, as a context manager."""

    def __init__(self, settings: KubernetesElectionSettings) -> None:
        self._settings = settings
        self._api = LeaseApi(settings.place, settings.limits)

    def read(self) -> list[Candidate]:
        settings = self._settings
        leader_name, now = leader_lease_name(settings.cluster_id), time.time()
        try:
            leases = self._api.list(selector_of(lease_labels(settings.cluster_id)))
        except ApiFailure as failure:
            raise ElectionUnreachable(str(failure)) from None
        leaders = {
            holder_of(lease).rpartition("_")[0]
            for lease in leases
            if lease["metadata"]["name"] == leader_name
        }
        found = [
            _candidate(lease)
            for lease in leases
            if lease["metadata"]["name"] != leader_name
            and now <= renewal_time(lease) + _LIVE_DURATIONS * duration_of(lease)
        ]
        return sorted(found, key=lambda each: (each.address not in leaders, each.address))

    def close(self) -> None:
        pass


def _candidate(lease: Resource) -> Candidate:
    level = (lease["metadata"].get("annotations") or {}).get(LEVEL_ANNOTATION, "")
    return Candidate(holder_of(lease), int(level) if level.isdecimal() else FIRST_LEVEL)
