"""A table's rows out of any log: what each of Spark's Python workers does with its range of offsets.

A worker opens the log for itself. Ranges are cut by offsets alone, so that each event falls into exactly one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from ....schemas.event import Record
from ...configuration import Configuration
from ...configuration.options.cluster import (
    BOOTSTRAP_SERVERS,
    CLUSTER_ID,
    SCHEMA_REGISTRY_CREDENTIALS_FILE,
    SCHEMA_REGISTRY_URL,
)
from ...log import EventLog
from ...log.event_log import Unreadable, read_to_end
from ..archive.file_log import FileLog
from ..log_position import LogPosition, first_offset
from ..log_source import open_log_source
from .tables import UNREADABLE, Table

_BATCH = 4_096
_TIMEOUT_S = 30.0


class ScanOrigin(msgspec.Struct, frozen=True):
    """Where a log is, in words that travel to another process: a file, or a cluster of a Kafka."""

    file: str | None = None
    bootstrap_servers: str = ""
    cluster_id: str = ""
    schema_registry_url: str = ""
    schema_registry_credentials_file: str = ""

    @classmethod
    def from_source(cls, of: Configuration | Path) -> ScanOrigin:
        """Of a cluster whose Kafka is known, or an exported file."""
        if isinstance(of, Path):
            return cls(str(of.absolute()))
        credentials_file = of.get(SCHEMA_REGISTRY_CREDENTIALS_FILE) or ""
        return cls(None, of.bootstrap_servers, of.cluster_id, of.schema_registry_url, credentials_file)

    def open(self) -> EventLog:
        """To be closed. Raises ArchiveError."""
        if self.file is not None:
            return FileLog.open(Path(self.file), selections=True)
        from ...log.factory import open_event_log

        said = {
            BOOTSTRAP_SERVERS.key: self.bootstrap_servers,
            CLUSTER_ID.key: self.cluster_id,
            SCHEMA_REGISTRY_URL.key: self.schema_registry_url,
            SCHEMA_REGISTRY_CREDENTIALS_FILE.key: self.schema_registry_credentials_file,
        }
        return open_event_log(
            Configuration({key: text for key, text in said.items() if text}), timeout=_TIMEOUT_S
        )


def extent(of: Configuration | Path, first: str | int | None, last: str | int | None) -> tuple[int, int]:
    """(start, end) of what lies between two places, offsets or times; without them of all that is there now.

    Raises BadPosition, OutsideLog, LogUnavailable, ArchiveError.
    """
    with open_log_source(of, selections=True) as source:
        start = first_entry(source.log) if first is None else source.start(LogPosition.parse(str(first)))
        end = source.log.end() if last is None else source.at(LogPosition.parse(str(last))) + 1
    return start, end


def first_entry(log: EventLog) -> int:
    """The offset where a log, or a selection of one, begins. Raises LogUnavailable."""
    return log.description.first if isinstance(log, FileLog) else first_offset(log)


def rows(log: EventLog, table: Table, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """What of the table lies from offset `start` to `end` (exclusive), in order of offsets.

    Raises LogUnavailable, LogTruncated, ArchiveError.
    """
    if table.name == UNREADABLE:
        yield from _unreadable(log, table, start, end)
        return
    waiting: list[Record] = []
    for batch in read_to_end(log, start, end=end):
        waiting += batch if table.event is None else [r for r in batch if table.event == r.body.AVRO_NAME]
        while len(waiting) >= _BATCH:
            yield table.from_records(waiting[:_BATCH])
            del waiting[:_BATCH]
    if waiting:
        yield table.from_records(waiting)


def _unreadable(log: EventLog, table: Table, start: int, end: int) -> Iterator[pa.RecordBatch]:
    waiting: list[Unreadable] = []
    for _ in read_to_end(log, start, end=end, on_unreadable=waiting.append):
        pass
    found = [each for each in waiting if start <= each.offset < end]
    for at in range(0, len(found), _BATCH):
        yield table.from_unreadable(found[at : at + _BATCH])
