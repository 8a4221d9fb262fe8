"""Blobs in a local directory: of a BlobServer, a BlobCache, or mounted storage.

    incoming/temp-...          an unfinished file; locked for as long as its writer lives
    job_<id>/blob_p-<SHA-256>  a blob of a job

A file gets its final name when it is complete and its digest is verified: readers never see a partial file. A killed
writer leaves an unlocked temporary file only, which the next process deletes. Several processes may share a directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from .errors import BlobRefused
from .keys import BlobKey, compute_file_digest

_JOB = "job_"
_INCOMING = "incoming"
_BLOB = "blob_p-"


class Incoming:
    """An unfinished file: published under a key, or deleted when its context ends."""

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
        """Appends to the file. Raises OSError."""
        rest = memoryview(data)
        self._digest.update(rest)
        self.size += len(rest)
        while rest:
            rest = rest[self._file.write(rest) :]

    def publish(self, key: BlobKey, size: int | None = None) -> Path:
        """Gives the file its final name and replaces an existing one. Raises BlobRefused for wrong content, OSError."""
        assert self._path is not None
        if size is not None and self.size != size:
            raise BlobRefused(f"{key} has {self.size:,} bytes here, but {size:,} were announced")
        if (found := self._digest.hexdigest()) != key.digest:
            raise BlobRefused(f"{key} has other content: the SHA-256 of the received bytes is {found}")
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
    """The blobs below a directory. Safe for threads and processes."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        """`durable`: published blobs survive a crash of the machine. Raises OSError."""
        self.directory: Final = directory
        self._durable = durable
        self._checked: dict[BlobKey, tuple[int, int, int]] = {}
        self._lock = threading.Lock()
        self._incoming = directory / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned()

    def incoming(self) -> Incoming:
        """Creates an unfinished file. Raises OSError."""
        self._incoming.mkdir(parents=True, exist_ok=True)
        return Incoming(self._incoming, self)

    def path(self, key: BlobKey) -> Path:
        """Returns the path of the blob, whether it exists or not."""
        return self._scope(key.job_id) / f"{_BLOB}{key.digest}"

    def find(self, key: BlobKey) -> Path | None:
        """Returns the file of a blob with verified content; None if there is none. A file with wrong content is
        deleted.

        A process verifies the content once, as long as the file does not change. Raises OSError.
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
        """Marks a blob as used; returns whether it exists."""
        path = self.path(key)
        try:
            os.utime(path)
            if key in self._checked:
                self._mark_checked(key, _mark(path))
        except OSError:
            return False
        return True

    def move_in(self, file: int, path: Path, key: BlobKey) -> Path:
        """Gives a verified temporary file its final name; for Incoming. Raises OSError."""
        if self._durable:
            os.fsync(file)
        target = self.path(key)
        while True:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.replace(path, target)
                break
            except FileNotFoundError:
                # The job's directory was just deleted; a missing temporary file is an error.
                if not path.exists():
                    raise
        if self._durable:
            _sync(target.parent)
            _sync(self.directory)
        with suppress(FileNotFoundError):
            self._mark_checked(key, _mark(target))
        return target

    def delete(self, key: BlobKey) -> bool:
        """Deletes a blob; returns whether it existed. Raises OSError."""
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
        """Deletes all blobs of a job. Raises OSError."""
        with self._lock:
            self._checked = {key: seen for key, seen in self._checked.items() if key.job_id != job_id}
        with suppress(FileNotFoundError):
            shutil.rmtree(self._scope(job_id))

    def jobs(self) -> dict[str, float]:
        """Returns job -> time of the last write or use of its blobs, in seconds since the epoch."""
        found = {}
        for directory in self.directory.glob(f"{_JOB}*"):
            times = [entry.stat.st_mtime for entry in _entries(directory)]
            with suppress(OSError):
                found[directory.name.removeprefix(_JOB)] = max(times, default=directory.stat().st_mtime)
        return found

    def entries(self) -> Iterator[Entry]:
        """Yields all blobs, in no order; files that vanish in between are skipped."""
        for directory in self.directory.glob(f"{_JOB}*"):
            yield from _entries(directory)

    def _scope(self, job_id: str) -> Path:
        return self.directory / f"{_JOB}{job_id}"

    def _mark_checked(self, key: BlobKey, seen: tuple[int, int, int]) -> None:
        with self._lock:
            self._checked[key] = seen

    def _remove_abandoned(self) -> None:
        for path in self._incoming.iterdir():
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDWR)
                try:
                    # Another process or thread is still writing a locked file.
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)


class Entry(NamedTuple):
    """One blob's file in a listing."""

    key: BlobKey
    stat: os.stat_result


def _create_locked_file(directory: Path) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix="temp-", dir=directory)
        path = Path(name)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return descriptor, path
        # A starting process took the file for abandoned and deleted it.
        os.close(descriptor)


def _entries(directory: Path) -> Iterator[Entry]:
    job_id = directory.name.removeprefix(_JOB)
    try:
        files = list(os.scandir(directory))
    except OSError:
        return
    for file in files:
        if file.name.startswith(_BLOB):
            with suppress(OSError, ValueError):
                yield Entry(BlobKey(file.name.removeprefix(_BLOB), job_id), file.stat())


def _mark(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
