"""The file source: bounded and exact, without a coordinator that assigns work.

The subtask lists the files once, before the first record, and keeps the list in the changelog, so a restarted subtask
reads the same files. If it watches the paths, it lists them again when all is read, and keeps what it has found
(file_splits.py). Split k of a file belongs to the subtask (hash of its path + k) % parallelism. Subtasks that list at
different times therefore never read a split twice, and they share large files evenly. The position is a file, a split,
and the number of the next record in the split. Records that Spark has dropped have numbers, too: so a position is right
whatever is dropped.

Where Spark reads, a thread reads ahead: a split is a job of Spark, which the task does not wait for.

After a change of parallelism, the unread rest of each old subtask's list is a *share*. The new subtasks divide its
splits by the same rule.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from ......schemas.types import OperatorConfig
from .....types import PICKLED, RecordType
from ....operators.files.avro_reader import AvroFileReader
from ....operators.files.csv_reader import CsvFileReader
from ....operators.files.file_reader import FileChunk, FileReader
from ....operators.files.orc_reader import OrcFileReader
from ....operators.files.parquet_reader import ParquetFileReader
from ....operators.files.protobuf_reader import ProtobufFileReader
from ....operators.files.source_storage import FoundFile, list_files
from ....operators.files.spark_reader import SparkFileReader
from ....operators.files.text_reader import TextFileReader
from ....spark.file_requests import SparkFormat
from ....spark.message_condition import head_conditions
from ....state_backend.stateful import Origin
from .directory_watch import DirectoryWatch
from .file_splits import FileSplits, KnownFiles, SplitAssignment, SplitOwner, SplitPosition
from .read_ahead import ReadAhead
from .source import UNTIL_WOKEN_S, PollResult, Source, SourceSetup

_log = logging.getLogger(__name__)
_NOTHING: Final = FileChunk(rows=[])


class FileParameters(msgspec.Struct, frozen=True):
    """The parameters of the source in OperatorConfig.parameters."""

    paths: list[str]
    format: Literal[
        "text", "csv", "avro", "parquet", "orc", "protobuf",
        "spark-parquet", "spark-orc", "spark-json", "spark-csv",
    ]  # fmt: skip
    """`spark-`: Spark reads the files."""
    columns: list[str] | None = None
    options: Mapping[str, str] | None = None
    """Of CSV files (graph/csv_options.py), or of Spark's reader."""
    message: str | None = None
    """The message class of Protobuf files (graph/protobuf_classes.py)."""
    output_type: Any = None
    monitor_ms: int | None = None
    """The time between two listings; None: the paths are listed once."""
    max_age_ms: int = 0
    """How much older than the newest file a new one may be."""


class _Piece(msgspec.Struct, frozen=True):
    """What is read next: records, and the position of the first one; or a position that is reached."""

    position: SplitPosition
    chunk: FileChunk = _NOTHING

    @property
    def size(self) -> int:
        """In bytes, at least one."""
        return self.chunk.size + 1


class FilesSource(Source):
    """Reads the splits of one subtask in the order of their paths."""

    def __init__(self, config: OperatorConfig, head: Sequence[OperatorConfig] = ()) -> None:
        """`head`: the expressions in SQL right behind the source."""
        parameters = msgspec.convert(json.loads(config.parameters), FileParameters)
        form = parameters.output_type
        self._parameters = parameters
        self._record_type = PICKLED if form is None else RecordType.from_json(form)
        self._head = head
        self._reader: FileReader
        self._state = self._no_splits()
        self._origins: dict[Origin, FileSplits] = {}
        self._origin: Origin | None = None
        self._restored: list[bytes] = []
        self._reported_listing = False
        self._unreported: list[bytes] = []
        self._watch: DirectoryWatch[list[FoundFile]] | None = None
        self._reported_position = self._state.position
        self._pieces: Iterator[_Piece | None] = iter(())
        self._chunk = _NOTHING
        self._first = 0
        """The number of the chunk's first record."""
        self._position = 0
        self._polled: tuple[SplitPosition, int] | None = None
        """The position and the index in the chunk from which the last poll has read."""

    def restore(self, message: bytes) -> None:
        if self._origin is None:
            self._restored.append(message)
        else:
            owner = SplitOwner(self._origin.subtask_index, self._origin.parallelism)
            self._origins.setdefault(self._origin, self._no_splits()).apply(message, owner)

    def restore_from(self, origin: Origin | None) -> None:
        self._origin = origin

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup
        self._reader = self._reader_for(self._parameters, setup)
        state = self._state
        self._own = own = SplitOwner(setup.context.subtask_index, setup.context.parallelism)
        state.take_over(self._origins, own, setup.wall_clock())
        for message in self._restored:
            state.apply(message, own)
        self._reported_listing = bool(state.shares)
        if not state.shares:
            state.add(SplitAssignment((own,)), self._list())
        self._reported_position = state.position
        self._pieces = self._open_pieces()
        if (interval_ms := self._parameters.monitor_ms) is not None:
            self._watch = DirectoryWatch(self._list, interval_ms, setup)

    def poll(self, limit: int) -> PollResult:
        while self._position == len(self._chunk):
            try:
                piece = next(self._pieces)
            except StopIteration:
                if self._watch is None:
                    return PollResult(has_ended=True)
                if (found := self._watch.take()) is None:
                    return PollResult(wait_s=self._watch.wait_s)
                self._take_in(found, self._state.known)
                continue
            if piece is None:
                return PollResult(wait_s=UNTIL_WOKEN_S)
            self._chunk, self._position, self._first = piece.chunk, 0, piece.position.records
            self._state.position = piece.position
        start, stop = self._position, min(len(self._chunk), self._position + limit)
        batch = self._chunk.batch(start, stop, self._setup.wall_clock(), self._record_type)
        self._position = stop
        at = self._state.position
        self._polled = at, start
        following = self._chunk.number_of(stop - 1, self._first) + 1
        self._state.position = msgspec.structs.replace(at, records=following)
        return PollResult(batch)

    def place(self, index: int | None) -> str | None:
        if index is None or self._polled is None:
            return None
        at, start = self._polled
        path = self._state.files[at.share][at.file].path
        return f"{path}, {self._reader.place(at.split, self._chunk.number_of(start + index, self._first))}"

    def take_changes(self) -> Iterable[bytes]:
        state = self._state
        if not self._reported_listing and state.shares:
            self._reported_listing = True
            self._reported_position = state.position
            yield from state.messages()
        else:
            yield from self._unreported
            if state.position != self._reported_position:
                self._reported_position = state.position
                yield state.position_message()
        self._unreported.clear()
        if self._watch is not None:
            yield from state.drop_read()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._state.messages())

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._close_pieces()

    def _no_splits(self) -> FileSplits:
        watched = self._parameters.monitor_ms is not None
        return FileSplits(KnownFiles(self._parameters.max_age_ms) if watched else None)

    def _list(self) -> list[FoundFile]:
        may_be_empty = self._parameters.monitor_ms is not None
        found = (
            file for path in self._parameters.paths for file in list_files(path, may_be_empty=may_be_empty)
        )
        return list({file.path: file for file in found}.values())

    def _take_in(self, found: list[FoundFile], known: KnownFiles | None) -> None:
        """Adds the new ones of a list of files."""
        assert known is not None
        now = self._setup.wall_clock()
        new = [file for file in found if not known.has(file, now)]
        for file in found:
            if known.is_changed(file):
                known.add(file)
                if self._own.first(file.path) == 0:
                    _log.warning(
                        "%s has changed since it was found, and is not read again: write into new files",
                        file.path,
                    )
        known.forget(now)
        if new:
            number = self._state.add(SplitAssignment((self._own,)), new)
            self._unreported += self._state.share_messages(number)
            self._close_pieces()
            self._pieces = self._open_pieces()

    def _open_pieces(self) -> Iterator[_Piece | None]:
        pieces = self._read()
        if isinstance(self._reader, SparkFileReader) and self._setup.reads_ahead:
            return ReadAhead(pieces, lambda piece: 0 if piece is None else piece.size, self._setup.wake)
        return pieces

    def _close_pieces(self) -> None:
        if isinstance(self._pieces, ReadAhead):
            self._pieces.close()
        self._pieces = iter(())

    def _read(self) -> Iterator[_Piece | None]:
        """Yields everything after the position: for each split its position, then its records."""
        state, begin = self._state, self._state.position
        for index in state.numbers():
            share, files = state.shares[index], state.files[index]
            if index > begin.share:
                begin = SplitPosition(share.file, share.split, share.records, index)
            for number in range(begin.file, len(files)):
                for split in self._splits(share.owners, files[number]):
                    given = 0
                    if number == begin.file:
                        if split < begin.split:
                            continue
                        given = begin.records if split == begin.split else 0
                    at = SplitPosition(number, split, given, index)
                    yield _Piece(at)
                    for chunk in _behind(self._reader.read(files[number], split), given):
                        yield _Piece(at, chunk)
                        following = chunk.number_of(len(chunk) - 1, at.records) + 1
                        at = msgspec.structs.replace(at, records=following)
            yield _Piece(SplitPosition(len(files), 0, 0, index))

    def _splits(self, owners: Sequence[SplitOwner], file: FoundFile) -> Iterator[int]:
        first, *others = owners
        for split in range(first.first(file.path), self._reader.splits(file), first.parallelism):
            if all((split - other.first(file.path)) % other.parallelism == 0 for other in others):
                yield split

    def _reader_for(self, parameters: FileParameters, setup: SourceSetup) -> FileReader:
        match parameters.format:
            case "text":
                return TextFileReader()
            case "csv":
                return CsvFileReader(self._record_type, parameters.columns, parameters.options or {})
            case "orc":
                return OrcFileReader(self._record_type, parameters.columns)
            case "avro":
                return AvroFileReader(self._record_type, parameters.columns)
            case "parquet":
                return ParquetFileReader(self._record_type, parameters.columns)
            case "protobuf":
                return ProtobufFileReader(self._record_type, parameters.message)
            case by_spark:
                form: Any = by_spark.removeprefix("spark-")
                of: SparkFormat = form
                conditions = head_conditions(self._record_type, self._head) if self._head else ()
                return SparkFileReader(
                    of, parameters.options or {}, self._record_type, tuple(conditions), setup.spark
                )


def _behind(pieces: Iterator[FileChunk], records: int) -> Iterator[FileChunk]:
    """Skips the records with numbers below `records`."""
    for piece in pieces:
        if piece.numbers is not None:
            start = int(np.searchsorted(piece.numbers.to_numpy(), records))
            if start < len(piece):
                yield piece.slice(start) if start else piece
        elif records >= len(piece):
            records -= len(piece)
        elif records:
            yield piece.slice(records)
            records = 0
        else:
            yield piece
