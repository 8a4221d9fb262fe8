"""The blobs of a BlobServer: on its disk, backed by the cluster's store.

A put returns when the blob is on disk and in the store. A blob that is missing or damaged on disk, for example after a
change of the leader, is fetched from the store again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from .errors import BlobNotFound, BlobRefused, BlobUnavailable
from .keys import BlobKey, compute_digest
from .local_blob_files import BlobFiles, Incoming
from .single_flight import SingleFlight
from .store import BlobStore

_CHUNK: Final = 1 << 20


class TieredBlobStore:
    """Thread-safe. All methods raise BlobError."""

    def __init__(self, files: BlobFiles, store: BlobStore, *, largest: int) -> None:
        """`largest`: the maximum bytes of a blob."""
        self.find_in_state: Callable[[BlobKey], bytes | None] = lambda _: None
        """Returns the content of a blob that the states of this process have; called from any thread."""
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
            self._store.put(key, path)
            return self.files.touch(key)
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be read: {error}") from error

    def receive(self, key: BlobKey, size: int, write: Callable[[Incoming], None]) -> None:
        """Stores the output of `write`. Raises BlobRefused if it does not match the key, and any error of `write`."""
        with self._incoming(key) as incoming:
            write(incoming)
            self._store.put(key, _publish(incoming, key, size))

    def put(self, content: bytes, job_id: str) -> BlobKey:
        """Stores bytes; returns their key."""
        key = BlobKey(compute_digest(content), job_id)
        self.check_size(key, len(content))
        if not self.touch_if_present(key):
            self.receive(key, len(content), lambda incoming: incoming.write(content))
        return key

    def file(self, key: BlobKey) -> Path:
        """Returns a file with the blob's content; do not change it. Raises BlobNotFound."""
        try:
            found = self.files.find(key)
            if found is not None:
                return found
        except OSError as error:
            raise BlobUnavailable(f"{key} can't be read: {error}") from error
        with self._flights.lock(key):
            found = self.files.find(key)
            if found is not None:
                return found
            with self._incoming(key) as incoming:
                if self._store.get(key, incoming):
                    return _publish(incoming, key, None)
            content = self.find_in_state(key)
            if content is not None and compute_digest(content) == key.digest:
                self.put(content, key.job_id)
                found = self.files.find(key)
                if found is not None:
                    return found
        raise BlobNotFound(
            f"{key} is not here: it was never uploaded, or was deleted, for example at the end of its job"
        )

    def delete_job(self, job_id: str) -> None:
        """Deletes all blobs of a job, here and in the store."""
        # Delete from the store first: the files on disk then still show that work remains.
        self._store.delete_job(job_id)
        try:
            self.files.delete_job(job_id)
        except OSError as error:
            raise BlobUnavailable(f"the blobs of job {job_id} can't be deleted: {error}") from error

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
