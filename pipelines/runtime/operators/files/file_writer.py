"""Writes records into a file, in two steps.

Records become *chunks*, which go into the changelog while a file is being filled. A complete file is written from its
chunks. The same chunks give the same file, because it may have to be written again after a crash.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, BinaryIO, Final, Literal, Protocol

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from ....graph.csv_options import to_csv_options
from ....types import ClassOf, ListOf, OptionalOf, Pickled, RecordType, TupleOf
from ...common.failures import TaskError
from ...formats.avro_schema import derive_schema
from ...formats.factory import create_writer
from ...formats.format import FormatKind, ValueFormat, ValueWriter
from ...records.batch import Batch
from ...spark.file_requests import HAS_SCHEMA, SparkFiles, SparkFormat

SinkFormat = Literal[
    "text", "json", "csv", "avro", "parquet", "orc", "protobuf",
    "spark-parquet", "spark-orc", "spark-json", "spark-csv",
]  # fmt: skip
_SYNC_BYTES: Final = 16
_ONE_BLOCK: Final = 1 << 40
_DEFLATE_LEVEL: Final = 1
_RAW_DEFLATE: Final = -15
_SUFFIXES: Final = {
    "gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst", "lz4": ".lz4", "snappy": ".snappy", "deflate": ".deflate",
}  # fmt: skip
"""Of Spark's compression of text."""


class FileWriter(Protocol):
    """Writes files of one format."""

    suffix: str
    """The suffix of the file's name."""

    def chunk(self, batch: Batch) -> bytes:
        """Encodes one or more records. Raises any error if a record does not fit."""

    def write(self, chunks: Sequence[bytes], out: BinaryIO) -> None:
        """Writes a file from these chunks. Raises OSError."""


def file_writer(
    kind: SinkFormat,
    record_type: RecordType,
    options: Mapping[str, str] | None = None,
    spark: SparkFiles | None = None,
    named_above: Sequence[str] = (),
    message: str | None = None,
) -> FileWriter:
    """Returns the writer for records of the type. `options`: of CSV files or of Spark's writer. `message`: the class
    of Protobuf messages.

    `named_above`: the fields whose values the directories of a file name. Files of columns do not repeat them.

    Raises TaskError if they need a declared type.
    """
    match kind:
        case "text":
            return LineWriter(create_writer(ValueFormat(FormatKind.TEXT), record_type, ""), ".txt")
        case "json":
            return LineWriter(create_writer(ValueFormat(FormatKind.JSON), record_type, ""), ".jsonl")
        case "avro":
            return AvroFileWriter(record_type)
        case "protobuf":
            of = ValueFormat(FormatKind.PROTOBUF, message=message)
            return DelimitedWriter(create_writer(of, record_type, ""), ".pb")
        case "parquet":
            return ParquetFileWriter(record_type, named_above)
        case "orc":
            return OrcFileWriter(record_type, named_above)
        case "csv":
            return CsvFileWriter(record_type, options or {}, named_above)
        case by_spark:
            form: Any = by_spark.removeprefix("spark-")
            return SparkFileWriter(form, options or {}, record_type, spark, named_above)


class LineWriter:
    """Writes a line for each record."""

    def __init__(self, writer: ValueWriter, suffix: str) -> None:
        self._writer = writer
        self.suffix = suffix

    def chunk(self, batch: Batch) -> bytes:
        return b"\n".join([*self._writer.write(batch), b""])

    def write(self, chunks: Sequence[bytes], out: BinaryIO) -> None:
        out.writelines(chunks)


class DelimitedWriter(LineWriter):
    """Writes each record with its length before it, as a varint."""

    def chunk(self, batch: Batch) -> bytes:
        return b"".join(part for value in self._writer.write(batch) for part in (_varint(len(value)), value))


class _AvroChunk(msgspec.Struct, frozen=True, array_like=True):
    records: int
    data: bytes


class AvroFileWriter:
    """Writes an object container file with a deflated block for each chunk. The schema follows from the record type."""

    suffix = ".avro"

    def __init__(self, record_type: RecordType) -> None:
        self._record_type = record_type
        self._schema = derive_schema(record_type).parsed
        self._header_size = len(self._file([], "null", bytes(_SYNC_BYTES)))

    def chunk(self, batch: Batch) -> bytes:
        columns = batch.columns(self._record_type)
        if isinstance(self._record_type, (ClassOf, TupleOf)):
            schema = self._record_type.schema()
            records = pa.RecordBatch.from_arrays(columns, schema=schema).to_pylist()
        else:
            (column,) = columns
            records = column.to_pylist()
        # One block: its number of records, its size, its data, and the marker.
        file = self._file(records, "null", bytes(_SYNC_BYTES))
        start = _behind_long(file, _behind_long(file, self._header_size))
        return msgspec.msgpack.encode(_AvroChunk(len(records), file[start:-_SYNC_BYTES]))

    def write(self, chunks: Sequence[bytes], out: BinaryIO) -> None:
        # Any 16 bytes that do not occur in the data are valid; derived from the data, they are the same each time.
        digests = b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)
        sync = hashlib.sha256(digests).digest()[:_SYNC_BYTES]
        out.write(self._file([], "deflate", sync))
        for chunk in chunks:
            block = msgspec.msgpack.decode(chunk, type=_AvroChunk)
            packer = zlib.compressobj(_DEFLATE_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
            packed = packer.compress(block.data) + packer.flush()
            out.write(_long(block.records) + _long(len(packed)) + packed + sync)

    def _file(self, records: list[Any], codec: str, sync: bytes) -> bytes:
        out = BytesIO()
        fastavro.writer(out, self._schema, records, codec=codec, sync_interval=_ONE_BLOCK, sync_marker=sync)
        return out.getvalue()


class ParquetFileWriter:
    """Writes the columns of the record type; without declared columns, those that Arrow infers from the records'
    fields."""

    suffix = ".parquet"

    def __init__(self, record_type: RecordType, named_above: Sequence[str] = ()) -> None:
        self._record_type = record_type
        self._named_above = list(named_above)
        self._schema = None if _undeclared(record_type) else record_type.schema()

    def chunk(self, batch: Batch) -> bytes:
        if self._schema is not None:
            columns = batch.columns(self._record_type)
            table = pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=self._schema)])
        else:
            table = pa.Table.from_pylist(list(map(_fields, batch.values)))
        table = table.drop_columns(self._named_above)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def write(self, chunks: Sequence[bytes], out: BinaryIO) -> None:
        pq.write_table(_table(chunks), out)


class OrcFileWriter(ParquetFileWriter):
    """Writes the same columns as ORC."""

    suffix = ".orc"

    def write(self, chunks: Sequence[bytes], out: BinaryIO) -> None:
        orc.write_table(_table(chunks), out, compression="zstd")


class CsvFileWriter:
    """Writes a row of values for each record. Texts are in quotes, a missing value is empty without quotes."""

    suffix = ".csv"

    def __init__(
        self, record_type: RecordType, options: Mapping[str, str], named_above: Sequence[str] = ()
    ) -> None:
        self._record_type = record_type
        self._named_above = list(named_above)
        self._options = to_csv_options(options)

    def chunk(self, batch: Batch) -> bytes:
        schema = self._record_type.schema()
        rows = pa.RecordBatch.from_arrays(batch.columns(self._record_type), schema=schema)
        return self._encode(rows.drop_columns(self._named_above), has_header=False)

    def write(self, chunks: Sequence[bytes], out: BinaryIO) -> None:
        if self._options.header:
            columns = self._record_type.schema().empty_table().drop_columns(self._named_above)
            out.write(self._encode(columns, has_header=True))
        out.writelines(chunks)

    def _encode(self, rows: pa.RecordBatch | pa.Table, *, has_header: bool) -> bytes:
        sink = pa.BufferOutputStream()
        how = arrow_csv.WriteOptions(include_header=has_header, delimiter=self._options.delimiter)
        arrow_csv.write_csv(rows, sink, how)
        data: bytes = sink.getvalue().to_pybytes()
        return data


class SparkFileWriter(ParquetFileWriter):
    """Lets Spark write the file."""

    def __init__(
        self,
        format: SparkFormat,
        options: Mapping[str, str],
        record_type: RecordType,
        spark: SparkFiles | None,
        named_above: Sequence[str] = (),
    ) -> None:
        super().__init__(record_type, named_above)
        if spark is None:
            raise TaskError("there is no Spark to write files here")
        self._format: SparkFormat = format
        self._options = options
        self._spark = spark
        compression = next(
            (value.lower() for name, value in options.items() if name.lower() == "compression"), "none"
        )
        # Readers of text look at the suffix.
        packed = "" if format in HAS_SCHEMA else _SUFFIXES.get(compression, "")
        self.suffix = f".{format}{packed}"

    def write(self, chunks: Sequence[bytes], out: BinaryIO) -> None:
        out.write(self._spark.write_file(_table(chunks), self._format, self._options))


def _table(chunks: Sequence[bytes]) -> pa.Table:
    tables = [pa.ipc.open_stream(chunk).read_all() for chunk in chunks]
    return pa.concat_tables(tables, promote_options="permissive")


def _undeclared(of: RecordType) -> bool:
    match of:
        case Pickled():
            return True
        case OptionalOf(item) | ListOf(item):
            return _undeclared(item)
        case ClassOf() | TupleOf():
            return any(_undeclared(column_type) for _, column_type in of.columns())
        case _:
            return False


def _fields(record: Any) -> dict[str, Any]:
    if isinstance(record, dict):
        return record
    if hasattr(record, "_asdict"):
        return dict(record._asdict())
    if isinstance(record, tuple):
        return {f"f{i}": value for i, value in enumerate(record)}
    if names := getattr(record, "__dataclass_fields__", None):
        return {name: getattr(record, name) for name in names}
    raise TypeError(
        f"a Parquet file needs records with fields, not {type(record).__name__}: {record!r:.60};"
        " map them to a dict, a dataclass or a NamedTuple"
    )


def _long(value: int) -> bytes:
    """Encodes an Avro long that is not negative: twice the number (zigzag)."""
    return _varint(value << 1)


def _varint(value: int) -> bytes:
    """Encodes a number with seven bits in each byte."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _behind_long(data: bytes, at: int) -> int:
    """Returns the position after the Avro long that begins at `at`."""
    while data[at] > 0x7F:
        at += 1
    return at + 1
