"""The state of a subtask in storage: for each operator a FULL file, and the changes since (DELTA files).

*With periodic checkpoints*, the messages of the changelog also go to storage, and a snapshot names the files. A new
FULL file replaces the chain of files when it is less to read. A forked child of the task writes it while changes
continue. The changes since the fork follow it, and the old chain counts until it is complete. A new attempt continues
the chain that it was restored from; it does not change other files of its predecessor, and writes its own.

*Without them*, and for savepoints, which must be self-contained, a snapshot is a FULL file in a directory of its own.

No call waits for storage: a thread of the writer performs the calls in order. If storage is slower than the changes, or
hangs, the writer drops pending changes above a limit: it declines checkpoints until the thread has caught up, and the
next one is FULL. The task and its transactions never wait.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from .....infra.storage.errors import CheckpointError, StorageError
from .....infra.storage.storage import Storage
from .....schemas.types import CheckpointOptions, OperatorState, SnapshotType
from ....checkpoint.layout import base_of, checkpoint_id_of
from ...common.failures import TaskError
from ...state_backend.stateful import Stateful
from .delta_files import DeltaSegment
from .fork_worker import ForkedWork, ForkedWorker
from .full_snapshot import FULL, Files, FullSnapshotFile, FullSnapshotWrite, NotBegun

LEAST_CHAIN: Final = 1 << 20
"""The bytes of changes below which a FULL file is never written."""
MAX_FILES: Final = 64
"""The number of files of changes above which one is."""
_APPEND_BYTES: Final = 1 << 20
"""The bytes of changes that are passed to storage together between snapshots."""
_MAX_WAITING: Final = 8 << 20
"""The bytes of changes that may wait in memory for the first snapshot, which defines where they go; above it, the
first snapshot is full. After a larger FULL file the limit is its size, up to MAX_UNWRITTEN_BYTES, because writing it
again costs more."""
MAX_UNWRITTEN_BYTES: Final = 64 << 20
"""The bytes of changes that may wait for storage."""
_TOO_SLOW: Final = (
    f"storage is too slow: {MAX_UNWRITTEN_BYTES >> 20} MiB of changes wait for it; after they "
    "are written, the next"
    " checkpoint is full"
)
MAX_FULLS: Final = 8
"""The number of FULL files that may be written at the same time: each is a process, and copies the memory that the
task changes meanwhile."""
_MAX_SKIPPED: Final = 64
"""The number of snapshots until a failed FULL file is tried again; doubled each time, up to this limit."""


class StateSnapshot:
    """A subtask's state at a barrier, while it is written to storage."""

    def __init__(
        self, base: FullSnapshotFile | Files, changes: Sequence[Future[Files]] = (), *, changed: int = -1
    ) -> None:
        """`changed`: bytes of changes since the previous snapshot; -1: the base is new."""
        self._base = base
        self._changes = changes
        self._changed = changed
        self.bytes_written = 0
        """The new bytes in storage, after it is finished."""

    def finish(self) -> Mapping[str, OperatorState]:
        """Waits until all of it is in storage, and returns its files by operator id.

        Called by another thread than the writer's other methods. Raises TaskError if it cannot be written: then the
        checkpoint is declined, and the task continues.
        """
        base = self._base.files() if isinstance(self._base, FullSnapshotFile) else self._base
        files = {operator_id: tuple(some) for operator_id, some in base.items()}
        try:
            for change in self._changes:
                for operator_id, some in change.result().items():
                    files[operator_id] = files.get(operator_id, ()) + some
        except CheckpointError as error:
            raise TaskError(f"state could not be written: {error}") from error
        new = sum(file.length for some in base.values() for file in some)
        self.bytes_written = new if self._changed < 0 else self._changed
        return {operator_id: OperatorState(files=some) for operator_id, some in files.items() if some}


class StateWriter:
    """The writer of one attempt of a subtask. All calls come from the task thread; only `close` waits."""

    def __init__(
        self,
        stateful: Mapping[str, Stateful],
        key_groups: range,
        *,
        incremental: bool,
        name: str,
        fork: Callable[[ForkedWork], FullSnapshotWrite] = ForkedWorker,
    ) -> None:
        """`stateful`: by operator id (SubtaskState.by_id). `key_groups`: those of the subtask.

        `incremental`: whether changes are written as they occur, for periodic checkpoints. All file names begin with
        `name`: no other attempt may use the same. `fork` runs work on the state as it is when called.
        """
        self._stateful = stateful
        self._key_groups = key_groups
        self._incremental = incremental
        self._name = name
        self._fork = fork
        self._io = ThreadPoolExecutor(1, thread_name_prefix="state-io")
        self._numbers = 0
        self._fulls: list[FullSnapshotFile] = []
        self._waiting: dict[str, list[bytes]] = {}
        self._waiting_size = 0
        self._storage: Storage | None = None
        self._shared = ""
        self._base: Files | FullSnapshotFile | None = None
        """The base of the segments; None: nothing is known to be in storage."""
        self._base_size = self._base_changes = self._base_files = 0
        self._segments: list[DeltaSegment] = []
        """The changes since the base: the last one grows."""
        self._cut_size = 0
        """The size of the segments at the last snapshot."""
        self._next: tuple[FullSnapshotFile, int] | None = None
        """A FULL file that is being written, and the number of segments before it."""
        self._to_skip = self._skipping = 0
        self._follows: int | None = None
        """The checkpoint whose files the first snapshot continues."""
        self._unwritten: list[DeltaSegment] = []
        """All changes that are not completely in storage, dropped or not."""
        self._behind: Future[None] | None = None
        """Set when the thread has processed the changes that were dropped."""
        self._is_closed = False

    def continue_from(self, operators: Mapping[str, OperatorState], checkpoint_id: int = 0) -> None:
        """Continues the chain of files that the same subtask of the same job was restored from.

        Call it before `add`, then add the messages of the changelog after these files. No files: the subtask began with
        nothing. If it is not called, the first snapshot is full. It is also full if a checkpoint lies between the
        restored one and the first: that checkpoint may have completed with the snapshot of an earlier attempt, and the
        files may be deleted.
        """
        if self._incremental:
            self._follows = checkpoint_id if any(operator.files for operator in operators.values()) else None
            self._base = {operator_id: tuple(state.files) for operator_id, state in operators.items()}
            self._measure(self._base)

    def add(self, key: bytes, message: bytes) -> None:
        """Adds a message that goes to the changelog."""
        if not self._incremental or self._base is None:
            return
        self._waiting.setdefault(key.decode(), []).append(message)
        self._waiting_size += len(message)
        if self._storage is None:
            if self._waiting_size > max(_MAX_WAITING, min(self._base_size, MAX_UNWRITTEN_BYTES)):
                self._forget()
        elif self._waiting_size >= _APPEND_BYTES:
            self._flush()

    @property
    def unwritten(self) -> int:
        """Returns the number of bytes that are not in storage yet."""
        return sum(segment.waiting for segment in self._unwritten)

    def take_snapshot(self, options: CheckpointOptions) -> StateSnapshot:
        """Takes a snapshot of all state as of the messages added so far. These must be all messages that
        `take_changes` has returned.

        A savepoint, or a checkpoint that must be full, is written as a whole to the location in the options.
        """
        if options.snapshot_type is SnapshotType.SAVEPOINT:
            return StateSnapshot(self._begin_full(Storage(options.directory), options.directory))
        storage = Storage(base_of(options.directory))
        if not self._incremental:
            return StateSnapshot(self._begin_full(storage, options.directory))
        return self._snapshot_chain(storage, options)

    def close(self) -> None:
        """Called at the end, also after a failure. It does not finish pending snapshots. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        for full in self._fulls:
            full.kill()
        self._drop(self._segments)
        self._io.shutdown(wait=False)

    def _snapshot_chain(self, storage: Storage, options: CheckpointOptions) -> StateSnapshot:
        self._storage, self._shared = storage, options.shared
        self._adopt()
        follows, self._follows = self._follows, None
        outdated = follows is not None and checkpoint_id_of(options.directory) != follows + 1
        if outdated or any(segment.is_broken for segment in self._segments):
            self._forget()
        if self._base is not None:
            self._flush()
        if self._behind is not None:
            if not self._behind.done():
                return StateSnapshot(NotBegun(_TOO_SLOW))
            self._behind = None
        if self._base is None or options.full:
            # Later snapshots also name it, even before it is in storage: files that it supersedes may be deleted
            # together with the old chain.
            self._drop(self._segments)
            self._base = self._begin_full(storage, options.shared)
            self._segments, self._next, self._cut_size = [self._segment()], None, 0
            return StateSnapshot(self._base)
        size = sum(segment.size for segment in self._segments)
        changed, self._cut_size = size - self._cut_size, size
        changes = [segment.cut(self._io) for segment in self._segments]
        if self._is_chain_long():
            self._next = self._begin_full(storage, options.shared), len(self._segments)
            self._segments.append(self._segment())
        return StateSnapshot(self._base, changes, changed=changed)

    def _adopt(self) -> None:
        """Takes over the FULL files that have been written since the last snapshot."""
        if isinstance(self._base, FullSnapshotFile) and self._base.is_done:
            full, self._base = self._base, None
            if full.has_failed:
                self._forget()
            else:
                self._begin_at(full.files(), 0)
        if self._next is not None and self._next[0].is_done:
            (full, before), self._next = self._next, None
            if full.has_failed:
                self._to_skip = min(_MAX_SKIPPED, 2 * self._to_skip or 1)
                self._skipping = self._to_skip
            else:
                self._to_skip = 0
                self._begin_at(full.files(), before)

    def _begin_at(self, base: Files, before: int) -> None:
        """Replaces the first `before` segments by the base."""
        self._drop(self._segments[:before])
        self._cut_size -= sum(segment.size for segment in self._segments[:before])
        self._base, self._segments = base, self._segments[before:]
        self._measure(base)

    def _measure(self, base: Files) -> None:
        changes = [[file for file in files if not file.path.endswith(FULL)] for files in base.values()]
        self._base_files = max(map(len, changes), default=0)
        self._base_changes = sum(file.length for files in changes for file in files)
        self._base_size = sum(file.length for files in base.values() for file in files) - self._base_changes

    def _is_chain_long(self) -> bool:
        """Whether a FULL file is due."""
        if self._next is not None or isinstance(self._base, FullSnapshotFile):
            return False
        if self._skipping:
            self._skipping -= 1
            return False
        size = self._base_changes + sum(segment.size for segment in self._segments)
        files = self._base_files + sum(segment.files for segment in self._segments)
        return size > max(LEAST_CHAIN, self._base_size) or files > MAX_FILES

    def _forget(self) -> None:
        """Ignores the files in storage from now on: the next snapshot is full."""
        self._drop(self._segments)
        self._base, self._segments = None, []
        self._waiting, self._waiting_size = {}, 0
        self._next = None

    def _drop(self, segments: Sequence[DeltaSegment]) -> None:
        for segment in segments:
            segment.close(self._io)

    def _segment(self) -> DeltaSegment:
        assert self._storage is not None
        return DeltaSegment(self._storage, self._shared, self._name)

    def _flush(self) -> None:
        if not self._segments:
            self._segments = [self._segment()]
        if self._waiting:
            messages, self._waiting = self._waiting, {}
            segment = self._segments[-1]
            segment.append(self._io, messages, self._waiting_size)
            self._waiting_size = 0
            self._unwritten = [
                unwritten for unwritten in self._unwritten if unwritten.waiting and unwritten is not segment
            ]
            self._unwritten.append(segment)
            if self.unwritten > MAX_UNWRITTEN_BYTES:
                self._give_up()

    def _give_up(self) -> None:
        for segment in self._unwritten:
            segment.abandon(StorageError(_TOO_SLOW))
        self._unwritten = []
        self._forget()
        self._behind = self._io.submit(lambda: None)

    def _begin_full(self, storage: Storage, directory: str) -> FullSnapshotFile:
        self._fulls = [full for full in self._fulls if not full.is_done]
        if len(self._fulls) >= MAX_FULLS:
            return NotBegun(f"{len(self._fulls)} files of all state are still being written: storage is slow")
        self._numbers += 1
        path = posixpath.join(directory, f"{self._name}-{self._numbers}{FULL}")
        full = FullSnapshotFile(storage, path, self._fork, self._stateful, self._key_groups)
        self._fulls.append(full)
        return full
