"""Messages in a file, in order, that need not be in memory while they wait."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class MessageFile:
    """Objects that are appended, and read in order; also by a forked process, as far as they were appended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        # Without a buffer: a forked process has a copy of it.
        self._file = path.open("wb", buffering=0)

    def append(self, item: Any) -> None:
        """Adds an object. Raises OSError."""
        data = memoryview(pickle.dumps(item))
        while data:
            data = data[self._file.write(data) :]
        self._count += 1

    def __iter__(self) -> Iterator[Any]:
        with self._path.open("rb") as file:
            for _ in range(self._count):
                yield pickle.load(file)

    def clear(self) -> None:
        """Removes the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._count = 0
