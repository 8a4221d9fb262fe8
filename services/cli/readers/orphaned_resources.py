"""Finds resources that the log does not use: `cluster status` lists them, `cluster clean` removes them.

They are ZooKeeper nodes and blobs of jobs that are unknown or ended, and snapshots of a longer log.

The caller lists the resources before it reads the log, so that the log knows every job whose nodes are listed. Blobs
are uploaded before their job is submitted, so blobs of unknown jobs are orphans only after some time. The list may
contain resources that a master is about to remove.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from ....infra.storage.errors import CheckpointError
from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...blobs.errors import BlobUnavailable
from ...blobs.garbage_collector import JobPhase, create_store, find_orphans
from ...configuration import Configuration
from ...configuration.options.blob import BLOB_CLEANUP_INTERVAL
from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from ...election import zookeeper_nodes
from ...election.settings import ZooKeeperSettings
from ...election.zookeeper_nodes import RoleNodes, ZooKeeperUnreachable
from ...snapshots.store import SnapshotStore
from ..render.output import print_progress

Jobs = dict[str, JobStatus]
"""Job id -> its status, for all that the log knows."""


class OrphanedResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something by its `path` (of ZooKeeper, or a URI), and why nobody needs it."""

    kind: str
    """node, blobs or snapshot."""
    path: str
    reason: str
    job_id: str | None = None
    """Whose blobs."""
    offset: int | None = None
    """Which snapshot."""


class ClusterResources(msgspec.Struct, frozen=True):
    """What there is. `nodes`: None where ZooKeeper is not used or does not answer."""

    nodes: tuple[RoleNodes, ...] | None = None
    blobs: tuple[str, ...] = ()
    """Jobs that own some."""
    snapshots: tuple[int, ...] = ()


class OrphanNotRemoved(Exception):
    """Something stays; the text says what, and why."""


def list_resources(configuration: Configuration, *, timeout_s: float = 5.0) -> ClusterResources:
    """What a cluster keeps outside of its log; people are told of what does not answer."""
    blobs: Sequence[str] = ()
    snapshots: Sequence[int] = ()
    nodes = _nodes(configuration, timeout_s)
    try:
        blobs = create_store(configuration).jobs()
        snapshots = SnapshotStore.from_configuration(configuration).offsets()
    except (BlobUnavailable, CheckpointError) as error:
        print_progress(f"which blobs and snapshots are kept is not known: {error}")
    return ClusterResources(nodes, tuple(blobs), tuple(snapshots))


def find_orphaned_resources(
    configuration: Configuration, kept: ClusterResources, jobs: Jobs, end: int
) -> list[OrphanedResource]:
    """All orphans among what was kept when the log was read up to its last offset, `end`."""
    ended = {job_id: status in JOB_ENDS for job_id, status in jobs.items()}
    found = [
        OrphanedResource("node", each.path, each.reason)
        for each in zookeeper_nodes.orphans(kept.nodes or (), ended)
    ]
    try:
        found += _blobs(configuration, kept, ended)
    except BlobUnavailable as error:
        print_progress(f"which blobs are old is not known: {error}")
    return [*found, *_snapshots(configuration, kept, end)]


def remove_orphan(
    configuration: Configuration, unwanted: Sequence[OrphanedResource], *, timeout_s: float = 10.0
) -> None:
    """Removes orphans; what is gone meanwhile is passed over. Raises NotRemoved, when all else was tried."""
    faults = []
    blobs, snapshots = create_store(configuration), SnapshotStore.from_configuration(configuration)
    if nodes := [zookeeper_nodes.Orphan(each.path, each.reason) for each in unwanted if each.kind == "node"]:
        try:
            zookeeper_nodes.remove(
                ZooKeeperSettings.from_configuration(configuration), nodes, timeout_s=timeout_s
            )
        except ZooKeeperUnreachable as error:
            faults.append(str(error))
    for each in unwanted:
        try:
            if each.job_id is not None:
                blobs.delete_job(each.job_id)
            if each.offset is not None:
                snapshots.delete(each.offset)
        except (BlobUnavailable, CheckpointError) as error:
            faults.append(str(error))
    if faults:
        raise OrphanNotRemoved("; ".join(dict.fromkeys(faults)))


def _nodes(configuration: Configuration, timeout_s: float) -> tuple[RoleNodes, ...] | None:
    if configuration.get(HIGH_AVAILABILITY) is HighAvailability.NONE:
        return None
    try:
        return zookeeper_nodes.inventory(
            ZooKeeperSettings.from_configuration(configuration), timeout_s=timeout_s
        )
    except ZooKeeperUnreachable as error:
        print_progress(f"what is in ZooKeeper, and who stands by, is not known: {error}")
        return None


def _blobs(
    configuration: Configuration, kept: ClusterResources, ended: dict[str, bool]
) -> Iterator[OrphanedResource]:
    def fate(job_id: str) -> JobPhase:
        if job_id not in ended:
            return JobPhase.UNKNOWN
        return JobPhase.OVER if ended[job_id] else JobPhase.LIVE

    store = f"{configuration.ha_storage}/{configuration.ha_cluster_id}/blob"
    old = time.time() - configuration.get(BLOB_CLEANUP_INTERVAL) / 1e6
    for job_id in find_orphans(create_store(configuration), kept.blobs, fate, old):
        reason = f"job {job_id} has ended" if job_id in ended else f"the log knows no job {job_id}"
        yield OrphanedResource("blobs", f"{store}/job_{job_id}", reason, job_id=job_id)


def _snapshots(configuration: Configuration, kept: ClusterResources, end: int) -> Iterator[OrphanedResource]:
    store = SnapshotStore.from_configuration(configuration)
    for offset in kept.snapshots:
        if offset > end:
            reason = f"it reaches offset {offset}, and the log ends at {end}"
            yield OrphanedResource("snapshot", store.uri_of(offset), reason, offset=offset)
