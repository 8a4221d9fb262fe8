"""Where a cluster's snapshots are: one file each in `<high-availability.storageDir>/<cluster>/snapshots`.

A file's name is the offset that it reaches, so that a listing says which is the newest. Two are retained: the
one that was just taken, and the one that it was made from, which was read then and so is known to be whole.
"""

from __future__ import annotations

from ...infra.storage.storage import Storage
from ..configuration import Configuration
from .fingerprint import schema_fingerprint
from .snapshot_file import Header, Snapshot, UnusableSnapshot, read_header, unpack

_SUFFIX = ".snapshot"
_DIGITS = 20


class SnapshotStore:
    """The snapshots of one cluster. Its methods raise StorageError where storage does not answer."""

    def __init__(self, storage: Storage, cluster: str) -> None:
        self._storage = storage
        self.cluster = cluster

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> SnapshotStore:
        """Where the configuration says."""
        directory = f"{configuration.ha_storage.rstrip('/')}/{configuration.ha_cluster_id}/snapshots"
        return cls(Storage.open(directory), configuration.cluster_id)

    @property
    def uri(self) -> str:
        """The directory."""
        return self._storage.uri

    def offsets(self) -> list[int]:
        """The offsets of all snapshots that are there, readable or not, newest first."""
        names = self._storage.sizes()
        return sorted((offset for name in names if (offset := _offset(name)) is not None), reverse=True)

    def uri_of(self, offset: int) -> str:
        """Where the snapshot of an offset is, or would be."""
        return self._storage.absolute(_name(offset))

    def read(self, offset: int) -> Snapshot:
        """Raises UnusableSnapshot, MissingFile."""
        data = self._storage.read(_name(offset))
        snapshot = unpack(data, cluster=self.cluster, fingerprint=schema_fingerprint())
        if snapshot.header.offset != offset:
            raise UnusableSnapshot(f"it is that of offset {snapshot.header.offset}")
        return snapshot

    def header(self, offset: int) -> Header:
        """What a snapshot says of itself, whatever types of states are in it. Raises UnusableSnapshot, MissingFile."""
        header = read_header(self._storage.read(_name(offset)), cluster=self.cluster)
        if header.offset != offset:
            raise UnusableSnapshot(f"it is that of offset {header.offset}")
        return header

    def size(self, offset: int) -> int:
        """Bytes of a file; 0 where there is none."""
        return self._storage.size(_name(offset)) or 0

    def write(self, header: Header, data: bytes) -> None:
        """Stores a snapshot, whole or not at all."""
        self._storage.write_atomically(_name(header.offset), data)

    def delete(self, offset: int) -> None:
        """Deletes a snapshot, if it is there."""
        self._storage.delete(_name(offset))

    def retain(self, newest: int, base: int | None) -> list[int]:
        """Deletes what is older than `newest` but the one that it was made from; returns what was deleted.

        Without a `base` the next older one stays. What is newer is not ours to judge: another leader may have taken it.
        """
        older = [offset for offset in self.offsets() if offset < newest]
        kept = base if base is not None else max(older, default=None)
        gone = [offset for offset in older if offset != kept]
        for offset in gone:
            self.delete(offset)
        return gone


def _name(offset: int) -> str:
    return f"{offset:0{_DIGITS}}{_SUFFIX}"


def _offset(name: str) -> int | None:
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if stem != name and len(stem) == _DIGITS and stem.isdecimal() else None
