"""The blobs of a BlobServer: on its disk, and in the cluster's shared store.

A PUT is acknowledged when the blob is on disk and in the store. A blob that is missing or damaged on disk, for example
after another master has taken over, is fetched from the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from .errors import BlobNotFound, BlobRefused, BlobUnavailable
from .keys import BlobKey, compute_digest, compute_file_digest
from .local_blob_files import BlobFiles, Incoming
from .single_flight import SingleFlight
from .store import BlobStore

_CHUNK: Final = 1 << 20


class TieredBlobStore:
    """For any number of threads. Raises BlobError from all methods."""

    def __init__(self, files: BlobFiles, store: BlobStore, *, largest: int) -> None:
        """`largest`: bytes of a blob."""
        self.files: Final = files
        self._store = store
        self._largest = largest
        self._flights = SingleFlight()

    def check_size(self, key: BlobKey, size: int) -> None:
        """Raises BlobRefused for what is too large."""
        if size > self._largest:
            raise BlobRefused(
                f"{key} has {size:,} bytes, more than {self._largest:,}: raise blob.size.max, or let the job load it "
                "from storage"
            )

    def touch_if_present(self, key: BlobKey) -> bool:
        """Whether the blob is kept, so that it need not be put again; says that it is wanted."""
        try:
            path = self.files.find(key)
            if path is None:
                return False
            self._keep(key, path)
            return self.files.touch(key)
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be read: {error}") from error

    def receive(self, key: BlobKey, size: int, write: Callable[[Incoming], None]) -> None:
        """Keeps what `write` writes. Raises BlobRefused for other bytes than the key's; whatever `write` raises."""
        with self._incoming(key) as incoming:
            write(incoming)
            self._keep(key, _publish(incoming, key, size))

    def put(self, content: bytes, job_id: str | None = None, *, transient: bool = False) -> BlobKey:
        """Keeps some bytes; their key."""
        key = BlobKey(compute_digest(content), job_id, transient)
        self.check_size(key, len(content))
        if not self.touch_if_present(key):
            self.receive(key, len(content), lambda incoming: incoming.write(content))
        return key

    def put_file(self, path: Path, job_id: str | None = None, *, transient: bool = False) -> BlobKey:
        """Keeps a copy of a file; its key. Raises OSError where it can't be read."""
        digest, size = compute_file_digest(str(path))
        key = BlobKey(digest, job_id, transient)
        self.check_size(key, size)
        if not self.touch_if_present(key):
            self.receive(key, size, lambda incoming: _copy(path, incoming))
        return key

    def file(self, key: BlobKey) -> Path:
        """A file with the blob's content, not to be changed. Raises BlobNotFound."""
        try:
            found = self.files.find(key)
            if found is not None:
                return found
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be read: {error}") from error
        if not key.transient:
            with self._flights.lock(key):
                found = self.files.find(key)
                if found is not None:
                    return found
                with self._incoming(key) as incoming:
                    if self._store.get(key, incoming):
                        return _publish(incoming, key, None)
        raise BlobNotFound(f"{key} is not here: it was never put, or was deleted, as at the end of its job")

    def delete(self, key: BlobKey) -> None:
        """Deletes a blob, if it is there."""
        try:
            self.files.delete(key)
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be deleted: {error}") from error
        if not key.transient:
            self._store.delete(key)

    def delete_job(self, job_id: str) -> None:
        """Deletes all that a job owns, here and in the store."""
        # The store first: what is still on disk says that there is something left to do.
        self._store.delete_job(job_id)
        try:
            self.files.delete_job(job_id)
        except OSError as error:
            raise BlobUnavailable(f"the blobs of job {job_id} can't be deleted: {error}") from error

    def _keep(self, key: BlobKey, path: Path) -> None:
        if not key.transient:
            self._store.put(key, path)

    def _incoming(self, key: BlobKey) -> Incoming:
        try:
            return self.files.incoming()
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be written to {self.files.directory}: {error}") from error


def _publish(incoming: Incoming, key: BlobKey, size: int | None) -> Path:
    try:
        return incoming.publish(key, size)
    except OSError as error:
        raise BlobUnavailable(f"{key} can't be written: {error}") from error


def _copy(path: Path, incoming: Incoming) -> None:
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            incoming.write(chunk)
