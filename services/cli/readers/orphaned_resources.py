"""Finds resources that the log does not use: `cluster status` lists them, `cluster clean` removes them.

They are blobs of jobs that are unknown or ended, and snapshots of a longer log.

The caller lists the resources before it reads the log, so that the log knows every job whose blobs are listed. Blobs
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
from ...blobs.garbage_collector import JobPhase, create_store, find_orphans, store_uri
from ...configuration import Configuration
from ...configuration.options.blob import BLOB_CLEANUP_INTERVAL
from ...election.candidates import ElectionUnreachable
from ...election.factory import open_candidates_reader
from ...snapshots.store import SnapshotStore
from ..render.output import print_progress

Jobs = dict[str, JobStatus]
"""Job id -> its status, of all jobs in the log."""


class OrphanedResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource by its `path` (a URI), and why nobody needs it."""

    kind: str
    """blobs, snapshot or staging directory."""
    path: str
    reason: str
    job_id: str | None = None
    """The owner of the blobs."""
    offset: int | None = None
    """The offset of the snapshot."""


class ClusterResources(msgspec.Struct, frozen=True):
    """The resources outside of the log. `candidates` are the addresses of the masters that stand for election; None if
    there are no elections, or their service does not answer."""

    candidates: tuple[str, ...] | None = None
    blobs: tuple[str, ...] = ()
    """Jobs that own blobs."""
    snapshots: tuple[int, ...] = ()


class OrphanNotRemoved(Exception):
    """Some orphans remain; the text says which, and why."""


def list_resources(configuration: Configuration, *, timeout_s: float = 5.0) -> ClusterResources:
    """Lists the resources of a cluster; reports what does not answer on stderr."""
    candidates: tuple[str, ...] | None = None
    try:
        reader = open_candidates_reader(configuration, timeout_s=timeout_s)
        if reader is not None:
            with reader:
                candidates = tuple(reader.candidates())
    except ElectionUnreachable as error:
        print_progress(f"which masters stand by is not known: {error}")
    blobs: Sequence[str] = ()
    snapshots: Sequence[int] = ()
    try:
        blobs = create_store(configuration).jobs()
        snapshots = SnapshotStore.from_configuration(configuration).offsets()
    except (BlobUnavailable, CheckpointError) as error:
        print_progress(f"which blobs and snapshots there are is not known: {error}")
    return ClusterResources(candidates, tuple(blobs), tuple(snapshots))


def find_orphaned_resources(
    configuration: Configuration, resources: ClusterResources, jobs: Jobs, end: int
) -> list[OrphanedResource]:
    """Returns the orphans among the resources. `jobs` and `end`, the last offset, are from the log, read later."""
    ended = {job_id: status in JOB_ENDS for job_id, status in jobs.items()}
    found: list[OrphanedResource] = []
    try:
        found += _blobs(configuration, resources, ended)
    except BlobUnavailable as error:
        print_progress(f"which blobs are old is not known: {error}")
    store = SnapshotStore.from_configuration(configuration)
    for offset in resources.snapshots:
        if offset > end:
            reason = f"it reaches offset {offset}, and the log ends at {end}"
            found.append(OrphanedResource("snapshot", store.uri_of(offset), reason, offset=offset))
    return found


def remove_orphan(configuration: Configuration, unwanted: Sequence[OrphanedResource]) -> None:
    """Removes orphans, and ignores missing ones. Raises OrphanNotRemoved at the end."""
    faults = []
    blobs, snapshots = create_store(configuration), SnapshotStore.from_configuration(configuration)
    for orphan in unwanted:
        try:
            if orphan.job_id is not None:
                blobs.delete_job(orphan.job_id)
            if orphan.offset is not None:
                snapshots.delete(orphan.offset)
        except (BlobUnavailable, CheckpointError) as error:
            faults.append(str(error))
    if faults:
        raise OrphanNotRemoved("; ".join(dict.fromkeys(faults)))


def _blobs(
    configuration: Configuration, resources: ClusterResources, ended: dict[str, bool]
) -> Iterator[OrphanedResource]:
    phases = {True: JobPhase.OVER, False: JobPhase.LIVE, None: JobPhase.UNKNOWN}
    store = store_uri(configuration)
    old = time.time() - configuration.get(BLOB_CLEANUP_INTERVAL) / 1e6
    for job_id in find_orphans(
        create_store(configuration), resources.blobs, lambda job_id: phases[ended.get(job_id)], old
    ):
        reason = (
            f"job {job_id} has ended"
            if job_id in ended
            else f"job {job_id} is forgotten, or was never accepted"
        )
        yield OrphanedResource("blobs", f"{store}/job_{job_id}", reason, job_id=job_id)
