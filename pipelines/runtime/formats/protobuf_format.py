"""Protobuf: one message in each value, in Confluent's wire format with a registry, else alone.

Confluent's format is a zero byte, the schema's id, the indexes of the message in the schema, and the message. Without
a declared type a record is a message of the given class, or without a class a dict. A reader with a registry finds out
which message a value has, and refuses another one than that of the class: any bytes may be read as a wrong message.

A dict has each field by its name. A field that can be absent and is absent is None; an enum is the name of its value,
or its number if the schema has no name; a map is a dict.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from ...graph import protobuf_classes
from ...types import PICKLED, RecordType
from ..common.failures import TaskError
from ..records.batch import Batch
from ..records.record_validation import create_validator
from .format import MessagePart, ValueFormat
from .record_conversion import create_conversion, to_records
from .schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_HEAD: Final = 5
_ID: Final = struct.Struct(">I")


class ProtobufReader:
    """See `factory.create_reader`."""

    def __init__(self, of: ValueFormat, record_type: RecordType, cache: Path | None = None) -> None:
        self._class = _load_class(of)
        self._registry = None if of.registry is None else SchemaRegistry.of_format(of, cache)
        if self._class is None and self._registry is None:
            raise TaskError(
                "Protobuf values without a registry cannot be read without a message class: give one"
            )
        self._classes: dict[tuple[int, tuple[int, ...]], type[Message]] = {}
        self._reads_messages = self._class is not None and record_type == PICKLED
        self._convert = to_records(record_type)
        self._validate = create_validator(record_type, decoded=True)
        self._dicts = _DictConverter()

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        records: list[Any] = list(map(self._message, values.to_pylist()))
        if not self._reads_messages:
            records = self._convert(list(map(self._dicts.to_dict, records)))
            if self._validate is not None:
                self._validate(records, "$")
        return Batch(timestamps.to_numpy().tolist(), records)

    def _message(self, value: bytes) -> Message:
        if self._registry is None:
            assert self._class is not None
            return self._class.FromString(value)
        from . import protobuf_schema as schemas

        if value[:1] != b"\0" or len(value) < _HEAD:
            raise ValueError(
                f"it begins with {value[:_HEAD].hex(' ') or 'nothing'}, not with 00 and a schema id"
            )
        (schema_id,) = _ID.unpack_from(value, 1)
        indexes, start = schemas.read_indexes(value, _HEAD)
        return self._class_of(self._registry, schema_id, indexes).FromString(value[start:])

    def _class_of(self, registry: SchemaRegistry, schema_id: int, indexes: tuple[int, ...]) -> type[Message]:
        found = self._classes.get((schema_id, indexes))
        if found is None:
            from google.protobuf.message_factory import GetMessageClass

            from . import protobuf_schema as schemas

            file = schemas.parse_file(registry.texts(schema_id, "serialized"))
            message = schemas.find_message(file, indexes)
            own = self._class
            if own is not None and own.DESCRIPTOR.full_name != message.full_name:
                raise ValueError(f"it is a {message.full_name}, not a {own.DESCRIPTOR.full_name}")
            found = self._classes[schema_id, indexes] = own or GetMessageClass(message)
        return found


class ProtobufWriter:
    """See `factory.create_writer`. With a registry, the constructor registers the schema of the class."""

    def __init__(
        self, of: ValueFormat, record_type: RecordType, topic: str, part: MessagePart = MessagePart.VALUE
    ) -> None:
        cls = _load_class(of)
        if cls is None:
            raise TaskError("Protobuf values cannot be written without a message class: give one")
        self._class = cls
        self._of_record = create_conversion(record_type).of_record
        self._head = b""
        if of.registry is not None:
            from . import protobuf_schema as schemas

            message = cls.DESCRIPTOR
            subject = of.subject.subject(topic, part, message.full_name)
            schema_id = schemas.register(
                SchemaRegistry.of_format(of), subject, message.file, is_new=of.register
            )
            self._head = b"\0" + _ID.pack(schema_id) + schemas.write_indexes(schemas.indexes_of(message))

    def write(self, batch: Batch) -> list[bytes]:
        # Deterministic, because equal keys must have equal bytes: a map has no order.
        return [
            self._head + self._message(record).SerializeToString(deterministic=True)
            for record in batch.values
        ]

    def _message(self, record: Any) -> Message:
        if isinstance(record, self._class):
            return record
        shape = record if self._of_record is None else self._of_record(record)
        fields = msgspec.to_builtins(shape, builtin_types=(bytes,))
        if not isinstance(fields, dict):
            raise TypeError(
                f"a {type(record).__name__} has no fields with names: emit {self._class.DESCRIPTOR.full_name}, a dict,"
                " a dataclass or a NamedTuple"
            )
        return self._class(**fields)


class _DictConverter:
    """Converts messages to dicts. Keeps the fields of each type of message."""

    def __init__(self) -> None:
        self._fields: dict[Descriptor, list[tuple[str, bool, Callable[[Any], Any]]]] = {}

    def to_dict(self, message: Message) -> dict[str, Any]:
        """Returns the fields of a message."""
        descriptor = message.DESCRIPTOR
        fields = self._fields.get(descriptor)
        if fields is None:
            fields = self._fields[descriptor] = [
                (field.name, field.has_presence, self._converter(field)) for field in descriptor.fields
            ]
        return {
            name: None if can_be_absent and not message.HasField(name) else convert(getattr(message, name))
            for name, can_be_absent, convert in fields
        }

    def _converter(self, field: FieldDescriptor) -> Callable[[Any], Any]:
        if not field.is_repeated:
            return self._single(field)
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            value = self._single(inner.fields_by_name["value"])
            return lambda entries: {key: value(entries[key]) for key in entries}
        item = self._single(field)
        return lambda items: list(map(item, items))

    def _single(self, field: FieldDescriptor) -> Callable[[Any], Any]:
        if field.message_type is not None:
            return self.to_dict
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return lambda value: value


def _load_class(of: ValueFormat) -> type[Message] | None:
    """Raises TaskError."""
    try:
        protobuf_classes.check_protobuf()
        return None if of.message is None else protobuf_classes.load(of.message)
    except ValueError as error:
        raise TaskError(str(error)) from error
