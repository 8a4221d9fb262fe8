"""Options of leader election by a Lease of Kubernetes. Where the API server is: options `kubernetes.*`."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, INT, MILLISECOND, SECOND
from ....infra.config.options import ConfigOption
from .kinds import EVERYONE

LEASE_DURATION = ConfigOption(
    key="high-availability.kubernetes.leader-election.lease-duration",
    type=DURATION,
    default=15 * SECOND,
    at_least=SECOND,
    doc="How long the leader holds the Lease after a renewal; Kubernetes counts whole seconds. If the leader fails, "
    "the next one is elected after this time. A leader that cannot renew stops deciding after two thirds of it.",
    scopes=EVERYONE,
)
RETRY_PERIOD = ConfigOption(
    key="high-availability.kubernetes.leader-election.retry-period",
    type=DURATION,
    default=2 * SECOND,
    at_least=100 * MILLISECOND,
    doc="How often the leader renews the Lease, and the others read it, beside watching it. At most a sixth of the "
    "lease duration is used.",
    scopes=EVERYONE,
    flink="5 s",
)
KUBERNETES_BASE_EPOCH = ConfigOption(
    key="high-availability.kubernetes.base-epoch",
    type=INT,
    default=0,
    at_least=0,
    doc="Is added to the epochs, which begin with the time at which the Lease was created. Needed if the log has "
    "higher ones, such as those of a ZooKeeper; the same in all jobmanagers.",
    scopes=EVERYONE,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (LEASE_DURATION, RETRY_PERIOD, KUBERNETES_BASE_EPOCH)
