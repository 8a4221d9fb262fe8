"""Stores a JobHistory in one file beside each snapshot of the states.

    magic (8 bytes) | body (zlib of MessagePack) | SHA-256 of all before (32)

A file belongs to the snapshot of the same offset and is useless without it. A reader ignores a file that is damaged, of
another log, or of a release with another format, and then reads the log from its first event.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Callable, Collection

import msgspec

from ...infra.storage.errors import CheckpointError
from ...infra.storage.storage import Storage
from ..configuration import Configuration
from ..core.replica import Replica
from ..log import EventLog
from ..snapshots.fingerprint import fingerprint_types
from ..snapshots.recovery import restore_newest
from ..snapshots.store import SnapshotStore
from .job_history import JobHistory

_MAGIC = b"TAILHIST"
_SUM = hashlib.sha256().digest_size
_SUFFIX = ".history"
_DIGITS = 20


class StoredHistory(msgspec.Struct, frozen=True):
    """The content of a file: the history up to an event."""

    event_id: str
    """The id of the last event: another log has another event at that offset."""
    fingerprint: str
    """The fingerprint of the types in `past`."""
    past: msgspec.Raw


@functools.cache
def _fingerprint() -> str:
    return fingerprint_types({"past": JobHistory})


class JobHistoryStore:
    """The histories of one cluster, in `<high-availability.storageDir>/<cluster>/history`.

    Its methods raise StorageError if the storage is unavailable.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> JobHistoryStore:
        """Opens the configured store."""
        base = f"{configuration.ha_storage.rstrip('/')}/{configuration.ha_cluster_id}"
        return cls(Storage.open(f"{base}/history"))

    def offsets(self) -> list[int]:
        """Returns the offsets of all files, readable or not, newest first."""
        stems = [name.removesuffix(_SUFFIX) for name in self._storage.sizes() if name.endswith(_SUFFIX)]
        return sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True)

    def read(self, offset: int, event_id: str) -> JobHistory | None:
        """Returns the history up to that event; None if there is no usable file."""
        try:
            data = self._storage.read(_name(offset))
            body, found = data[:-_SUM], data[-_SUM:]
            if body[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != found:
                return None
            history = msgspec.msgpack.decode(zlib.decompress(body[len(_MAGIC) :]), type=StoredHistory)
            if (history.event_id, history.fingerprint) != (event_id, _fingerprint()):
                return None
            return msgspec.msgpack.decode(history.past, type=JobHistory)
        except (CheckpointError, msgspec.MsgspecError, UnicodeDecodeError, zlib.error):
            return None

    def write(self, offset: int, event_id: str, past: JobHistory) -> None:
        """Writes the history up to an event atomically."""
        history = StoredHistory(event_id, _fingerprint(), msgspec.Raw(msgspec.msgpack.encode(past)))
        body = _MAGIC + zlib.compress(msgspec.msgpack.encode(history), 3)
        self._storage.write_atomically(_name(offset), body + hashlib.sha256(body).digest())

    def retain(self, offsets: Collection[int]) -> None:
        """Deletes the files of all other offsets."""
        for offset in self.offsets():
            if offset not in offsets:
                self._storage.delete(_name(offset))


def newest(
    log: EventLog,
    snapshots: SnapshotStore,
    histories: JobHistoryStore,
    new_replica: Callable[[], Replica],
    at_most: int | None = None,
) -> tuple[Replica, JobHistory] | None:
    """Restores the newest usable snapshot that has a history; returns both, or None.

    `at_most`: the highest offset of the snapshot. Raises LogUnavailable, and LogTruncated if the log begins after the
    end of the snapshot.
    """
    try:
        offsets = [offset for offset in histories.offsets() if at_most is None or offset <= at_most]
    except CheckpointError:
        return None
    tried: int | None = None
    for offset in offsets:
        if tried is not None and offset >= tried:
            continue
        replica = new_replica()
        header = restore_newest(replica, log, snapshots, at_most=offset)
        if header is None:
            return None
        past = histories.read(header.offset, header.event_id)
        if past is not None:
            return replica, past
        tried = header.offset
    return None


def _name(offset: int) -> str:
    return f"{offset:0{_DIGITS}}{_SUFFIX}"
