"""The state of a subtask in storage: for each operator what a FULL file holds, and the changes since (DELTA files).

*Where checkpoints are taken at intervals*, the messages of the changelog go to storage as well, and a cut names what is
there. A FULL file takes the place of the chain when reading it would be less work: it is written by a forked child of
the task, while changes go on; those from the fork on follow it, and until it is there the old chain counts. A new
attempt goes on behind the files that it was restored from; its predecessor's it leaves as they are, and makes its own.

*Elsewhere*, and for savepoints, which are to hold all that they need, a cut is a FULL file in a directory of its own.

No call waits for storage: a thread of the writer's own does that, in the order of the calls. Where storage is slower
than changes come, or hangs, what waits for it is given up at a limit: checkpoints are declined until the thread has
come through, and the next one is FULL. The task and its transactions never wait.
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
"""Bytes of changes that are never worth a FULL file."""
MAX_FILES: Final = 64
"""Files of changes that are."""
_APPEND_BYTES: Final = 1 << 20
"""Bytes of changes that are handed to storage together between cuts."""
_MAX_WAITING: Final = 8 << 20
"""Bytes of changes that may wait in memory for the first cut, which says where they go; of more, the first cut is full.
Behind a larger FULL file as many as that has may wait, up to MOST_UNWRITTEN: to write it again costs more."""
MAX_UNWRITTEN_BYTES: Final = 64 << 20
"""Bytes of changes that may wait for storage to take them."""
_TOO_SLOW: Final = (
    f"storage is too slow: {MAX_UNWRITTEN_BYTES >> 20} MiB of changes have waited for it; once it has come "
    "through, the next"
    " checkpoint is full"
)
MAX_FULLS: Final = 8
"""FULL files that may be under way together: each is a process, and a copy of what the task changes meanwhile."""
_MAX_SKIPPED: Final = 64
"""Cuts until a FULL file is tried again that could not be written; twice as many each time, up to this."""


class StateSnapshot:
    """A subtask's state at a barrier, on its way to storage."""

    def __init__(
        self, base: FullSnapshotFile | Files, changes: Sequence[Future[Files]] = (), *, changed: int = -1
    ) -> None:
        """`changed`: bytes of changes since the cut before; -1: the base is new."""
        self._base = base
        self._changes = changes
        self._changed = changed
        self.bytes_written = 0
        """What is new in storage, once it is finished."""

    def finish(self) -> Mapping[str, OperatorState]:
        """Waits until all of it is in storage, and says where: by operator id.

        Called by another thread than the writer's other methods. Raises TaskError where it cannot be written: the
        checkpoint is to be declined, the task may go on.
        """
        base = self._base.files() if isinstance(self._base, FullSnapshotFile) else self._base
        files = {operator_id: tuple(some) for operator_id, some in base.items()}
        try:
            for each in self._changes:
                for operator_id, some in each.result().items():
                    files[operator_id] = files.get(operator_id, ()) + some
        except CheckpointError as error:
            raise TaskError(f"state could not be written: {error}") from error
        new = sum(file.length for some in base.values() for file in some)
        self.bytes_written = new if self._changed < 0 else self._changed
        return {operator_id: OperatorState(files=some) for operator_id, some in files.items() if some}


class StateWriter:
    """Of one attempt of a subtask. All calls come from the task's thread; none but `close` waits."""

    def __init__(
        self,
        stateful: Mapping[str, Stateful],
        key_groups: range,
        *,
        incremental: bool,
        name: str,
        fork: Callable[[ForkedWork], FullSnapshotWrite] = ForkedWorker,
    ) -> None:
        """`stateful`: by operator id (KeptState.by_id); `key_groups`: the subtask's own.

        `incremental`: whether changes are written as they come: checkpoints are taken at intervals. `name` begins the
        names of all files: no other attempt may have the same. `fork` does work on the state as it is when called.
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
        """What the segments follow; None: nothing is known to be in storage."""
        self._base_size = self._base_changes = self._base_files = 0
        self._segments: list[DeltaSegment] = []
        """What has changed since: the last one grows."""
        self._cut_size = 0
        """Their bytes at the last cut."""
        self._next: tuple[FullSnapshotFile, int] | None = None
        """A FULL file on its way, and how many of the segments lie before it."""
        self._to_skip = self._skipping = 0
        self._follows: int | None = None
        """The checkpoint whose files the first cut goes on from."""
        self._unwritten: list[DeltaSegment] = []
        """All that storage has not taken whole, dropped or not."""
        self._behind: Future[None] | None = None
        """Done when the thread has come through what was given up."""
        self._is_closed = False

    def continue_from(self, operators: Mapping[str, OperatorState], checkpoint_id: int = 0) -> None:
        """What was restored, by the same subtask in the same job, is in these files: go on behind them.

        Before `add`; what has been read of the changelog behind them is added then. Nothing in them: the subtask has
        begun with nothing. Not called: the first cut is full; so it is if a checkpoint lies between the one that was
        restored and the first: it may have been completed with a part of an earlier attempt, and the files be deleted.
        """
        if self._incremental:
            self._follows = checkpoint_id if any(each.files for each in operators.values()) else None
            self._base = {operator_id: tuple(state.files) for operator_id, state in operators.items()}
            self._measure(self._base)

    def add(self, key: bytes, message: bytes) -> None:
        """A message that goes to the changelog."""
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
        """Bytes that wait for storage."""
        return sum(segment.waiting for segment in self._unwritten)

    def take_snapshot(self, options: CheckpointOptions) -> StateSnapshot:
        """All state as of the messages added so far, which are all that `take_changes` has given.

        A savepoint, or what is asked to be full, is written whole to where the options say.
        """
        if options.snapshot_type is SnapshotType.SAVEPOINT:
            return StateSnapshot(self._begin_full(Storage(options.directory), options.directory))
        storage = Storage(base_of(options.directory))
        if not self._incremental:
            return StateSnapshot(self._begin_full(storage, options.directory))
        return self._snapshot_chain(storage, options)

    def close(self) -> None:
        """At the end, also after a failure; a cut that is not finished may not be. A second time does nothing."""
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
            # Cuts that follow name it too, also where it is not there yet: what it supersedes may be deleted with it.
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
        """Takes over the FULL files that have been written since the last cut."""
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
        """The base is what counts from now on, instead of so many segments."""
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
        """What is in storage does not count any more: the next cut is full."""
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
            self._unwritten = [each for each in self._unwritten if each.waiting and each is not segment]
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
        self._fulls = [each for each in self._fulls if not each.is_done]
        if len(self._fulls) >= MAX_FULLS:
            return NotBegun(f"{len(self._fulls)} files of all state are still being written: storage is slow")
        self._numbers += 1
        path = posixpath.join(directory, f"{self._name}-{self._numbers}{FULL}")
        full = FullSnapshotFile(storage, path, self._fork, self._stateful, self._key_groups)
        self._fulls.append(full)
        return full
