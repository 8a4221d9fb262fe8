"""The store of a cluster's snapshots: one file each in `<high-availability.storageDir>/<cluster>/snapshots`.

A file's name is its offset, so that a listing finds the newest. Two are retained: the newest, and the one from which it
was created, which was read and verified at that time.
"""

from __future__ import annotations

from ...infra.storage.storage import Storage
from ..configuration import Configuration
from .fingerprint import schema_fingerprint
from .snapshot_file import Header, Snapshot, UnusableSnapshot, read_header, unpack

_SUFFIX = ".snapshot"
_DIGITS = 20


class SnapshotStore:
    """The snapshots of one cluster. Its methods raise StorageError if the storage is unavailable."""

    def __init__(self, storage: Storage, cluster: str) -> None:
        self._storage = storage
        self.cluster = cluster

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> SnapshotStore:
        """Opens the configured store."""
        directory = f"{configuration.ha_storage.rstrip('/')}/{configuration.ha_cluster_id}/snapshots"
        return cls(Storage.open(directory), configuration.cluster_id)

    @property
    def uri(self) -> str:
        """The URI of the directory."""
        return self._storage.uri

    def offsets(self) -> list[int]:
        """Returns the offsets of all stored snapshots, readable or not, newest first."""
        names = self._storage.sizes()
        return sorted((offset for name in names if (offset := _offset(name)) is not None), reverse=True)

    def uri_of(self, offset: int) -> str:
        """Returns the URI for the snapshot of an offset."""
        return self._storage.absolute(_name(offset))

    def read(self, offset: int) -> Snapshot:
        """Reads a snapshot. Raises UnusableSnapshot, MissingFile."""
        data = self._storage.read(_name(offset))
        snapshot = unpack(data, cluster=self.cluster, fingerprint=schema_fingerprint())
        if snapshot.header.offset != offset:
            raise UnusableSnapshot(f"it is of offset {snapshot.header.offset}")
        return snapshot

    def header(self, offset: int) -> Header:
        """Reads the header of a snapshot, whatever its state types. Raises UnusableSnapshot, MissingFile."""
        header = read_header(self._storage.read(_name(offset)), cluster=self.cluster)
        if header.offset != offset:
            raise UnusableSnapshot(f"it is of offset {header.offset}")
        return header

    def size(self, offset: int) -> int:
        """Returns the bytes of a file; 0 if there is none."""
        return self._storage.size(_name(offset)) or 0

    def write(self, header: Header, data: bytes) -> None:
        """Writes a snapshot atomically."""
        self._storage.write_atomically(_name(header.offset), data)

    def delete(self, offset: int) -> None:
        """Deletes a snapshot if it exists."""
        self._storage.delete(_name(offset))

    def retain(self, newest: int, base: int | None) -> list[int]:
        """Deletes snapshots older than `newest`, except the one from which it was created; returns the deleted offsets.

        Without a `base` the next older one is retained. Newer ones are not touched: another leader may have created
        them.
        """
        older = [offset for offset in self.offsets() if offset < newest]
        base_offset = base if base is not None else max(older, default=None)
        gone = [offset for offset in older if offset != base_offset]
        for offset in gone:
            self.delete(offset)
        return gone


def _name(offset: int) -> str:
    return f"{offset:0{_DIGITS}}{_SUFFIX}"


def _offset(name: str) -> int | None:
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if stem != name and len(stem) == _DIGITS and stem.isdecimal() else None
