"""Options of leader election, and of the storage that the masters share."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ....infra.config.option_types import BOOL, LOCATION, choice, derived
from ....infra.config.options import ConfigOption
from .kinds import EVERYONE, ID


class HighAvailability(StrEnum):
    """The service that elects the leading master."""

    NONE = "none"
    ZOOKEEPER = "zookeeper"
    KUBERNETES = "kubernetes"


HIGH_AVAILABILITY = ConfigOption(
    key="high-availability.type",
    type=choice(HighAvailability),
    default=HighAvailability.NONE,
    doc="none: a starting jobmanager takes over the leadership. zookeeper: ZooKeeper elects the leader among any "
    "number of jobmanagers, and the others are standbys. kubernetes: the same by a Lease of Kubernetes in "
    "kubernetes.namespace.",
    scopes=EVERYONE,
)
ABANDON_ELECTION = ConfigOption(
    key="high-availability.abandon-election",
    type=BOOL,
    default=False,
    doc="With high-availability.type none: whether a jobmanager takes the leadership although the last leader was "
    "elected and the cluster was not stopped since. Use it when no elected jobmanager runs any more.",
    scopes=EVERYONE,
)
TAKE_OVER = ConfigOption(
    key="high-availability.take-over",
    type=BOOL,
    default=False,
    doc="With high-availability.type none: whether `tailrace cluster start` takes the leadership of a cluster that "
    "already runs from another home. The jobmanager there ends.",
    scopes=EVERYONE,
)
ACCEPT_NEW_LOG = ConfigOption(
    key="high-availability.accept-new-log",
    type=BOOL,
    default=False,
    doc="Whether a jobmanager starts although the cluster's snapshots or archive are not of <cluster.id>.log: the "
    "topic was lost or created again, or this is another Kafka. The cluster then forgets the jobs of the old log and "
    "deletes its snapshots.",
    scopes=EVERYONE,
)
HA_CLUSTER_ID = ConfigOption[str | None](
    key="high-availability.cluster-id",
    type=derived(ID),
    default=None,
    doc="The cluster's name in ZooKeeper, in its Lease, and below high-availability.storageDir. `auto`: cluster.id.",
    scopes=EVERYONE,
    flink="/default",
)
HA_STORAGE = ConfigOption[str | None](
    key="high-availability.storageDir",
    type=derived(LOCATION),
    default=None,
    doc="Storage for blobs and snapshots of the log's state that all masters share. `auto`: `ha` in the home of the "
    "cluster, which all its machines must then share.",
    scopes=EVERYONE,
    flink="none",
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    HIGH_AVAILABILITY,
    ABANDON_ELECTION,
    TAKE_OVER,
    ACCEPT_NEW_LOG,
    HA_CLUSTER_ID,
    HA_STORAGE,
)
