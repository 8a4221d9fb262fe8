"""Publishes files atomically: a file is written in the directory of its attempt, flushed to the disk, then moved out
as a whole.

A task may be stopped between the commit of a transaction and the publication of its files, and may resume after its
successor has run. Therefore a fence like the producer's epoch, with three rules:

1. Each attempt writes in a directory that it creates when it begins, and moves files out of that directory only.
2. Then it removes the directories of older attempts. An older attempt moves a file before that, or never: the new
   attempt sees all published files.
3. An attempt publishes a file only after its next commit. If a newer attempt exists by then, the commit is fenced. If
   one starts later, it finds this attempt's directory.

Readers ignore names that begin with a dot (source_storage.py).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from pyarrow import fs

from .source_storage import open_source_storage

Write = Callable[[BinaryIO], None]

_ENDED: Final = ".ended"
_NAME: Final = re.compile(r"(\d+)\.(\d+)\.[0-9a-f]+(" + re.escape(_ENDED) + ")?")
_OWNER: Final = "owner"


class AttemptSuperseded(OSError):
    """The directory of this attempt is gone: a newer attempt has begun."""


class OutputDirectory(Protocol):
    """The directory that files are published in. All methods raise OSError."""

    def begin(self, beginning: str, generation: int, attempt: int) -> None:
        """Creates the directory if necessary, and fences older attempts for files whose names begin with
        `beginning`."""

    def publish(self, name: str, write: Write, *, replaces: bool = False) -> None:
        """Writes a file and publishes it. The name may have directories, which are created. If it is already published,
        replaces it or does nothing. Raises AttemptSuperseded."""

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it does not exist."""

    def names(self, beginning: str) -> list[str]:
        """Returns the relative paths of published files whose names begin with `beginning`."""

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""

    def close(self) -> None:
        """Ends the publication."""


def create_output_directory(path: str) -> OutputDirectory:
    """Returns the directory of a path or URL. Raises TaskError."""
    storage = open_source_storage(path)
    inner = storage.inside(path)
    if isinstance(storage.system, fs.LocalFileSystem):
        return LocalOutputDirectory(Path(inner))
    return RemoteOutputDirectory(storage.system, inner)


class LocalOutputDirectory:
    """A directory on a local file system, whose rename is atomic."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: Path | None = None
        self._kept: set[Path] = set()
        """Directories that are on the disk."""

    def begin(self, beginning: str, generation: int, attempt: int) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        self._own = self._path / _own_name(beginning, generation, attempt)
        self._own.mkdir()
        for name in os.listdir(self._path):
            if name != self._own.name and _is_older(name, beginning, generation, attempt):
                self._end(self._path / name)

    def publish(self, name: str, write: Write, *, replaces: bool = False) -> None:
        final, own = self._path / name, self._own
        assert own is not None
        if not replaces and final.exists():
            return
        temporary = own / final.name
        try:
            with temporary.open("wb") as out:
                write(out)
                out.flush()
                os.fsync(out.fileno())
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary.rename(final)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink()
            if isinstance(error, FileNotFoundError) and not own.exists():
                raise AttemptSuperseded(own.name) from error
            raise
        self._keep_names(final.parent)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, beginning: str) -> list[str]:
        found = []
        for directory, directories, names in os.walk(self._path):
            directories[:] = [name for name in directories if not name.startswith(".")]
            below = Path(directory).relative_to(self._path)
            found += [str(below / name) for name in names if name.startswith(beginning)]
        return found

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def close(self) -> None:
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def _end(self, other: Path) -> None:
        with suppress(FileNotFoundError):
            if not other.name.endswith(_ENDED):
                # Renamed first, so that no file is created in it while it is removed.
                other = other.rename(other.with_name(other.name + _ENDED))
            shutil.rmtree(other)

    def _keep_names(self, directory: Path) -> None:
        """Flushes the directory of a new file, and those above it if they may be new."""
        while True:
            opened = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
            if directory == self._path or directory in self._kept:
                return
            self._kept.add(directory)
            directory = directory.parent


class RemoteOutputDirectory:
    """A directory on a file system that fsspec supports. Its writes and moves are as durable and atomic as that file
    system makes them.

    If directories exist in names only, the directory of an attempt exists as long as a marker file in it. If a move is
    a copy, a store may still publish a copy that was under way when a successor began.
    """

    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path.rstrip("/")
        self._own: str | None = None

    def begin(self, beginning: str, generation: int, attempt: int) -> None:
        name = _own_name(beginning, generation, attempt)
        self._own = f"{self._path}/{name}"
        self._system.create_dir(self._own, recursive=True)
        with self._system.open_output_stream(f"{self._own}/{_OWNER}") as out:
            out.write(name.encode())
        for info in self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True)):
            if info.base_name != name and _is_older(info.base_name, beginning, generation, attempt):
                with suppress(FileNotFoundError):
                    self._system.delete_dir(info.path)

    def publish(self, name: str, write: Write, *, replaces: bool = False) -> None:
        final, own = f"{self._path}/{name}", self._own
        assert own is not None
        if self._is_there(final):
            if not replaces:
                return
        elif "/" in name:
            self._system.create_dir(final.rpartition("/")[0], recursive=True)
        temporary = f"{own}/{name.rpartition('/')[2]}"
        try:
            with self._system.open_output_stream(temporary) as out:
                write(out)
            if not self._is_there(f"{own}/{_OWNER}"):
                raise FileNotFoundError(own)
            self._system.move(temporary, final)
        except FileNotFoundError as error:
            if self._is_there(f"{own}/{_OWNER}"):
                raise
            self.close()  # a write may have created it again
            raise AttemptSuperseded(own) from error

    def read(self, name: str) -> bytes | None:
        try:
            with self._system.open_input_file(f"{self._path}/{name}") as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None

    def names(self, beginning: str) -> list[str]:
        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=True)
        found = [
            info.path[len(self._path) :].lstrip("/")
            for info in self._system.get_file_info(selector)
            if info.type is fs.FileType.File and info.base_name.startswith(beginning)
        ]
        return [name for name in found if not any(part.startswith(".") for part in name.split("/")[:-1])]

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_file(f"{self._path}/{name}")

    def close(self) -> None:
        if self._own is not None:
            with suppress(OSError):
                self._system.delete_dir(self._own)

    def _is_there(self, path: str) -> bool:
        return bool(self._system.get_file_info(path).type is fs.FileType.File)


def _own_name(beginning: str, generation: int, attempt: int) -> str:
    # A restarted TaskExecutor may run an attempt again under its number.
    return f".{beginning}{generation}.{attempt}.{secrets.token_hex(4)}"


def _is_older(name: str, beginning: str, generation: int, attempt: int) -> bool:
    """Whether a name is the directory of another attempt for the same files, but not of a newer one."""
    prefix = f".{beginning}"
    found = _NAME.fullmatch(name[len(prefix) :]) if name.startswith(prefix) else None
    return found is not None and (int(found[1]), int(found[2])) <= (generation, attempt)
