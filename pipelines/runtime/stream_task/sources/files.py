"""The file source: bounded, exact, and without anybody to hand out the work.

What the paths name is listed once, before the first record, and the list is kept in the changelog: a restarted subtask
reads the same files. Split k of a file belongs to the subtask (hash of its path + k) % parallelism, so that subtasks
that list at different times never read a split twice, and share large files evenly. The position is a file, a split,
and how many of its records have been given.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from .....schemas.types import OperatorConfig
from ....types import PICKLED, RecordType
from ...operators.files.avro_reading import AvroReader
from ...operators.files.parquet_reading import ParquetReader
from ...operators.files.reading import FileReader, Piece
from ...operators.files.storage import FoundFile, list_files
from ...operators.files.text_reading import TextReader
from .source import Polled, Source, SourceSetup

_LISTED: Final = b"L"
_POSITION: Final = b"P"
_LISTED_AT_ONCE: Final = 2_000
"""Files in one message of the changelog, which may hold a mebibyte."""


class FileParameters(msgspec.Struct, frozen=True):
    """As OperatorConfig.parameters has them."""

    paths: list[str]
    format: Literal["text", "avro", "parquet"]
    columns: list[str] | None = None
    output_type: Any = None


class _Position(msgspec.Struct, frozen=True, array_like=True):
    file: int
    split: int
    records: int


class FilesSource(Source):
    """The splits of one subtask, in the order of the paths' names."""

    def __init__(self, config: OperatorConfig) -> None:
        parameters = msgspec.convert(json.loads(config.parameters), FileParameters)
        form = parameters.output_type
        self._parameters = parameters
        self._record_type = PICKLED if form is None else RecordType.from_json(form)
        self._reader = self._reader_for(parameters)
        self._files: list[FoundFile] = []
        self._listed = False
        self._said_listed = False
        self._position = _Position(0, 0, 0)
        self._said_position = self._position
        self._piece = Piece(rows=[])
        self._taken = 0

    def restore(self, message: bytes) -> None:
        match message[:1]:
            case b"L":
                self._files += msgspec.msgpack.decode(message[1:], type=list[FoundFile])
                self._listed = self._said_listed = True
            case b"P":
                self._position = self._said_position = msgspec.msgpack.decode(message[1:], type=_Position)
            case kind:
                raise ValueError(f"the changelog holds a message of unknown kind {kind!r}")

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup
        if not self._listed:
            found = (file for path in self._parameters.paths for file in list_files(path))
            self._files = list({file.path: file for file in found}.values())
            self._listed = True
        self._pieces = self._read()

    def poll(self, limit: int) -> Polled:
        if self._taken == len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return Polled(ended=True)
            self._piece, self._taken = piece, 0
        start, stop = self._taken, min(len(self._piece), self._taken + limit)
        batch = self._piece.batch(start, stop, self._setup.wall_clock(), self._record_type)
        self._taken = stop
        at = self._position
        self._position = _Position(at.file, at.split, at.records + stop - start)
        return Polled(batch)

    def take_changes(self) -> Iterable[bytes]:
        if not self._said_listed and self._listed:
            self._said_listed = True
            for start in range(0, max(1, len(self._files)), _LISTED_AT_ONCE):
                some = self._files[start : start + _LISTED_AT_ONCE]
                yield _LISTED + msgspec.msgpack.encode(some)
        if self._position != self._said_position:
            self._said_position = self._position
            yield _POSITION + msgspec.msgpack.encode(self._position)

    def close(self) -> None:
        self._pieces = iter(())

    def _read(self) -> Iterator[Piece]:
        """All that follows from the position; it is moved to each split before the split is read."""
        begin = self._position
        for index in range(begin.file, len(self._files)):
            file = self._files[index]
            for split in self._own_splits(file):
                given = 0
                if index == begin.file:
                    if split < begin.split:
                        continue
                    given = begin.records if split == begin.split else 0
                self._position = _Position(index, split, given)
                yield from _behind(self._reader.read(file, split), given)
        self._position = _Position(len(self._files), 0, 0)

    def _own_splits(self, file: FoundFile) -> Iterable[int]:
        context = self._setup.context
        first = (context.subtask_index - zlib.crc32(file.path.encode())) % context.parallelism
        return range(first, self._reader.splits(file), context.parallelism)

    def _reader_for(self, parameters: FileParameters) -> FileReader:
        match parameters.format:
            case "text":
                return TextReader()
            case "avro":
                return AvroReader(self._record_type, parameters.columns)
            case "parquet":
                return ParquetReader(self._record_type, parameters.columns)


def _behind(pieces: Iterator[Piece], records: int) -> Iterator[Piece]:
    """The pieces without so many records at the beginning."""
    for piece in pieces:
        if records >= len(piece):
            records -= len(piece)
        elif records:
            yield piece.slice(records)
            records = 0
        else:
            yield piece
