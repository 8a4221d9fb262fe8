"""DELTA files: the changes since a FULL file, one chain for each operator.

The task's thread passes changes and requests snapshots; a storage thread writes them in that order. Changes that are
not in storage yet can be dropped, to bound the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import msgspec

from .....infra.storage.errors import CheckpointError, StorageError
from .....infra.storage.storage import Storage
from ....checkpoint.delta_writer import DeltaWriter
from .full_snapshot import Files

_MAX_HELD_BACK_BYTES: Final = 16 << 20
"""The limit of bytes that wait for a file of their own, if files cannot be appended to."""


class _PendingDelta(msgspec.Struct, frozen=True):
    """Messages by operator id, and their bytes."""

    messages: Mapping[str, list[bytes]]
    size: int
    at_once: bool
    """Whether these messages end a file."""


class DeltaSegment:
    """The changes between two FULL files, or since the last one."""

    def __init__(self, storage: Storage, directory: str, name: str) -> None:
        """Writes nothing yet. File names begin with `name`."""
        self._storage = storage
        self._directory = directory
        self._name = name
        self._chains: dict[str, DeltaWriter] = {}
        self._unwritten: deque[_PendingDelta] = deque()
        self._written = 0
        self._held_back = 0
        self._cut_at = 0
        self._failure: CheckpointError | None = None
        self.size = 0
        """The size of the changes in bytes."""
        self.files = 0
        """The largest number of files of one operator."""

    @property
    def is_broken(self) -> bool:
        """Whether a write failed: the segment then writes nothing more, and no snapshot of it is complete."""
        return self._failure is not None

    @property
    def waiting(self) -> int:
        """Returns the number of bytes that are not in storage yet."""
        return self.size - self._written

    def abandon(self, reason: CheckpointError) -> None:
        """Drops everything that is not in storage yet. Snapshots that depend on it fail."""
        self._failure = self._failure or reason
        self._unwritten.clear()

    def append(self, io: ThreadPoolExecutor, messages: Mapping[str, list[bytes]], size: int) -> None:
        """Queues messages by operator id for writing. `size`: their bytes."""
        self.size += size
        self._held_back += size
        at_once = not self._storage.can_append and self._held_back >= _MAX_HELD_BACK_BYTES
        if at_once:
            self._note_cut()
        self._unwritten.append(_PendingDelta(messages, size, at_once))
        io.submit(self._append)

    def cut(self, io: ThreadPoolExecutor) -> Future[Files]:
        """Returns a future of the files with everything appended so far. Its error is a CheckpointError."""
        self._note_cut()
        return io.submit(self._cut)

    def close(self, io: ThreadPoolExecutor) -> None:
        """Ends the segment: no more appends and cuts."""
        io.submit(self._close)

    def _note_cut(self) -> None:
        if self.size > self._cut_at:
            self.files = 1 if self._storage.can_append else self.files + 1
        self._cut_at, self._held_back = self.size, 0

    def _append(self) -> None:
        try:
            changes = self._unwritten.popleft()
        except IndexError:  # the segment was abandoned
            return
        if self._failure is None:
            self._write(changes)
        self._written += changes.size

    def _write(self, changes: _PendingDelta) -> None:
        try:
            for operator_id, some in changes.messages.items():
                chain = self._chains.get(operator_id)
                if chain is None:
                    name = f"{self._name}-{operator_id[:8]}"
                    chain = DeltaWriter(self._storage, self._directory, name, operator_id)
                    self._chains[operator_id] = chain
                chain.append(some)
                if changes.at_once:
                    chain.cut()
        except CheckpointError as error:
            self._failure = error

    def _cut(self) -> Files:
        if self._failure is not None:
            raise self._failure
        try:
            return {
                operator_id: files for operator_id, chain in self._chains.items() if (files := chain.cut())
            }
        except CheckpointError as error:
            self._failure = error
            raise

    def _close(self) -> None:
        for chain in self._chains.values():
            with suppress(StorageError):
                chain.close()
