"""The files of completed checkpoints (Flink's CompletedCheckpointStore).

A checkpoint is in storage before any event names it: first its files, then its `_metadata`, then the handle, which is
CheckpointCompleted in the log (Flink keeps it in ZooKeeper). So a failed `add` loses no earlier checkpoint. `recover`
takes the newest intact checkpoint. It skips a missing or corrupt one and reports that. If storage is unreachable
nothing is known about its content, and nothing is skipped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ....infra.storage.errors import CheckpointError, CorruptFile, StorageError
from ....infra.storage.storage import Storage, canonical
from ....pipelines.checkpoint import disposal
from ....pipelines.checkpoint.compatibility import (
    finished_subtasks,
    has_other_parallelism,
    incompatibilities,
)
from ....pipelines.checkpoint.layout import base_of
from ....pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    edges_of,
    files_of,
    outline_of,
    read_metadata,
    verify,
    write_metadata,
)
from ....pipelines.graph.accumulators import total
from ....schemas.types import CompletedCheckpoint, JobGraph, RestoredCheckpoint
from ..topology import VertexKey
from .pending_checkpoint import PendingCheckpoint

_REMEMBERED: Final = 128
"""The number of checkpoints whose metadata is cached, so that discarding needs no read."""
_MOST_FAULTS_SHOWN: Final = 3
_READ_WHOLE: Final = 256 << 20
"""The size up to which a checkpoint is read from remote storage before tasks restore it. Of a larger one only
lengths are checked: its tasks read it at the same time, and detect other damage. Local files are always read: after
a crash of the machine they may have their full lengths, but other bytes."""

GIVEN: Final = -1
"""The generation of a candidate that a user named."""


class UnusableCheckpoint(Exception):
    """No candidate can be restored. The text says why, for each."""


class RecoveredCheckpoint(msgspec.Struct, frozen=True):
    """An intact checkpoint that fits the job."""

    checkpoint: RestoredCheckpoint
    finished: Mapping[str, tuple[int, ...]]
    """Subtasks of the job that had finished in it: vertex -> their numbers."""
    passed_over: Mapping[str, str]
    """Newer checkpoints that cannot be used: directory -> reason."""
    accumulators: Mapping[str, float]
    """The accumulators of these subtasks."""


class CompletedCheckpointStore:
    """The store of all jobs of a process. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, CheckpointMetadata] = OrderedDict()
        self._files_in_deletion: set[str] = set()
        """Files that are being deleted: a checkpoint that refers to them cannot complete any more."""
        self._lock = Lock()

    def add(
        self,
        job_id: str,
        graph: JobGraph,
        pending: PendingCheckpoint,
        counted: Mapping[VertexKey, Mapping[str, float]] = Map(),
        *,
        tenant: str = "",
    ) -> CompletedCheckpoint:
        """Writes the metadata of a checkpoint that all have acknowledged. Idempotent. `counted`: accumulators of
        finished subtasks. `tenant`: that of the job.

        Raises StorageError; CorruptFile if a file that it refers to is not in storage, so it is not complete.
        """
        subtasks = pending.subtasks(counted)
        checkpoint = CompletedCheckpoint(
            checkpoint_id=pending.checkpoint_id,
            snapshot_type=pending.options.snapshot_type,
            uri=canonical(pending.options.directory),
            generation=pending.generation,
            size=sum(subtask.state.size for subtask in subtasks),
        )
        metadata = CheckpointMetadata(
            job_id=job_id,
            job_name=graph.name,
            checkpoint=checkpoint,
            triggered=pending.triggered,
            vertices=outline_of(graph),
            subtasks=subtasks,
            edges=edges_of(graph),
            tenant=tenant,
        )
        self._announce(metadata)
        try:
            faults = verify(metadata)
            if faults:
                raise CorruptFile(_abbreviate(faults))
            write_metadata(metadata)
        except BaseException:
            self._forget(checkpoint.uri)
            raise
        return checkpoint

    def recover(
        self,
        graph: JobGraph,
        candidates: Sequence[RestoredCheckpoint],
        *,
        allow_non_restored_state: bool = False,
        tenant: str = "",
    ) -> RecoveredCheckpoint:
        """Returns the first of the candidates that is intact and fits the job. `tenant`: that of the job; it uses no
        candidate of another tenant.

        Raises UnusableCheckpoint; StorageError if storage does not answer.
        """
        passed_over: dict[str, str] = {}
        for candidate in candidates:
            try:
                metadata = read_metadata(candidate.uri)
                if is_foreign(metadata.tenant, tenant):
                    passed_over[candidate.uri] = (
                        f"{metadata.checkpoint.uri} belongs to another tenant, so no job of tenant {tenant} may start "
                        "from it: name a savepoint of this tenant, or ask the operator"
                    )
                    continue
                faults = verify(metadata, checksums=_is_read_whole(metadata))
            except StorageError:
                raise
            except CheckpointError as error:
                passed_over[candidate.uri] = str(error)
                continue
            is_other_graph = candidate.generation == GIVEN or has_other_parallelism(metadata, graph)
            if not faults and is_other_graph:
                faults = incompatibilities(metadata, graph, allow_non_restored_state=allow_non_restored_state)
            if faults:
                passed_over[candidate.uri] = _abbreviate(faults)
                continue
            with self._lock:
                self._keep(metadata)
            counted = total(subtask.state.accumulators for subtask in metadata.subtasks if subtask.finished)
            return RecoveredCheckpoint(
                _to_restored_state(candidate, metadata),
                _finished_subtasks(metadata, graph),
                passed_over,
                counted,
            )
        raise UnusableCheckpoint(_describe_none_usable(passed_over))

    def discard(
        self,
        directory: str,
        kept: Iterable[str],
        *,
        completed: bool,
        before_each: Callable[[], None] = lambda: None,
    ) -> None:
        """Deletes a checkpoint that is subsumed, or was never completed. Idempotent. Calls `before_each` before each
        deletion, and raises its errors. Raises StorageError.

        `kept`: the directories of retained checkpoints. Files that they refer to stay, too.
        """
        if not completed:
            before_each()
            disposal.discard_incomplete(directory)
            return
        own = disposal.exclusive_files(directory, kept, read=self._read)
        deletable = self._mark_deleted(directory, own)
        try:
            disposal.delete(directory, deletable, before_each)
        finally:
            with self._lock:
                self._files_in_deletion -= deletable
        self._forget(directory)

    def remove(self, job_directory: str, retained: Iterable[CompletedCheckpoint]) -> None:
        """Deletes all files of a job's checkpoints, except the retained ones. Raises StorageError."""
        disposal.remove_all(job_directory, [each.uri for each in retained], read=self._read)

    def _announce(self, metadata: CheckpointMetadata) -> None:
        """Protects the files that it refers to from other deletions. Raises CorruptFile if their deletion has begun."""
        files = _absolute_files(metadata)
        with self._lock:
            deleted = files & self._files_in_deletion
            if deleted:
                raise CorruptFile(f"{min(deleted)} belongs to a checkpoint that is being deleted")
            self._keep(metadata)

    def _mark_deleted(self, directory: str, files: set[str]) -> set[str]:
        """Returns the files, as absolute paths, that no checkpoint added meanwhile refers to."""
        storage = Storage.open(base_of(canonical(directory)))
        absolute = {storage.absolute(path) for path in files}
        with self._lock:
            for uri, metadata in self._known.items():
                if uri != canonical(directory) and base_of(uri) == storage.uri:
                    absolute -= _absolute_files(metadata)
            self._files_in_deletion |= absolute
        return absolute

    def _read(self, uri: str) -> CheckpointMetadata:
        with self._lock:
            known = self._known.get(canonical(uri))
        return read_metadata(uri) if known is None else known

    def _keep(self, metadata: CheckpointMetadata) -> None:
        self._known[metadata.checkpoint.uri] = metadata
        self._known.move_to_end(metadata.checkpoint.uri)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _forget(self, directory: str) -> None:
        with self._lock:
            self._known.pop(canonical(directory), None)


def is_foreign(owner: str, tenant: str) -> bool:
    """Whether a job of `tenant` must not start from a checkpoint of a job of `owner`; empty: no tenant. The operator's
    jobs start from any, and those of all tenants from the operator's: so the operator can pass state on."""
    return bool(tenant and owner) and owner != tenant


def _absolute_files(metadata: CheckpointMetadata) -> set[str]:
    storage = Storage.open(base_of(metadata.checkpoint.uri))
    return {storage.absolute(file.path) for file in files_of(metadata)}


def _is_read_whole(metadata: CheckpointMetadata) -> bool:
    is_local = Storage.open(metadata.checkpoint.uri).is_local
    return is_local or sum(file.length for file in files_of(metadata)) <= _READ_WHOLE


def _to_restored_state(candidate: RestoredCheckpoint, metadata: CheckpointMetadata) -> RestoredCheckpoint:
    found = metadata.checkpoint
    number = candidate.checkpoint_id or found.checkpoint_id
    return replace(candidate, checkpoint_id=number, uri=found.uri)


def _finished_subtasks(metadata: CheckpointMetadata, graph: JobGraph) -> dict[str, tuple[int, ...]]:
    found = {vertex.vertex_id: finished_subtasks(metadata, vertex) for vertex in graph.vertices}
    return {vertex_id: tuple(sorted(indices)) for vertex_id, indices in found.items() if indices}


def _abbreviate(faults: Sequence[str]) -> str:
    more = len(faults) - _MOST_FAULTS_SHOWN
    return "; ".join(faults[:_MOST_FAULTS_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _describe_none_usable(passed_over: Mapping[str, str]) -> str:
    if not passed_over:
        return "there is no completed checkpoint to go back to"
    if len(passed_over) == 1:
        return next(iter(passed_over.values()))
    return "no checkpoint can be restored: " + "; ".join(passed_over.values())
