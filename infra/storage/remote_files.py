"""Files of any file system that fsspec supports; durability and atomicity depend on that system.

An object store publishes a complete file when it is closed. On other systems an atomic file is renamed when complete.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from contextlib import suppress
from typing import Any, Final

from .file_systems import connect

_SHOWN_WHOLE: Final = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory")
)
"""Protocols of file systems that publish a file when it is closed, and on which renaming is copying."""


class RemoteFile:
    """A new file, published when it is closed."""

    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path
        self._file = _in_directory(system, path)

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

    def abandon(self) -> None:
        """Closes the incomplete file without publishing it."""
        with suppress(Exception):
            self._file.discard()
        with suppress(Exception):
            # Otherwise fsspec would write the buffered data when the object is collected.
            self._file.closed = True
        with suppress(Exception):
            self._system.rm_file(self._path)


class RemoteFiles:
    """The backend of Storage for URLs; raises FileNotFoundError for a missing file, else whatever fsspec raises."""

    can_append: Final = False

    def write_atomically(self, url: str, data: bytes) -> None:
        system, path = _place(url)
        if _protocols(system) & _SHOWN_WHOLE:
            self._write(system, path, data)
            return
        directory, name = posixpath.split(path)
        temporary = posixpath.join(directory, f".{name}.{uuid.uuid4().hex}.tmp")
        try:
            self._write(system, temporary, data)
            self._rename(system, temporary, path)
        except BaseException:
            with suppress(Exception):
                system.rm_file(temporary)
            raise

    def create(self, url: str) -> RemoteFile:
        return RemoteFile(*_place(url))

    def read(self, url: str, offset: int, length: int | None) -> bytes:
        system, path = _place(url)
        if length == 0:
            return b""
        end = None if length is None else offset + length
        data: bytes = system.cat_file(path, start=offset, end=end)
        return data

    def size(self, url: str) -> int:
        system, path = _place(url)
        # Other processes write these files: a cached listing may not contain them.
        system.invalidate_cache(posixpath.dirname(path))
        # Some file systems report no size for a directory.
        return int(system.info(path)["size"] or 0)

    def modified(self, url: str) -> float | None:
        system, path = _place(url)
        try:
            found = system.modified(path)
        except NotImplementedError:
            return None
        return float(found.timestamp())

    def sizes(self, url: str) -> dict[str, int]:
        return {
            posixpath.basename(entry["name"]): int(entry["size"])
            for entry in self._entries(url)
            if entry["type"] == "file"
        }

    def directories(self, url: str) -> list[str]:
        entries = self._entries(url)
        return sorted(
            posixpath.basename(entry["name"].rstrip("/")) for entry in entries if entry["type"] == "directory"
        )

    def delete(self, url: str) -> None:
        system, path = _place(url)
        system.rm_file(path)

    def delete_tree(self, url: str) -> None:
        system, path = _place(url)
        system.invalidate_cache()
        system.rm(path, recursive=True)

    def delete_if_empty(self, url: str) -> None:
        # Object stores have no directories, and some misinterpret `rmdir`.
        if not self._entries(url):
            self.delete_tree(url)

    def _write(self, system: Any, path: str, data: bytes) -> None:
        try:
            system.pipe_file(path, data)
        except FileNotFoundError:
            system.makedirs(posixpath.dirname(path), exist_ok=True)
            system.pipe_file(path, data)

    def _rename(self, system: Any, temporary: str, path: str) -> None:
        try:
            system.mv(temporary, path)
        except Exception:
            # Some do not rename over an existing file, for example one of an earlier attempt.
            if not system.exists(path):
                raise
            system.rm_file(path)
            system.mv(temporary, path)

    def _entries(self, url: str) -> list[dict[str, Any]]:
        system, path = _place(url)
        system.invalidate_cache(path)
        entries: list[dict[str, Any]] = system.ls(path, detail=True)
        return [entry for entry in entries if entry["name"].rstrip("/") != path.rstrip("/")]


def _place(url: str) -> tuple[Any, str]:
    scheme, _, rest = url.partition("://")
    system, _ = connect(f"{scheme}://{rest.partition('/')[0]}")
    return system, os.fspath(system._strip_protocol(url))


def _protocols(system: Any) -> frozenset[str]:
    protocol = system.protocol
    return frozenset((protocol,) if isinstance(protocol, str) else protocol)


def _in_directory(system: Any, path: str) -> Any:
    try:
        return system.open(path, "wb")
    except FileNotFoundError:
        system.makedirs(posixpath.dirname(path), exist_ok=True)
        return system.open(path, "wb")
