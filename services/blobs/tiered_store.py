"""The blobs of a BlobServer: on its disk, backed by the cluster's store.

A put returns when the blob is on disk and in the store. A blob that is missing or damaged on disk, for example after a
change of the leader, is fetched from the store again.
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
    """Thread-safe. All methods raise BlobError."""

    def __init__(self, files: BlobFiles, store: BlobStore, *, largest: int) -> None:
        """`largest`: the maximum bytes of a blob."""
        self.files: Final = files
        self._store = store
        self._largest = largest
        self._flights = SingleFlight()

    def check_size(self, key: BlobKey, size: int) -> None:
        """Raises BlobRefused if the blob is too large."""
        if size > self._largest:
            raise BlobRefused(
                f"{key} has {size:,} bytes, more than {self._largest:,}: raise blob.size.max, or let the job load it "
                "from storage"
            )

    def touch_if_present(self, key: BlobKey) -> bool:
        """Returns whether the blob is stored, so that it need not be uploaded again; marks it as used."""
        try:
            path = self.files.find(key)
            if path is None:
                return False
            self._keep(key, path)
            return self.files.touch(key)
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be read: {error}") from error

    def receive(self, key: BlobKey, size: int, write: Callable[[Incoming], None]) -> None:
        """Stores what `write` writes. Raises BlobRefused if it does not match the key; whatever `write` raises."""
        with self._incoming(key) as incoming:
            write(incoming)
            self._keep(key, _publish(incoming, key, size))

    def put(self, content: bytes, job_id: str | None = None, *, transient: bool = False) -> BlobKey:
        """Stores bytes; returns their key."""
        key = BlobKey(compute_digest(content), job_id, transient)
        self.check_size(key, len(content))
        if not self.touch_if_present(key):
            self.receive(key, len(content), lambda incoming: incoming.write(content))
        return key

    def put_file(self, path: Path, job_id: str | None = None, *, transient: bool = False) -> BlobKey:
        """Stores a copy of a file; returns its key. Raises OSError if it cannot be read."""
        digest, size = compute_file_digest(str(path))
        key = BlobKey(digest, job_id, transient)
        self.check_size(key, size)
        if not self.touch_if_present(key):
            self.receive(key, size, lambda incoming: _copy(path, incoming))
        return key

    def file(self, key: BlobKey) -> Path:
        """Returns a file with the blob's content; do not change it. Raises BlobNotFound."""
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
        """Deletes a blob if it exists."""
        try:
            self.files.delete(key)
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be deleted: {error}") from error
        if not key.transient:
            self._store.delete(key)

    def delete_job(self, job_id: str) -> None:
        """Deletes all blobs of a job, here and in the store."""
        # Delete from the store first: the files on disk then still show that work remains.
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
