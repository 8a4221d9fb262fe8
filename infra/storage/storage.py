"""Storage of checkpoints: a base directory, and files by paths relative to it or by paths and URIs of their own.

A path without a scheme, or with `file:`, is of this machine's file system; any other URI is reached through fsspec.
Errors are one line that names the URI: a file that is missing is told from storage that can't be reached, since only
the first says something about what is stored.
"""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, TypeVar

from .errors import MissingFile, StorageError
from .file_systems import in_short
from .local_files import LocalFiles
from .remote_files import RemoteFiles

_T = TypeVar("_T")


class _OpenFile(Protocol):
    def write(self, data: bytes, /) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class NewFile:
    """A file that is written piece by piece. Left by an error, it is closed, and on object stores never appears."""

    def __init__(self, uri: str, open_it: Callable[[], _OpenFile]) -> None:
        self.uri: Final = uri
        self.length = 0
        """Bytes written."""
        self._file = _told("created", uri, open_it)

    def write(self, data: bytes) -> None:
        """Adds to the file. Raises StorageError; how much of the data is in the file is not known then."""
        _told("written", self.uri, lambda: self._file.write(data))
        self.length += len(data)

    def close(self) -> None:
        """Ends the file; a second time does nothing. Raises StorageError."""
        _told("written", self.uri, self._file.close)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with suppress(Exception):
                self._file.abandon()


class Storage:
    """Files below `uri` or anywhere else. For any number of threads and forked children."""

    def __init__(self, uri: str) -> None:
        self.uri: Final = canonical(uri)

    @classmethod
    def open(cls, uri: str) -> Storage:
        """The storage whose base a path or URI is; nothing has to be there yet."""
        return cls(uri)

    @property
    def can_append(self) -> bool:
        """Whether what is written to a new file below the base is seen before the file is closed."""
        return _file_system_for(self.uri).can_append

    @property
    def is_local(self) -> bool:
        """Whether the base is of this machine's file system, or mounted in it."""
        return _is_local(self.uri)

    def absolute(self, path: str) -> str:
        """The path or URI of a file, from one relative to the base or already absolute."""
        if path.startswith("/") or _scheme(path) is not None:
            return canonical(path)
        return posixpath.join(self.uri, path) if path else self.uri

    def relative(self, path: str) -> str:
        """The reverse: relative to the base where it lies below that."""
        whole, base = self.absolute(path), self.uri.rstrip("/") + "/"
        return whole[len(base) :] if whole.startswith(base) else whole

    def write_atomically(self, path: str, data: bytes) -> None:
        """Writes a file that is there whole or not at all, in place of one of its name. Raises StorageError."""
        uri = self.absolute(path)
        _told("written", uri, lambda: _file_system_for(uri).write_atomically(uri, data))

    def create(self, path: str) -> NewFile:
        """A new file, to be written piece by piece; where `can_append`, readers see each piece at once.

        Raises StorageError, where `can_append` also if there is a file of that name.
        """
        uri = self.absolute(path)
        return NewFile(uri, lambda: _file_system_for(uri).create(uri))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file from `offset` on; fewer than `length` where it ends before.

        Raises MissingFile, StorageError.
        """
        uri = self.absolute(path)
        return _told("read", uri, lambda: _file_system_for(uri).read(uri, offset, length))

    def size(self, path: str) -> int | None:
        """Bytes of a file; None where there is none. Raises StorageError."""
        uri = self.absolute(path)
        try:
            return _told("looked at", uri, lambda: _file_system_for(uri).size(uri))
        except MissingFile:
            return None

    def modified(self, path: str) -> float | None:
        """When a file was last written, in seconds since the epoch; None where there is none, or nobody knows.

        Raises StorageError.
        """
        uri = self.absolute(path)
        try:
            return _told("looked at", uri, lambda: _file_system_for(uri).modified(uri))
        except MissingFile:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory. Raises StorageError."""
        return self.size(path) is not None

    def sizes(self, directory: str = "") -> dict[str, int]:
        """Name -> bytes of the files directly in a directory; nothing where there is none. Raises StorageError."""
        uri = self.absolute(directory)
        try:
            return _told("listed", uri, lambda: _file_system_for(uri).sizes(uri))
        except MissingFile:
            return {}

    def directories(self, directory: str = "") -> list[str]:
        """Names of the directories directly in a directory, sorted. Raises StorageError."""
        uri = self.absolute(directory)
        try:
            return _told("listed", uri, lambda: _file_system_for(uri).directories(uri))
        except MissingFile:
            return []

    def delete(self, path: str) -> None:
        """Deletes a file, if it is there. Raises StorageError."""
        uri = self.absolute(path)
        try:
            _told("deleted", uri, lambda: _file_system_for(uri).delete(uri))
        except MissingFile:
            return

    def delete_tree(self, directory: str) -> None:
        """Deletes a directory with all that is below it, if it is there. Raises StorageError."""
        uri = self.absolute(directory)
        try:
            _told("deleted", uri, lambda: _file_system_for(uri).delete_tree(uri))
        except MissingFile:
            return

    def delete_if_empty(self, directory: str) -> None:
        """Deletes a directory, if it is there and nothing is in it. Raises StorageError."""
        uri = self.absolute(directory)
        try:
            _told("deleted", uri, lambda: _file_system_for(uri).delete_if_empty(uri))
        except MissingFile:
            return


@functools.lru_cache(maxsize=1 << 12)
def canonical(uri: str) -> str:
    """One form for each place: an absolute path on this machine, else a URL without a slash at its end."""
    scheme = _scheme(uri)
    if scheme is None:
        return os.path.abspath(uri)
    rest = uri[len(scheme) + 1 :]
    if scheme == "file":
        # The path may follow after an empty authority, as in file:///data, or at once.
        return os.path.abspath(rest[2:] if rest.startswith("//") else rest)
    authority, _, path = rest.removeprefix("//").partition("/")
    normal = posixpath.normpath(path) if path.strip("/") else ""
    return f"{scheme}://{authority}/{normal.lstrip('/')}" if normal else f"{scheme}://{authority}"


def _scheme(uri: str) -> str | None:
    if uri.startswith("file:"):
        return "file"
    scheme, mark, _ = uri.partition("://")
    return scheme if mark and "/" not in scheme else None


_LOCAL: Final = LocalFiles()
_REMOTE: Final = RemoteFiles()


def _is_local(uri: str) -> bool:
    return uri.startswith("/")


def _file_system_for(uri: str) -> LocalFiles | RemoteFiles:
    return _LOCAL if _is_local(uri) else _REMOTE


def _told(what: str, uri: str, act: Callable[[], _T]) -> _T:
    try:
        return act()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFile(f"{uri} is not there") from error
    except Exception as error:  # whatever a client of a file system may raise
        raise StorageError(f"{uri} could not be {what}: {in_short(error)}") from error
