"""DELTA files: the changes since a FULL file, one chain for each operator.

The task's thread passes changes and requests snapshots; a storage thread writes them in that order. What storage has
not taken yet can be dropped, to bound the memory.
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
"""Bytes that are held back for a file of their own, where files cannot be appended to."""


class _PendingDelta(msgspec.Struct, frozen=True):
    """Messages by operator id, and their bytes."""

    messages: Mapping[str, list[bytes]]
    size: int
    at_once: bool
    """Whether they end a file."""


class DeltaSegment:
    """The changes between two FULL files, or since the last."""

    def __init__(self, storage: Storage, directory: str, name: str) -> None:
        """Writes nothing yet. `name` is how the files' names begin."""
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
        """Bytes of changes."""
        self.files = 0
        """Of an operator, at most."""

    @property
    def is_broken(self) -> bool:
        """Whether something could not be written: what follows in the segment will not be, and no cut is whole."""
        return self._failure is not None

    @property
    def waiting(self) -> int:
        """Bytes that storage has not taken yet."""
        return self.size - self._written

    def abandon(self, reason: CheckpointError) -> None:
        """Nothing of what waits is to be written, and no cut that lies behind it is whole."""
        self._failure = self._failure or reason
        self._unwritten.clear()

    def append(self, io: ThreadPoolExecutor, messages: Mapping[str, list[bytes]], size: int) -> None:
        """Has messages written, by operator id; `size`: their bytes."""
        self.size += size
        self._held_back += size
        at_once = not self._storage.can_append and self._held_back >= _MAX_HELD_BACK_BYTES
        if at_once:
            self._note_cut()
        self._unwritten.append(_PendingDelta(messages, size, at_once))
        io.submit(self._append)

    def cut(self, io: ThreadPoolExecutor) -> Future[Files]:
        """Once it is in storage: the files of all that was appended. Its error: CheckpointError."""
        self._note_cut()
        return io.submit(self._cut)

    def close(self, io: ThreadPoolExecutor) -> None:
        """No more is appended, or cut."""
        io.submit(self._close)

    def _note_cut(self) -> None:
        if self.size > self._cut_at:
            self.files = 1 if self._storage.can_append else self.files + 1
        self._cut_at, self._held_back = self.size, 0

    def _append(self) -> None:
        try:
            changes = self._unwritten.popleft()
        except IndexError:  # given up
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
