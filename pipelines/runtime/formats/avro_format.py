"""Avro: one datum in each message, after the head of the framing.

A reader takes the writer's schema from the head. With its own schema (given, or derived from the declared record type)
it resolves one into the other, as the Avro specification says. Without, a datum is fastavro's result: a dict for a
record.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa

from ...types import PICKLED, ClassOf, RecordType, TupleOf
from ..common.failures import TaskError
from ..records.batch import Batch
from ..records.record_validation import create_validator
from .avro_schema import Schema, derive_schema, given
from .format import Framing, MessagePart, ValueFormat
from .record_conversion import to_records
from .schema_registry import SchemaRegistry

SINGLE_OBJECT: Final = b"\xc3\x01"
CONFLUENT: Final = b"\x00"
_SINGLE_OBJECT_HEAD: Final = 10
_CONFLUENT_HEAD: Final = 5
_ID: Final = struct.Struct(">I")

Convert = Callable[[list[Any]], list[Any]]


class AvroReader:
    """See `factory.create_reader`."""

    def __init__(self, of: ValueFormat, record_type: RecordType, cache: Path | None = None) -> None:
        self._own = _own_schema(of, record_type)
        if self._own is None and of.framed is not Framing.REGISTRY:
            raise TaskError(
                f"Avro values with framing {of.framed} cannot be read without a schema:"
                " give one, or declare the type of the records"
            )
        self._framing = of.framed
        self._registry = SchemaRegistry.of_format(of, cache) if of.framed is Framing.REGISTRY else None
        self._head = b"" if self._own is None else SINGLE_OBJECT + self._own.fingerprint()
        self._convert = to_records(record_type)
        self._validate = create_validator(record_type, decoded=True)

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        read = {
            Framing.SINGLE_OBJECT: self._single_object,
            Framing.REGISTRY: self._registered,
            Framing.NONE: self._bare,
        }[self._framing]
        records = self._convert(list(map(read, values.to_pylist())))
        if self._validate is not None:
            self._validate(records, "$")
        return Batch(timestamps.to_numpy().tolist(), records)

    def _single_object(self, value: bytes) -> Any:
        head = value[:_SINGLE_OBJECT_HEAD]
        if head != self._head:
            raise ValueError(
                f"it begins with {head.hex(' ') or 'nothing'}, not with {self._head.hex(' ')}, the single-object"
                " encoding's head for the schema"
            )
        assert self._own is not None
        return _datum(value, _SINGLE_OBJECT_HEAD, self._own.parsed, None)

    def _registered(self, value: bytes) -> Any:
        if value[:1] != CONFLUENT or len(value) < _CONFLUENT_HEAD:
            raise ValueError(
                f"it begins with {value[:_CONFLUENT_HEAD].hex(' ') or 'nothing'}, not with 00 and a schema id"
            )
        assert self._registry is not None
        (schema_id,) = _ID.unpack_from(value, 1)
        writer = self._registry.schema(schema_id)
        return _datum(value, _CONFLUENT_HEAD, writer.parsed, self._own and self._own.parsed)

    def _bare(self, value: bytes) -> Any:
        assert self._own is not None
        return _datum(value, 0, self._own.parsed, None)


class AvroWriter:
    """See `factory.create_writer`. With a registry, the constructor registers the schema."""

    def __init__(
        self, of: ValueFormat, record_type: RecordType, topic: str, part: MessagePart = MessagePart.VALUE
    ) -> None:
        schema = given(of.schema) if of.schema is not None else derive_schema(record_type)
        self._schema = schema.parsed
        self._to_datum = _of_records(record_type)
        match of.framed:
            case Framing.SINGLE_OBJECT:
                self._head = SINGLE_OBJECT + schema.fingerprint()
            case Framing.REGISTRY:
                name = schema.parsed.get("name") if isinstance(schema.parsed, dict) else None
                subject = of.subject.subject(topic, part, name)
                registry = SchemaRegistry.of_format(of)
                schema_id = registry.find_id(subject, str(schema), "AVRO", register=of.register)
                self._head = CONFLUENT + _ID.pack(schema_id)
            case Framing.NONE:
                self._head = b""

    def write(self, batch: Batch) -> list[bytes]:
        schema, head = self._schema, self._head
        values = []
        for datum in self._to_datum(batch.values):
            stream = io.BytesIO()
            stream.write(head)
            fastavro.schemaless_writer(stream, schema, datum, strict_allow_default=True)
            values.append(stream.getvalue())
        return values


def _datum(value: bytes, start: int, writer: Any, reader: Any) -> Any:
    stream = io.BytesIO(value)
    stream.seek(start)
    try:
        datum = fastavro.schemaless_reader(stream, writer, reader)
    except (EOFError, IndexError, StopIteration) as error:
        raise ValueError(f"it ends within a record, after {len(value)} bytes") from error
    if stream.tell() != len(value):
        raise ValueError(f"{len(value) - stream.tell()} bytes follow the record")
    return datum


def _own_schema(of: ValueFormat, record_type: RecordType) -> Schema | None:
    if of.schema is not None:
        return given(of.schema)
    return None if record_type == PICKLED else derive_schema(record_type)


def _of_records(record_type: RecordType) -> Convert:
    match record_type:
        case ClassOf() | TupleOf():
            names = [name for name, _ in record_type.columns()]
            items = [_of_records(of) for _, of in record_type.columns()]

            def rows(records: list[Any]) -> list[Any]:
                columns = [
                    item(record_type._column(records, i))  # the type's own access to a field
                    for i, item in enumerate(items)
                ]
                return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

            return rows
        case _:
            return lambda records: list(map(_plain, records))


def _plain(value: Any) -> Any:
    """Converts objects with fields to dicts, and members of an enum to their values, at any depth."""
    match value:
        case Enum():
            return value.value
        case str() | int() | float() | bytes() | None:
            return value
        case dict():
            return {key: _plain(element) for key, element in value.items()}
        case list():
            return list(map(_plain, value))
        case tuple() if hasattr(value, "_asdict"):
            return {key: _plain(element) for key, element in value._asdict().items()}
        case tuple():
            return {f"f{i}": _plain(element) for i, element in enumerate(value)}
        case _ if hasattr(value, "__dataclass_fields__"):
            return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
        case _:
            return value
