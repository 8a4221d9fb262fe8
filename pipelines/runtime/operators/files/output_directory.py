"""How a file appears: written in a directory of its attempt, brought to the disk, then moved out, at once and whole.

A transaction's commit does not keep a task from being stopped before it shows what was committed, and from going on
when others have long taken its place. Hence a fence like the producer's epoch, of three rules:

1. Each attempt writes in a directory that it makes when it begins, and moves files out of that one alone.
2. Then it removes those of older attempts. What one of these moves, it has moved before that, or never: its successor
   knows what is there.
3. It shows nothing before it has committed a transaction since. Whoever had a successor by then learns of it there;
   whoever gets one later has a directory that is found.

Names beginning with a dot are not seen by readers (storage.py).
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
    """The directory of this attempt is gone: a newer one has begun."""


class OutputDirectory(Protocol):
    """Where files are published. All raise OSError."""

    def begin(self, beginning: str, generation: int, attempt: int) -> None:
        """Makes the directory if need be, and ends older attempts at files whose names begin so."""

    def publish(self, name: str, write: Write) -> None:
        """Has a file written and shows it; does nothing where it is there already. Raises Superseded."""

    def names(self, beginning: str) -> list[str]:
        """Of the files that are shown whose names begin so."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""

    def close(self) -> None:
        """Nothing more is published."""


def create_output_directory(path: str) -> OutputDirectory:
    """The directory that a path or URL names. Raises TaskError."""
    storage = open_source_storage(path)
    inner = storage.inside(path)
    if isinstance(storage.system, fs.LocalFileSystem):
        return LocalOutputDirectory(Path(inner))
    return RemoteOutputDirectory(storage.system, inner)


class LocalOutputDirectory:
    """On a file system of this machine, whose rename is atomic."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: Path | None = None

    def begin(self, beginning: str, generation: int, attempt: int) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        self._own = self._path / _own_name(beginning, generation, attempt)
        self._own.mkdir()
        for name in os.listdir(self._path):
            if name != self._own.name and _is_older(name, beginning, generation, attempt):
                self._end(self._path / name)

    def publish(self, name: str, write: Write) -> None:
        final, own = self._path / name, self._own
        assert own is not None
        if final.exists():
            return
        temporary = own / name
        try:
            with temporary.open("wb") as out:
                write(out)
                out.flush()
                os.fsync(out.fileno())
            temporary.rename(final)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink()
            if isinstance(error, FileNotFoundError) and not own.exists():
                raise AttemptSuperseded(own.name) from error
            raise
        self._keep_name()

    def names(self, beginning: str) -> list[str]:
        return [name for name in os.listdir(self._path) if name.startswith(beginning)]

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def close(self) -> None:
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def _end(self, other: Path) -> None:
        with suppress(FileNotFoundError):
            if not other.name.endswith(_ENDED):
                # At once, so that nothing is made in it while it is removed.
                other = other.rename(other.with_name(other.name + _ENDED))
            shutil.rmtree(other)

    def _keep_name(self) -> None:
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class RemoteOutputDirectory:
    """On a file system that fsspec reaches; how durable and atomic its writes and moves are is its own.

    Where there are no directories but in names, an attempt's is there as long as a file in it that says whose it is.
    Where a move is a copy, one that is under way when a successor begins may still be shown by the store.
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

    def publish(self, name: str, write: Write) -> None:
        final, own = f"{self._path}/{name}", self._own
        assert own is not None
        if self._is_there(final):
            return
        temporary = f"{own}/{name}"
        try:
            with self._system.open_output_stream(temporary) as out:
                write(out)
            if not self._is_there(f"{own}/{_OWNER}"):
                raise FileNotFoundError(own)
            self._system.move(temporary, final)
        except FileNotFoundError as error:
            if self._is_there(f"{own}/{_OWNER}"):
                raise
            self.close()  # writing may have made it again
            raise AttemptSuperseded(own) from error

    def names(self, beginning: str) -> list[str]:
        found = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return [info.base_name for info in found if info.base_name.startswith(beginning)]

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
    # An attempt may run again under its number, in a TaskExecutor that was started again.
    return f".{beginning}{generation}.{attempt}.{secrets.token_hex(4)}"


def _is_older(name: str, beginning: str, generation: int, attempt: int) -> bool:
    """Whether a name is that of an attempt's directory, at the same files, and not of a newer attempt."""
    prefix = f".{beginning}"
    found = _NAME.fullmatch(name[len(prefix) :]) if name.startswith(prefix) else None
    return found is not None and (int(found[1]), int(found[2])) <= (generation, attempt)
