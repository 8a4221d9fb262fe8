"""Leader election, and the storage that outlives each master."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ....infra.config.option_types import BOOL, LOCATION, choice, derived
from ....infra.config.options import ConfigOption
from .kinds import EVERYONE, ID


class HighAvailability(StrEnum):
    """Who says which of several masters should lead."""

    NONE = "none"
    ZOOKEEPER = "zookeeper"


HIGH_AVAILABILITY = ConfigOption(
    key="high-availability.type",
    type=choice(HighAvailability),
    default=HighAvailability.NONE,
    doc="none: a jobmanager that starts takes the lead from the one before. zookeeper: of any number of jobmanagers "
    "ZooKeeper elects one to lead, and the others stand by.",
    scopes=EVERYONE,
)
ABANDON_ELECTION = ConfigOption(
    key="high-availability.abandon-election",
    type=BOOL,
    default=False,
    doc="With high-availability.type none: whether a jobmanager takes the lead although the last one was elected, and "
    "the cluster was not stopped since. For when no elected jobmanager runs any more.",
    scopes=EVERYONE,
)
TAKE_OVER = ConfigOption(
    key="high-availability.take-over",
    type=BOOL,
    default=False,
    doc="With high-availability.type none: whether `tailrace cluster start` takes the lead of a cluster that runs "
    "already, started from another home. The jobmanager there ends.",
    scopes=EVERYONE,
)
ACCEPT_NEW_LOG = ConfigOption(
    key="high-availability.accept-new-log",
    type=BOOL,
    default=False,
    doc="Whether a jobmanager starts although <cluster.id>.log is not the log that the cluster's snapshots were taken "
    "of: the topic was lost or created again, or this is another Kafka. The cluster forgets the jobs of the old log, "
    "and deletes its snapshots.",
    scopes=EVERYONE,
)
HA_CLUSTER_ID = ConfigOption[str | None](
    key="high-availability.cluster-id",
    type=derived(ID),
    default=None,
    doc="The cluster's name in ZooKeeper and below high-availability.storageDir. `auto`: cluster.id.",
    scopes=EVERYONE,
    flink="/default",
)
HA_STORAGE = ConfigOption[str | None](
    key="high-availability.storageDir",
    type=derived(LOCATION),
    default=None,
    doc="Where blobs and snapshots of the log's state are kept, for all masters. `auto`: `ha` in the home of the "
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
