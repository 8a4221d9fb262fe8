"""The formats of exported files, and their suffixes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class ArchiveFormat(StrEnum):
    """The format of an exported log. Only Avro can be read back as a log."""

    AVRO = "avro"
    JSON_LINES = "jsonl"
    PARQUET = "parquet"

    @classmethod
    def from_name(cls, path: Path) -> ArchiveFormat | None:
        """Returns the format of a file's suffix; None for another suffix."""
        return _SUFFIXES.get(path.suffix.lower())


_SUFFIXES = {
    ".avro": ArchiveFormat.AVRO,
    ".jsonl": ArchiveFormat.JSON_LINES,
    ".ndjson": ArchiveFormat.JSON_LINES,
    ".json": ArchiveFormat.JSON_LINES,
    ".parquet": ArchiveFormat.PARQUET,
    ".pq": ArchiveFormat.PARQUET,
}
