"""Files of this machine or of a mounted network file system, with few system calls.

It never calls fsync: written data survives any process, but not a crash of the machine. Readers detect the resulting
damage by length and checksum.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

_T = TypeVar("_T")
_numbers: Final = itertools.count()


class LocalFile:
    """A new file that grows: readers see the data when `write` returns."""

    def __init__(self, path: str) -> None:
        """Raises FileExistsError, OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = in_directory(path, lambda: os.open(path, flags, 0o644))

    def write(self, data: bytes) -> None:
        """Raises OSError; then an unknown part of the data is in the file."""
        write_all(self._file, data)

    def close(self) -> None:
        """Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def abandon(self) -> None:
        """Closes the incomplete file."""
        self.close()


class LocalFiles:
    """The backend of Storage for local paths; raises OSError, FileNotFoundError for a missing file."""

    can_append: Final = True

    def write_atomically(self, path: str, data: bytes) -> None:
        directory, name = os.path.split(path)
        unique = f"{os.getpid()}-{threading.get_ident()}-{next(_numbers)}"
        temporary = os.path.join(directory, f".{name}.{unique}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = in_directory(path, lambda: os.open(temporary, flags, 0o644))
        try:
            try:
                write_all(file, data)
            finally:
                os.close(file)
            os.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def create(self, path: str) -> LocalFile:
        return LocalFile(path)

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            wanted = max(os.fstat(file).st_size - offset, 0) if length is None else length
            data = os.pread(file, wanted, offset)
            while 0 < len(data) < wanted:
                more = os.pread(file, wanted - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            os.close(file)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified(self, path: str) -> float:
        return os.stat(path).st_mtime

    def sizes(self, directory: str) -> dict[str, int]:
        with os.scandir(directory) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def directories(self, directory: str) -> list[str]:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def delete(self, path: str) -> None:
        os.unlink(path)

    def delete_tree(self, directory: str) -> None:
        while True:
            try:
                return shutil.rmtree(directory)
            except FileNotFoundError:
                # Another process deletes too: continue with what is left.
                if not os.path.lexists(directory):
                    raise

    def delete_if_empty(self, directory: str) -> None:
        try:
            os.rmdir(directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def write_all(file: int, data: bytes) -> None:
    """Writes all of the data to a file descriptor. Raises OSError."""
    written = os.write(file, data)
    if written < len(data):
        rest = memoryview(data)
        while written < len(rest):
            written += os.write(file, rest[written:])


def in_directory(path: str, open_it: Callable[[], _T]) -> _T:
    """Returns the result of `open_it`, after creating the path's directory if it is missing. Raises OSError."""
    try:
        return open_it()
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open_it()
