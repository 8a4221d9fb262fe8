"""The segments of one log in the cluster's storage: `<high-availability.storageDir>/<cluster>/archive/<log id>`."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ....infra.storage.errors import CheckpointError, MissingFile
from ....infra.storage.storage import Storage
from ...configuration import Configuration
from ..archive.avro_file import AvroReader, write_avro
from ..archive.errors import ArchiveError, UnknownEventType
from ..archive.exporter import ExportSummary
from ..archive.manifest import ArchiveManifest, Item
from .errors import ArchiveUnavailable, DamagedSegment, MissingSegment
from .segment import FORMAT, Segment, SegmentRange, find_chain, find_covering

_CHECKSUM_DIGITS = 16
_ACCEPTED = "accepted.json"
T = TypeVar("T")


class ClusterArchive:
    """The archives of a cluster's logs, by the log's id. A cluster whose log was lost has several."""

    def __init__(self, storage: Storage, cluster: str) -> None:
        self._storage = storage
        self._cluster = cluster

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> ClusterArchive:
        """Opens the configured archive."""
        directory = f"{configuration.ha_storage.rstrip('/')}/{configuration.ha_cluster_id}/archive"
        return cls(Storage.open(directory), configuration.cluster_id)

    @property
    def uri(self) -> str:
        """The URI of the directory."""
        return self._storage.uri

    def log_ids(self) -> list[str]:
        """Returns the ids of the logs with an archive. Raises ArchiveUnavailable."""
        return _answer(self._storage.directories)

    def of_log(self, log_id: str) -> LogArchive:
        """Returns the archive of a log; it need not exist yet."""
        return LogArchive(Storage.open(self._storage.absolute(log_id)), self._cluster, log_id)

    def accept(self, log_id: str) -> None:
        """Creates an empty archive: from now on the cluster's log may have that id, although there are archives of
        others. Raises ArchiveUnavailable."""
        text = msgspec.json.encode({"cluster": self._cluster, "log_id": log_id})
        _answer(lambda: self._storage.write_atomically(f"{log_id}/{_ACCEPTED}", text))


class LogArchive:
    """The archive of one log. Its methods raise ArchiveUnavailable if the storage does not answer."""

    def __init__(self, storage: Storage, cluster: str, log_id: str) -> None:
        self._storage = storage
        self.cluster = cluster
        self.log_id = log_id

    @property
    def uri(self) -> str:
        """The URI of the directory."""
        return self._storage.uri

    def uri_of(self, name: str) -> str:
        """Returns the URI of a file."""
        return self._storage.absolute(name)

    def ranges(self) -> list[SegmentRange]:
        """Returns the ranges of all segments, in order."""
        found = (SegmentRange.from_name(name) for name in _answer(self._storage.sizes))
        return sorted(entry for entry in found if entry is not None)

    def end(self) -> int | None:
        """Returns the offset after the last segment; None without segments."""
        return max((found.last + 1 for found in self.ranges()), default=None)

    def chain(self, start: int) -> list[Segment]:
        """Returns the manifests of the segments from offset `start` on, without gap. Raises DamagedSegment."""
        return [self.manifest(found) for found in find_chain(self.ranges(), start)]

    def manifest(self, wanted: SegmentRange) -> Segment:
        """Reads the manifest of a segment. Raises MissingSegment, DamagedSegment."""
        uri = self.uri_of(wanted.manifest_name)
        try:
            found = msgspec.json.decode(
                _answer(lambda: self._storage.read(wanted.manifest_name)), type=Segment
            )
        except MissingFile:
            raise MissingSegment(uri, wanted.first, wanted.last) from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedSegment(
                uri, wanted.first, wanted.last, f"it can't be read: {_one_line(error)}"
            ) from None
        if found.format > FORMAT:
            why = f"it has format {found.format}, and this release reads {FORMAT}: upgrade tailrace"
            raise DamagedSegment(uri, wanted.first, wanted.last, why)
        if (found.range, found.cluster, found.log_id) != (wanted, self.cluster, self.log_id):
            why = f"it is of cluster {found.cluster!r}, log {found.log_id!r}, offsets {found.first} to {found.last}"
            raise DamagedSegment(uri, wanted.first, wanted.last, why)
        return found

    def covering(self, offset: int, end: int | None = None) -> Segment:
        """Returns the segment with that offset; `end`: where the topic continues. Raises MissingSegment,
        DamagedSegment."""
        ranges = self.ranges()
        found = find_covering(ranges, offset)
        if found is None:
            after = min((entry.first for entry in ranges if entry.first > offset), default=end or offset + 1)
            before = max((entry.last + 1 for entry in ranges if entry.last < offset), default=offset)
            missing = SegmentRange(before, after - 1)
            raise MissingSegment(self.uri_of(missing.manifest_name), missing.first, missing.last)
        return self.manifest(found)

    def write(self, wanted: SegmentRange, items: list[Item], log_bytes: int) -> Segment:
        """Writes a segment durably, reads it back, and then writes its manifest. Raises DamagedSegment."""
        summary = ExportSummary(
            ArchiveManifest(
                cluster=self.cluster, whole=False, selected=f"segment {wanted.stem} of log {self.log_id}"
            )
        )
        file = io.BytesIO()
        write_avro(file, summary.count([items] if items else []), summary.describe)
        data, described = file.getvalue(), summary.describe()
        sha256 = hashlib.sha256(data).hexdigest()
        segment = Segment(
            cluster=self.cluster,
            log_id=self.log_id,
            first=wanted.first,
            last=wanted.last,
            entries=described.entries,
            file=f"{wanted.stem}-{sha256[:_CHECKSUM_DIGITS]}.avro",
            bytes=len(data),
            sha256=sha256,
            log_bytes=log_bytes,
            first_time=described.first_time,
            last_time=described.last_time,
        )
        self._write(segment.file, data)
        self.verify(segment, entries=True)
        self._write(wanted.manifest_name, msgspec.json.format(msgspec.json.encode(segment)))
        return segment

    def verify(self, segment: Segment, *, entries: bool = False, quick: bool = False) -> None:
        """Reads the file of a segment and compares its checksum; `entries`: also reads all entries; `quick`: only
        compares its size.

        Raises MissingSegment, DamagedSegment.
        """
        uri = self.uri_of(segment.file)
        if quick:
            size = _answer(lambda: self._storage.size(segment.file))
            if size is None:
                raise MissingSegment(uri, segment.first, segment.last)
            if size != segment.bytes:
                why = f"it has {size:,} bytes instead of {segment.bytes:,}"
                raise DamagedSegment(uri, segment.first, segment.last, why)
            return
        try:
            data = _answer(lambda: self._storage.read(segment.file))
        except MissingFile:
            raise MissingSegment(uri, segment.first, segment.last) from None
        if len(data) != segment.bytes:
            why = f"it has {len(data):,} bytes instead of {segment.bytes:,}"
            raise DamagedSegment(uri, segment.first, segment.last, why)
        if hashlib.sha256(data).hexdigest() != segment.sha256:
            why = "its SHA-256 is another"
            raise DamagedSegment(uri, segment.first, segment.last, why)
        if entries:
            found = sum(len(items) for items in self.read(segment, segment.first))
            if found != segment.entries:
                why = f"it has {found:,} entries instead of {segment.entries:,}"
                raise DamagedSegment(uri, segment.first, segment.last, why)

    def read(self, segment: Segment, start: int) -> Iterator[list[Item]]:
        """Yields the entries of a segment from offset `start` on. Raises MissingSegment, DamagedSegment,
        UnknownEventType."""
        with self._local_path(segment) as path:
            try:
                reader = AvroReader(path)
                try:
                    yield from reader.read(start)
                finally:
                    reader.close()
            except UnknownEventType:
                raise
            except ArchiveError as error:
                why = str(error).replace(str(path), "the file")
                raise DamagedSegment(
                    self.uri_of(segment.file), segment.first, segment.last, why.partition(";")[0]
                ) from None
            except OSError as error:
                raise ArchiveUnavailable(
                    f"{self.uri_of(segment.file)} can't be read: {error.strerror or error}"
                ) from None

    @contextlib.contextmanager
    def _local_path(self, segment: Segment) -> Iterator[Path]:
        uri = self.uri_of(segment.file)
        if self._storage.is_local:
            if not os.path.exists(uri):
                raise MissingSegment(uri, segment.first, segment.last)
            yield Path(uri)
            return
        try:
            data = _answer(lambda: self._storage.read(segment.file))
        except MissingFile:
            raise MissingSegment(uri, segment.first, segment.last) from None
        with tempfile.NamedTemporaryFile(prefix="tailrace-segment-", suffix=".avro") as copy:
            copy.write(data)
            copy.flush()
            yield Path(copy.name)

    def _write(self, name: str, data: bytes) -> None:
        _answer(lambda: self._storage.write_atomically(name, data))
        if self._storage.is_local:
            # The next step deletes the entries from Kafka, so they must survive a crash of this machine.
            for path in (self.uri_of(name), self.uri):
                _sync(path)


def _sync(path: str) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise ArchiveUnavailable(f"{path} can't be written: {error.strerror or error}") from None


def _answer(act: Callable[[], T]) -> T:
    """Raises MissingFile, ArchiveUnavailable."""
    try:
        return act()
    except MissingFile:
        raise
    except CheckpointError as error:
        raise ArchiveUnavailable(f"the archive is not available: {error}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
