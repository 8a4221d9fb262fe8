"""File storage for checkpoints, snapshots and blobs: a base directory, and files by relative paths, absolute paths or
URIs.

A path without a scheme, or with `file:`, is local; fsspec handles any other URI. Errors are one line that names the
URI. A missing file and an unreachable storage are different errors: only the first says anything about the content.
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
    """A file that is written piece by piece. After an error it is closed, and on object stores it is never
    published."""

    def __init__(self, uri: str, open_it: Callable[[], _OpenFile]) -> None:
        self.uri: Final = uri
        self.length = 0
        """Bytes written."""
        self._file = _translate_errors("created", uri, open_it)

    def write(self, data: bytes) -> None:
        """Appends to the file. Raises StorageError; then an unknown part of the data is in the file."""
        _translate_errors("written", self.uri, lambda: self._file.write(data))
        self.length += len(data)

    def close(self) -> None:
        """Closes the file; idempotent. Raises StorageError."""
        _translate_errors("written", self.uri, self._file.close)

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
    """Files below `uri` or at absolute locations. Safe for threads and forked children."""

    def __init__(self, uri: str) -> None:
        self.uri: Final = canonical(uri)

    @classmethod
    def open(cls, uri: str) -> Storage:
        """Returns the storage with this path or URI as its base; it need not exist yet."""
        return cls(uri)

    @property
    def can_append(self) -> bool:
        """Whether readers see the data of a new file before the file is closed."""
        return _file_system_for(self.uri).can_append

    @property
    def is_local(self) -> bool:
        """Whether the base is on this machine's file system, or mounted in it."""
        return _is_local(self.uri)

    def absolute(self, path: str) -> str:
        """Returns the absolute path or URI of a file."""
        if path.startswith("/") or _scheme(path) is not None:
            return canonical(path)
        return posixpath.join(self.uri, path) if path else self.uri

    def relative(self, path: str) -> str:
        """Returns the path relative to the base if it is below the base."""
        whole, base = self.absolute(path), self.uri.rstrip("/") + "/"
        return whole[len(base) :] if whole.startswith(base) else whole

    def write_atomically(self, path: str, data: bytes) -> None:
        """Writes a file atomically; replaces an existing one. Raises StorageError."""
        uri = self.absolute(path)
        _translate_errors("written", uri, lambda: _file_system_for(uri).write_atomically(uri, data))

    def create(self, path: str) -> NewFile:
        """Creates a file to write piece by piece; if `can_append`, readers see each piece at once.

        Raises StorageError; if `can_append`, also for an existing file.
        """
        uri = self.absolute(path)
        return NewFile(uri, lambda: _file_system_for(uri).create(uri))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Reads a file from `offset` on; returns fewer than `length` bytes at its end.

        Raises MissingFile, StorageError.
        """
        uri = self.absolute(path)
        return _translate_errors("read", uri, lambda: _file_system_for(uri).read(uri, offset, length))

    def size(self, path: str) -> int | None:
        """Returns the bytes of a file; None if it does not exist. Raises StorageError."""
        uri = self.absolute(path)
        try:
            return _translate_errors("looked at", uri, lambda: _file_system_for(uri).size(uri))
        except MissingFile:
            return None

    def modified(self, path: str) -> float | None:
        """Returns the time of a file's last write, in seconds since the epoch; None if it does not exist or the time is
        unknown.

        Raises StorageError.
        """
        uri = self.absolute(path)
        try:
            return _translate_errors("looked at", uri, lambda: _file_system_for(uri).modified(uri))
        except MissingFile:
            return None

    def exists(self, path: str) -> bool:
        """Returns whether the file or directory exists. Raises StorageError."""
        return self.size(path) is not None

    def sizes(self, directory: str = "") -> dict[str, int]:
        """Returns name -> bytes of the files directly in a directory; empty if it does not exist. Raises
        StorageError."""
        uri = self.absolute(directory)
        try:
            return _translate_errors("listed", uri, lambda: _file_system_for(uri).sizes(uri))
        except MissingFile:
            return {}

    def directories(self, directory: str = "") -> list[str]:
        """Returns the names of the directories directly in a directory, sorted. Raises StorageError."""
        uri = self.absolute(directory)
        try:
            return _translate_errors("listed", uri, lambda: _file_system_for(uri).directories(uri))
        except MissingFile:
            return []

    def delete(self, path: str) -> None:
        """Deletes a file if it exists. Raises StorageError."""
        uri = self.absolute(path)
        try:
            _translate_errors("deleted", uri, lambda: _file_system_for(uri).delete(uri))
        except MissingFile:
            return

    def delete_tree(self, directory: str) -> None:
        """Deletes a directory tree if it exists. Raises StorageError."""
        uri = self.absolute(directory)
        try:
            _translate_errors("deleted", uri, lambda: _file_system_for(uri).delete_tree(uri))
        except MissingFile:
            return

    def delete_if_empty(self, directory: str) -> None:
        """Deletes a directory if it exists and is empty. Raises StorageError."""
        uri = self.absolute(directory)
        try:
            _translate_errors("deleted", uri, lambda: _file_system_for(uri).delete_if_empty(uri))
        except MissingFile:
            return


@functools.lru_cache(maxsize=1 << 12)
def canonical(uri: str) -> str:
    """Returns the canonical form of a location: an absolute local path, else a URL without a trailing slash."""
    scheme = _scheme(uri)
    if scheme is None:
        return os.path.abspath(uri)
    rest = uri[len(scheme) + 1 :]
    if scheme == "file":
        # The path may follow an empty authority, as in file:///data, or directly.
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


def _translate_errors(what: str, uri: str, act: Callable[[], _T]) -> _T:
    try:
        return act()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFile(f"{uri} does not exist") from error
    except Exception as error:  # whatever a client of a file system may raise
        raise StorageError(f"{uri} could not be {what}: {in_short(error)}") from error
