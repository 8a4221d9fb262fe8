"""Checks the blobs and checkpoints of the jobs."""

from __future__ import annotations

from collections.abc import Iterator

from ....infra.storage.errors import CheckpointError, StorageError
from ....pipelines.checkpoint.metadata import read_metadata, verify
from ....schemas.types import EntryPoint, JobGraph
from ...blobs.errors import BlobUnavailable
from ...blobs.garbage_collector import blob_directory, store_uri
from ...blobs.job_blobs import blob_keys
from ...blobs.keys import BlobKey
from ...blobs.store import FileSystemBlobStore
from ...configuration import Configuration
from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from ...core.role import DISPATCHER
from ...dispatcher.state import DispatcherState
from ...history import HistoryProjection
from ...history.checkpoint_history import CheckpointStatus
from ...job_master.state import StartedJob
from .log_checks import OnProgress
from .report import Findings, ResourceKind


def check_blobs(
    configuration: Configuration,
    fold: HistoryProjection,
    found: Findings,
    on_progress: OnProgress,
    *,
    quick: bool,
) -> None:
    """Checks the blobs of all jobs that have not ended."""
    keys = sorted(set(_named_blobs(fold)))
    if not keys:
        return
    if configuration.get(HIGH_AVAILABILITY) is HighAvailability.NONE:
        directory = blob_directory(configuration)
        if not directory.exists():
            found.note(
                f"{len(keys)} blobs were not checked: without high availability they are on the disks of the masters, "
                f"and {directory} does not exist on this machine"
            )
            return
        store = FileSystemBlobStore(str(directory))
    else:
        store = FileSystemBlobStore(store_uri(configuration))
    for key in keys:
        found.check(ResourceKind.BLOB)
        on_progress()
        try:
            problem = store.find_fault(key, quick=quick)
        except BlobUnavailable as error:
            found.note(f"blobs were not checked further: {error}")
            return
        if problem is not None:
            lost = f"job {key.job_id}, if a task that needs it restarts where no copy is"
            found.add(ResourceKind.BLOB, store.uri_of(key), problem, lost, key.job_id)


def _named_blobs(fold: HistoryProjection) -> Iterator[BlobKey]:
    for state in fold.replica.states.values():
        if isinstance(state, StartedJob) and not state.has_ended:
            yield from _keys_of(state.graph)
            if state.graph_blob is not None:
                yield BlobKey.parse(state.graph_blob)
    dispatcher = fold.replica.states.get(DISPATCHER)
    if isinstance(dispatcher, DispatcherState):
        for job in dispatcher.jobs.values():
            yield from _keys_of(job.graph)
            yield from _keys_of(job.entry_point)


def _keys_of(what: JobGraph | EntryPoint | None) -> Iterator[BlobKey]:
    for text in () if what is None else blob_keys(what):
        yield BlobKey.parse(text)


def check_checkpoints(
    fold: HistoryProjection, found: Findings, on_progress: OnProgress, *, quick: bool
) -> None:
    """Checks the files of all checkpoints and savepoints that were not deleted."""
    for job_id, known in sorted(fold.checkpoints.all().items()):
        state = fold.replica.states.get(f"job_master/{job_id}")
        runs = isinstance(state, StartedJob) and not state.has_ended
        stored = [
            view
            for view in known.checkpoints
            if view.status is CheckpointStatus.COMPLETED and not view.discarded
        ]
        for view in stored:
            found.check(ResourceKind.CHECKPOINT)
            on_progress()
            try:
                problems = verify(read_metadata(view.uri), checksums=not quick)
            except StorageError as error:
                found.note(f"checkpoints were not checked further: {error}")
                return
            except CheckpointError as error:
                problems = [str(error)]
            newest = runs and view is stored[-1]
            lost = (
                f"the state of job {job_id}, if its tasks can't continue from their changelogs"
                if newest
                else f"a way back of job {job_id} to checkpoint {view.checkpoint_id}"
            )
            for problem in problems:
                found.add(ResourceKind.CHECKPOINT, view.uri, problem, lost, job_id)
