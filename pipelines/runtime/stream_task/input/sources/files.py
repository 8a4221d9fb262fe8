"""The file source: bounded and exact, without a coordinator that assigns work.

The subtask lists the files once, before the first record, and keeps the list in the changelog, so a restarted subtask
reads the same files. Split k of a file belongs to the subtask (hash of its path + k) % parallelism. Subtasks that list
at different times therefore never read a split twice, and they share large files evenly. The position is a file, a
split, and the number of the next record in the split. Records that Spark has dropped have numbers, too: so a position
is right whatever is dropped.

Where Spark reads, a thread reads ahead: a split is a job of Spark, which the task does not wait for.

After a change of parallelism, the unread rest of each old subtask's list is a *share*. The new subtasks divide its
splits by the same rule.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from ......schemas.types import OperatorConfig
from .....types import PICKLED, RecordType
from ....operators.files.avro_reader import AvroFileReader
from ....operators.files.file_reader import FileChunk, FileReader
from ....operators.files.parquet_reader import ParquetFileReader
from ....operators.files.source_storage import FoundFile, list_files
from ....operators.files.spark_reader import SparkFileReader
from ....operators.files.text_reader import TextFileReader
from ....spark.file_requests import SparkFormat
from ....spark.message_condition import head_conditions
from ....state_backend.stateful import Origin
from .read_ahead import ReadAhead
from .source import UNTIL_WOKEN_S, PollResult, Source, SourceSetup

_SHARE: Final = b"S"
_LISTED: Final = b"L"
_POSITION: Final = b"P"
_LISTED_AT_ONCE: Final = 2_000
"""The number of files in one message of the changelog, which may have 1 MiB."""


_NOTHING: Final = FileChunk(rows=[])


class FileParameters(msgspec.Struct, frozen=True):
    """The parameters of the source in OperatorConfig.parameters."""

    paths: list[str]
    format: Literal["text", "avro", "parquet", "spark-parquet", "spark-orc", "spark-json", "spark-csv"]
    """`spark-`: Spark reads the files."""
    columns: list[str] | None = None
    options: Mapping[str, str] | None = None
    """Of Spark's reader."""
    output_type: Any = None


class _Position(msgspec.Struct, frozen=True, array_like=True):
    file: int
    split: int
    records: int
    share: int = 0


class _Owner(msgspec.Struct, frozen=True, array_like=True):
    """One subtask of a number of subtasks."""

    subtask: int
    parallelism: int

    def first(self, path: str) -> int:
        """Returns the first split of a file that the subtask owns. The others follow in steps of the parallelism."""
        return (self.subtask - zlib.crc32(path.encode())) % self.parallelism


class _SplitAssignment(msgspec.Struct, frozen=True, array_like=True):
    """Files with the owners of their splits. Only splits that belong to all of the owners are read, from one file,
    split and record on."""

    owners: tuple[_Owner, ...]
    file: int = 0
    split: int = 0
    records: int = 0


class _Piece(msgspec.Struct, frozen=True):
    """What is read next: records, and the position of the first one; or a position that is reached."""

    position: _Position
    chunk: FileChunk = _NOTHING

    @property
    def size(self) -> int:
        """In bytes, at least one."""
        return self.chunk.size + 1


class _SplitState:
    """The assigned splits and the progress in them."""

    def __init__(self) -> None:
        self.shares: list[_SplitAssignment] = []
        self.files: list[list[FoundFile]] = []
        self.position = _Position(0, 0, 0)

    def apply(self, message: bytes, owner: _Owner) -> None:
        """Applies a message. Raises ValueError. `owner`: the subtask that wrote it."""
        match message[:1]:
            case b"S":
                self.add(msgspec.msgpack.decode(message[1:], type=_SplitAssignment), [])
            case b"L":
                if not self.shares:
                    self.add(_SplitAssignment((owner,)), [])
                self.files[-1] += msgspec.msgpack.decode(message[1:], type=list[FoundFile])
            case b"P":
                self.position = msgspec.msgpack.decode(message[1:], type=_Position)
            case kind:
                raise ValueError(f"the changelog holds a message of unknown kind {kind!r}")

    def add(self, share: _SplitAssignment, files: list[FoundFile]) -> None:
        """Adds an assignment after the others."""
        self.shares.append(share)
        self.files.append(files)
        if len(self.shares) == 1:
            self.position = _Position(share.file, share.split, share.records)

    def left(self) -> Iterator[tuple[_SplitAssignment, list[FoundFile]]]:
        """Yields the assignments with unread files."""
        at = self.position
        for index in range(at.share, len(self.shares)):
            share = self.shares[index]
            if index == at.share:
                share = _SplitAssignment(share.owners, at.file, at.split, at.records)
            yield share, self.files[index]

    def messages(self) -> Iterator[bytes]:
        """Yields the whole state as messages for `apply`."""
        for share, files in zip(self.shares, self.files, strict=True):
            yield _SHARE + msgspec.msgpack.encode(share)
            for start in range(0, len(files), _LISTED_AT_ONCE):
                yield _LISTED + msgspec.msgpack.encode(files[start : start + _LISTED_AT_ONCE])
        if self.shares:
            yield _POSITION + msgspec.msgpack.encode(self.position)


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
        self._state = _SplitState()
        self._origins: dict[Origin, _SplitState] = {}
        self._origin: Origin | None = None
        self._restored: list[bytes] = []
        self._reported_listing = False
        self._reported_position = self._state.position
        self._pieces: Iterator[_Piece | None] = iter(())
        self._chunk = _NOTHING
        self._first = 0
        """The number of the chunk's first record."""
        self._position = 0
        self._polled: tuple[_Position, int] | None = None
        """The position and the index in the chunk from which the last poll has read."""

    def restore(self, message: bytes) -> None:
        if self._origin is None:
            self._restored.append(message)
        else:
            owner = _Owner(self._origin.subtask_index, self._origin.parallelism)
            self._origins.setdefault(self._origin, _SplitState()).apply(message, owner)

    def restore_from(self, origin: Origin | None) -> None:
        self._origin = origin

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup
        self._reader = self._reader_for(self._parameters, setup)
        state = self._state
        own = _Owner(setup.context.subtask_index, setup.context.parallelism)
        for origin in self._origins.values():
            for share, files in origin.left():
                state.add(msgspec.structs.replace(share, owners=(*share.owners, own)), files)
        for message in self._restored:
            state.apply(message, own)
        self._reported_listing = bool(state.shares)
        if not state.shares:
            found = (file for path in self._parameters.paths for file in list_files(path))
            state.add(_SplitAssignment((own,)), list({file.path: file for file in found}.values()))
        self._reported_position = state.position
        self._pieces = self._read()
        if isinstance(self._reader, SparkFileReader) and setup.reads_ahead:
            self._pieces = ReadAhead(
                self._pieces, lambda piece: 0 if piece is None else piece.size, setup.wake
            )

    def poll(self, limit: int) -> PollResult:
        while self._position == len(self._chunk):
            try:
                piece = next(self._pieces)
            except StopIteration:
                return PollResult(has_ended=True)
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
        elif state.position != self._reported_position:
            self._reported_position = state.position
            yield _POSITION + msgspec.msgpack.encode(state.position)

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._state.messages())

    def close(self) -> None:
        if isinstance(self._pieces, ReadAhead):
            self._pieces.close()
        self._pieces = iter(())

    def _read(self) -> Iterator[_Piece | None]:
        """Yields everything after the position: for each split its position, then its records."""
        state, begin = self._state, self._state.position
        for index in range(begin.share, len(state.shares)):
            share, files = state.shares[index], state.files[index]
            if index > begin.share:
                begin = _Position(share.file, share.split, share.records, index)
            for number in range(begin.file, len(files)):
                for split in self._splits(share.owners, files[number]):
                    given = 0
                    if number == begin.file:
                        if split < begin.split:
                            continue
                        given = begin.records if split == begin.split else 0
                    at = _Position(number, split, given, index)
                    yield _Piece(at)
                    for chunk in _behind(self._reader.read(files[number], split), given):
                        yield _Piece(at, chunk)
                        following = chunk.number_of(len(chunk) - 1, at.records) + 1
                        at = msgspec.structs.replace(at, records=following)
            yield _Piece(_Position(len(files), 0, 0, index))

    def _splits(self, owners: Sequence[_Owner], file: FoundFile) -> Iterator[int]:
        first, *others = owners
        for split in range(first.first(file.path), self._reader.splits(file), first.parallelism):
            if all((split - other.first(file.path)) % other.parallelism == 0 for other in others):
                yield split

    def _reader_for(self, parameters: FileParameters, setup: SourceSetup) -> FileReader:
        match parameters.format:
            case "text":
                return TextFileReader()
            case "avro":
                return AvroFileReader(self._record_type, parameters.columns)
            case "parquet":
                return ParquetFileReader(self._record_type, parameters.columns)
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
