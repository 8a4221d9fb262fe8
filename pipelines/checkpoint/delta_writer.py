"""The changes of one owner's state between checkpoints: a chain of files, oldest first, which each checkpoint lists.

If storage can append to files, the chain is one growing file, and each checkpoint lists a longer prefix of it.
Otherwise each checkpoint adds a file.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable
from typing import Final

from ...infra.storage.storage import Storage
from ...schemas.types import StateFile
from .state_files import GrowingFile, Sections


class DeltaWriter:
    """The chain of one operator of one attempt. For one thread at a time."""

    def __init__(self, storage: Storage, directory: str, name: str, key: str) -> None:
        """Writes nothing yet. File names begin with `name` and end with a part that makes them unique."""
        self._storage = storage
        self._path: Final = posixpath.join(directory, f"{name}-{uuid.uuid4().hex[:12]}")
        self._key = key
        self._growing: GrowingFile | None = None
        self._files: list[StateFile] = []
        self._waiting: list[bytes] = []
        self.length = 0
        """Bytes of all messages so far."""

    def append(self, messages: Iterable[bytes]) -> None:
        """Adds messages; the next `cut` writes them at the latest. After a StorageError, start another chain."""
        new = [bytes(message) for message in messages]
        if not new:
            return
        self.length += sum(map(len, new))
        if not self._storage.can_append:
            self._waiting += new
            return
        if self._growing is None:
            self._growing = GrowingFile(self._storage, self._path, self._key)
        self._growing.append(new)

    def cut(self) -> tuple[StateFile, ...]:
        """Returns the files of all messages so far, which are in storage now; empty if there are none. Raises
        StorageError."""
        if self._growing is not None:
            return (self._growing.cut(),)
        if self._waiting:
            with Sections(self._storage, f"{self._path}-{len(self._files)}") as file:
                cut = file.add(self._key, self._waiting)
            self._files.append(cut)
            self._waiting = []
        return tuple(self._files)

    def close(self) -> None:
        """Closes the chain. Messages since the last cut may be lost. Raises StorageError."""
        if self._growing is not None:
            self._growing.close()
