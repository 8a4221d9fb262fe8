"""Shared storage for a cluster's blobs, below `high-availability.storageDir` (Flink's BlobStore).

Every BlobServer and BlobCache of the cluster reaches it, so that a blob is available while the server that received it
is down. The layout is that of a server's directory. On file systems with non-atomic writes a reader detects a partial
file, like any damaged one, by the digest.
"""

from __future__ import annotations

import hashlib
import posixpath
from pathlib import Path
from typing import Final, Protocol

from ...infra.storage.errors import CheckpointError, MissingFile
from ...infra.storage.storage import Storage
from .errors import BlobUnavailable
from .keys import BlobKey
from .local_blob_files import BlobFiles, Incoming

_CHUNK: Final = 4 << 20
_JOB = "job_"


class BlobStore(Protocol):
    """All methods raise BlobUnavailable. Safe for threads and processes."""

    def put(self, key: BlobKey, path: Path) -> None:
        """Stores a copy of a verified file."""
        ...

    def get(self, key: BlobKey, into: Incoming) -> bool:
        """Copies a blob without verification; returns whether it exists."""
        ...

    def delete_job(self, job_id: str) -> None:
        """Deletes all blobs of a job."""
        ...

    def jobs(self) -> list[str]:
        """Returns the jobs with blobs, sorted."""
        ...

    def last_written(self, job_id: str) -> float | None:
        """Returns when the job's newest blob was written, in seconds since the epoch; None if unknown."""
        ...


class VoidBlobStore:
    """No store: without high availability blobs are on the servers' disks only."""

    def put(self, key: BlobKey, path: Path) -> None:
        return None

    def get(self, key: BlobKey, into: Incoming) -> bool:
        return False

    def delete_job(self, job_id: str) -> None:
        return None

    def jobs(self) -> list[str]:
        return []

    def last_written(self, job_id: str) -> float | None:
        return None


class FileSystemBlobStore:
    """A store below a path or any URI that fsspec supports; created on demand."""

    def __init__(self, uri: str) -> None:
        self._storage: Final = Storage.open(uri)

    def put(self, key: BlobKey, path: Path) -> None:
        name = _name(key)
        try:
            if self._storage.size(name) == path.stat().st_size:
                return
            if self._storage.is_local:
                self._put_here(key, path)
                return
            with path.open("rb") as source, self._storage.create(name) as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
        except (CheckpointError, OSError) as error:
            raise BlobUnavailable(f"{key} can't be stored below {self._storage.uri}: {error}") from error

    def get(self, key: BlobKey, into: Incoming) -> bool:
        name = _name(key)
        try:
            while chunk := self._storage.read(name, into.size, _CHUNK):
                into.write(chunk)
                if len(chunk) < _CHUNK:
                    break
        except MissingFile:
            return False
        except (CheckpointError, OSError) as error:
            # Some object stores refuse to read past a file's end.
            if into.size and into.size == self._size(name):
                return True
            raise BlobUnavailable(f"{key} can't be read below {self._storage.uri}: {error}") from error
        return True

    def delete_job(self, job_id: str) -> None:
        try:
            self._storage.delete_tree(_scope(job_id))
        except CheckpointError as error:
            raise BlobUnavailable(f"the blobs of job {job_id} can't be deleted: {error}") from error

    def jobs(self) -> list[str]:
        try:
            found = self._storage.directories()
        except CheckpointError as error:
            raise BlobUnavailable(str(error)) from error
        return [name.removeprefix(_JOB) for name in found if name.startswith(_JOB)]

    def last_written(self, job_id: str) -> float | None:
        scope = _scope(job_id)
        try:
            times = [self._storage.modified(f"{scope}/{name}") for name in self._storage.sizes(scope)]
        except CheckpointError as error:
            raise BlobUnavailable(str(error)) from error
        return max((time for time in times if time is not None), default=None)

    def size(self, key: BlobKey) -> int | None:
        """Returns the bytes of a stored blob; None if it is not stored, or the storage does not answer."""
        return self._size(_name(key))

    def uri_of(self, key: BlobKey) -> str:
        """Returns the URI of a blob."""
        return self._storage.absolute(_name(key))

    def find_fault(self, key: BlobKey, *, quick: bool = False) -> str | None:
        """Returns what is wrong with a stored blob, in one line; None if nothing is. `quick`: does not read it. Raises
        BlobUnavailable."""
        digest, size, name = hashlib.sha256(), 0, _name(key)
        try:
            length = self._storage.size(name)
            if length is None:
                return "it does not exist"
            while not quick and size < length:
                chunk = self._storage.read(name, size, min(_CHUNK, length - size))
                if not chunk:
                    break
                digest.update(chunk)
                size += len(chunk)
        except (CheckpointError, OSError) as error:
            raise BlobUnavailable(f"{key} can't be read below {self._storage.uri}: {error}") from error
        return None if quick or digest.hexdigest() == key.digest else "its SHA-256 is another"

    def _put_here(self, key: BlobKey, path: Path) -> None:
        with path.open("rb") as source, BlobFiles(Path(self._storage.uri), durable=True).incoming() as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
            target.publish(key)

    def _size(self, name: str) -> int | None:
        try:
            return self._storage.size(name)
        except CheckpointError:
            return None


def _scope(job_id: str) -> str:
    return f"{_JOB}{job_id}"


def _name(key: BlobKey) -> str:
    return posixpath.join(_scope(key.job_id), f"blob_p-{key.digest}")
