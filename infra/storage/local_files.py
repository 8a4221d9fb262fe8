"""Files of this machine, or of a network file system that is mounted on it: few system calls, no layers between.

Nothing is brought to the disk by force (fsync): what is written survives any process, but not the machine. What a
machine's crash tears is found by length and checksum.
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
    """A new file that grows: all that `write` took is seen by readers when it returns."""

    def __init__(self, path: str) -> None:
        """Raises FileExistsError, OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = in_directory(path, lambda: os.open(path, flags, 0o644))

    def write(self, data: bytes) -> None:
        """Raises OSError; how much of the data is in the file is not known then."""
        write_all(self._file, data)

    def close(self) -> None:
        """A second time does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def abandon(self) -> None:
        """Ends it before it is whole."""
        self.close()


class LocalFiles:
    """The backend of Storage for paths of this machine; raises OSError, FileNotFoundError where a file is missing."""

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
                # Somebody else deletes too: what is left is still to go.
                if not os.path.lexists(directory):
                    raise

    def delete_if_empty(self, directory: str) -> None:
        try:
            os.rmdir(directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def write_all(file: int, data: bytes) -> None:
    """All of the data to a file descriptor. Raises OSError."""
    written = os.write(file, data)
    if written < len(data):
        rest = memoryview(data)
        while written < len(rest):
            written += os.write(file, rest[written:])


def in_directory(path: str, open_it: Callable[[], _T]) -> _T:
    """What `open_it` gives, after the path's directory was made if that was missing. Raises OSError."""
    try:
        return open_it()
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open_it()
