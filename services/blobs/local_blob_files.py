"""Blobs in a local directory: of a BlobServer, of a BlobCache, or of mounted shared storage.

    incoming/temp-...          being written; locked while its writer lives
    job_<id>/blob_p-<SHA-256>  owned by a job; t- for transient blobs
    no_job/blob_p-<SHA-256>    owned by no job

A file gets its name when it is complete and its digest is right: no reader sees a partial file. A writer that is killed
leaves only an unlocked temporary file, which the next process deletes. Several processes may share a directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from .errors import BlobRefused
from .keys import BlobKey, compute_file_digest

_JOB = "job_"
_NO_JOB = "no_job"
_INCOMING = "incoming"
_PERMANENT, _TRANSIENT = "blob_p-", "blob_t-"


class Incoming:
    """A file that is being written: published under a key or, when its context is left, gone."""

    def __init__(self, directory: Path, publish_to: BlobFiles) -> None:
        """Raises OSError."""
        self._files = publish_to
        self._path: Path | None
        self._digest = hashlib.sha256()
        self.size = 0
        """Bytes so far."""
        descriptor, self._path = _create_locked_file(directory)
        self._file: Final = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, data: bytes | memoryview) -> None:
        """Adds to the file. Raises OSError."""
        rest = memoryview(data)
        self._digest.update(rest)
        self.size += len(rest)
        while rest:
            rest = rest[self._file.write(rest) :]

    def publish(self, key: BlobKey, size: int | None = None) -> Path:
        """Gives the file its name, in place of one that has it. Raises BlobRefused for other content, OSError."""
        assert self._path is not None
        if size is not None and self.size != size:
            raise BlobRefused(f"{key} has {self.size:,} bytes here, where {size:,} were announced")
        if (found := self._digest.hexdigest()) != key.digest:
            raise BlobRefused(f"{key} has other content: the SHA-256 of what came is {found}")
        published = self._files.move_in(self._file.fileno(), self._path, key)
        self._path = None
        return published

    def __enter__(self) -> Incoming:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
        with suppress(OSError):
            self._file.close()


class BlobFiles:
    """The blobs below a directory. For any number of threads and processes."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        """`durable`: what is published survives a crash of the machine. Raises OSError."""
        self.directory: Final = directory
        self._durable = durable
        self._checked: dict[BlobKey, tuple[int, int, int]] = {}
        self._lock = threading.Lock()
        self._incoming = directory / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned()

    def incoming(self) -> Incoming:
        """A new file. Raises OSError."""
        self._incoming.mkdir(parents=True, exist_ok=True)
        return Incoming(self._incoming, self)

    def path(self, key: BlobKey) -> Path:
        """Where the blob is, or would be."""
        name = f"{_TRANSIENT if key.transient else _PERMANENT}{key.digest}"
        return self._scope(key.job_id) / name

    def find(self, key: BlobKey) -> Path | None:
        """The file of a blob whose content was checked; None where there is none. One with other content is removed.

        The content is read once in a process for as long as nobody touches the file. Raises OSError.
        """
        path = self.path(key)
        try:
            seen = _mark(path)
            if self._checked.get(key) == seen:
                return path
            if compute_file_digest(str(path))[0] == key.digest:
                self._mark_checked(key, seen)
                return path
        except FileNotFoundError:
            return None
        self.delete(key)
        return None

    def touch(self, key: BlobKey) -> bool:
        """Says that a blob is still wanted: whether it is there."""
        path = self.path(key)
        try:
            os.utime(path)
            if key in self._checked:
                self._mark_checked(key, _mark(path))
        except OSError:
            return False
        return True

    def move_in(self, file: int, path: Path, key: BlobKey) -> Path:
        """Gives a checked temporary file its name; for Incoming. Raises OSError."""
        if self._durable:
            os.fsync(file)
        target = self.path(key)
        while True:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.replace(path, target)
                break
            except FileNotFoundError:
                # Somebody has removed the job's directory just now; a file that is gone itself is an error.
                if not path.exists():
                    raise
        if self._durable:
            _sync(target.parent)
            _sync(self.directory)
        with suppress(FileNotFoundError):
            self._mark_checked(key, _mark(target))
        return target

    def delete(self, key: BlobKey) -> bool:
        """Whether it was there. Raises OSError."""
        with self._lock:
            self._checked.pop(key, None)
        try:
            self.path(key).unlink()
        except FileNotFoundError:
            return False
        with suppress(OSError):
            self._scope(key.job_id).rmdir()
        return True

    def delete_job(self, job_id: str) -> None:
        """Deletes all that a job owns. Raises OSError."""
        with self._lock:
            self._checked = {key: seen for key, seen in self._checked.items() if key.job_id != job_id}
        with suppress(FileNotFoundError):
            shutil.rmtree(self._scope(job_id))

    def jobs(self) -> dict[str, float]:
        """Jobs that own blobs -> when one of those was last written or wanted, in seconds since the epoch."""
        found = {}
        for directory in self.directory.glob(f"{_JOB}*"):
            times = [each.stat.st_mtime for each in _entries(directory)]
            with suppress(OSError):
                found[directory.name.removeprefix(_JOB)] = max(times, default=directory.stat().st_mtime)
        return found

    def entries(self) -> Iterator[Entry]:
        """Every blob, in no order; what vanishes meanwhile is passed over."""
        for directory in (*self.directory.glob(f"{_JOB}*"), self.directory / _NO_JOB):
            yield from _entries(directory)

    def delete_older(self, seconds: float, *, transient: bool) -> None:
        """Deletes the blobs of a kind, whatever their job, that nobody has wanted for so long. Raises OSError."""
        before = time.time() - seconds
        for each in self.entries():
            if each.key.transient is transient and each.stat.st_mtime < before:
                self.delete(each.key)

    def _scope(self, job_id: str | None) -> Path:
        return self.directory / (_NO_JOB if job_id is None else f"{_JOB}{job_id}")

    def _mark_checked(self, key: BlobKey, seen: tuple[int, int, int]) -> None:
        with self._lock:
            self._checked[key] = seen

    def _remove_abandoned(self) -> None:
        for each in self._incoming.iterdir():
            with suppress(OSError):
                descriptor = os.open(each, os.O_RDWR)
                try:
                    # One that is locked is still being written, by another process or thread.
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    each.unlink()
                finally:
                    os.close(descriptor)


class Entry:
    """One blob's file as a listing finds it."""

    __slots__ = ("key", "stat")

    def __init__(self, key: BlobKey, stat: os.stat_result) -> None:
        self.key = key
        self.stat = stat


def _create_locked_file(directory: Path) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix="temp-", dir=directory)
        path = Path(name)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return descriptor, path
        # A process that started just then took it for abandoned.
        os.close(descriptor)


def _entries(directory: Path) -> Iterator[Entry]:
    job_id = directory.name.removeprefix(_JOB) if directory.name.startswith(_JOB) else None
    try:
        files = list(os.scandir(directory))
    except OSError:
        return
    for each in files:
        transient = each.name.startswith(_TRANSIENT)
        if transient or each.name.startswith(_PERMANENT):
            with suppress(OSError, ValueError):
                yield Entry(BlobKey(each.name[len(_PERMANENT) :], job_id, transient), each.stat())


def _mark(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
