"""How a file appears: under a temporary name, brought to the disk, then under its own name, at once and whole.

Names beginning with a dot are not seen by readers (storage.py), and what is left of them by a crash is removed when
the same writer begins again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from pyarrow import fs

from .storage import storage_of

Write = Callable[[BinaryIO], None]


class Directory(Protocol):
    """Where files are published. All raise OSError."""

    def prepare(self, beginning: str) -> None:
        """Makes the directory if need be, and removes temporaries of files whose names begin so."""

    def publish(self, name: str, write: Write, attempt: int) -> None:
        """Has a file written and shows it; does nothing where it is there already."""

    def names(self, beginning: str) -> list[str]:
        """Of the files that are shown whose names begin so."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""


def directory_of(path: str) -> Directory:
    """The directory that a path or URL names. Raises TaskError."""
    storage = storage_of(path)
    inner = storage.inside(path)
    if isinstance(storage.system, fs.LocalFileSystem):
        return LocalDirectory(Path(inner))
    return RemoteDirectory(storage.system, inner)


class LocalDirectory:
    """On a file system of this machine, whose rename is atomic."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self, beginning: str) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        for each in self._path.glob(f".{beginning}*.tmp"):
            each.unlink(missing_ok=True)

    def publish(self, name: str, write: Write, attempt: int) -> None:
        final = self._path / name
        if final.exists():
            return
        temporary = self._path / _temporary(name, attempt)
        try:
            with temporary.open("wb") as out:
                write(out)
                out.flush()
                os.fsync(out.fileno())
            temporary.rename(final)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        self._keep_name()

    def names(self, beginning: str) -> list[str]:
        return [name for name in os.listdir(self._path) if name.startswith(beginning)]

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def _keep_name(self) -> None:
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class RemoteDirectory:
    """On a file system that fsspec reaches; how durable and atomic its writes and moves are is its own."""

    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path.rstrip("/")

    def prepare(self, beginning: str) -> None:
        self._system.create_dir(self._path, recursive=True)
        for info in self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True)):
            if info.base_name.startswith(f".{beginning}") and info.base_name.endswith(".tmp"):
                self._system.delete_file(info.path)

    def publish(self, name: str, write: Write, attempt: int) -> None:
        final = f"{self._path}/{name}"
        if self._system.get_file_info(final).type is fs.FileType.File:
            return
        temporary = f"{self._path}/{_temporary(name, attempt)}"
        with self._system.open_output_stream(temporary) as out:
            write(out)
        self._system.move(temporary, final)

    def names(self, beginning: str) -> list[str]:
        found = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return [info.base_name for info in found if info.base_name.startswith(beginning)]

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_file(f"{self._path}/{name}")


def _temporary(name: str, attempt: int) -> str:
    # An attempt that has been superseded may still live: each has a name of its own.
    return f".{name}.{attempt}.tmp"
