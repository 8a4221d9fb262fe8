"""The formats of exported files: what they are called, how a file is known to be one, and who writes and reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol

from .errors import NotAnArchive
from .manifest import ArchiveManifest, Item


class ArchiveFormat(StrEnum):
    """How a log is written to a file."""

    AVRO = "avro"
    JSON_LINES = "jsonl"
    PARQUET = "parquet"

    @classmethod
    def from_name(cls, path: Path) -> ArchiveFormat | None:
        """By the end of the file's name; None where that says nothing."""
        return _ENDINGS.get(path.suffix.lower())


_ENDINGS = {
    ".avro": ArchiveFormat.AVRO,
    ".jsonl": ArchiveFormat.JSON_LINES,
    ".ndjson": ArchiveFormat.JSON_LINES,
    ".json": ArchiveFormat.JSON_LINES,
    ".parquet": ArchiveFormat.PARQUET,
    ".pq": ArchiveFormat.PARQUET,
}
_LONGEST_MAGIC = 4


class ArchiveWriter(Protocol):
    """Writes one file, which the caller opens and closes."""

    def write(self, items: Sequence[Item]) -> None:
        """The next entries, in order. Raises OSError."""
        ...

    def finish(self, description: ArchiveManifest) -> None:
        """What is left, and what the file says of itself. Raises OSError."""
        ...

    def abandon(self) -> None:
        """Nothing more is written, and the file will be thrown away; also when it is finished."""
        ...


class ArchiveReader(Protocol):
    """Reads one file; for one thread."""

    description: ArchiveManifest

    def read(self, start: int) -> Iterator[list[Item]]:
        """All entries from offset `start` on, in batches. Raises DamagedArchive, UnknownEvent when it comes to it."""
        ...

    def close(self) -> None:
        """Gives the file back."""
        ...


def writer(kind: ArchiveFormat, file: BinaryIO, description: ArchiveManifest) -> ArchiveWriter:
    """`file`: new, and one that can be sought; `description`: as far as it is known."""
    match kind:
        case ArchiveFormat.AVRO:
            from .avro_file import AvroWriter

            return AvroWriter(file, description)
        case ArchiveFormat.JSON_LINES:
            from .json_lines import JsonLinesWriter

            return JsonLinesWriter(file, description)
        case ArchiveFormat.PARQUET:
            from .parquet import ParquetWriter

            return ParquetWriter(file, description)


def reader(path: Path) -> ArchiveReader:
    """By what the file begins with. Raises NoArchive; DamagedArchive where nothing can be read of it."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise NotAnArchive(f"{path} can't be read: {error.strerror or error}") from None
    try:
        magic = file.read(_LONGEST_MAGIC)
        file.seek(0)
        if magic == b"Obj\x01":
            from .avro_file import AvroReader

            return AvroReader(path, file)
        if magic[:1] == b"{":
            from .json_lines import JsonLinesReader

            return JsonLinesReader(path, file)
        if magic == b"PAR1":
            from .parquet import ParquetReader

            return ParquetReader(path, file)
        raise NotAnArchive(_foreign(path, magic))
    except OSError as error:
        file.close()
        raise NotAnArchive(f"{path} can't be read: {error.strerror or error}") from None
    except BaseException:
        file.close()
        raise


def _foreign(path: Path, magic: bytes) -> str:
    if not magic:
        return f"{path} is empty: no exported log"
    return (
        f"{path} is no exported log: it begins with {magic.hex(' ')}, neither Avro (4f 62 6a 01), nor JSON lines (7b), "
        "nor Parquet (50 41 52 31); `tailrace log export` writes one"
    )
