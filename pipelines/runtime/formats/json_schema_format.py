"""JSON with a JSON Schema in a registry: Confluent's wire format, a zero byte, the schema's id, and a JSON value.

A reader checks a value against the schema that it names, and then reads it as plain JSON. A writer registers its
schema, given or derived from the record type, and checks records against a given one.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from ...types import PICKLED, RecordType
from ..common.failures import TaskError
from ..records.batch import Batch
from .format import MessagePart, ValueFormat
from .json_format import JsonReader, JsonWriter
from .record_conversion import create_conversion
from .schema_registry import RegisteredText, SchemaRegistry

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_HEAD: Final = 5
_ID: Final = struct.Struct(">I")


class JsonSchemaReader:
    """See `factory.create_reader`."""

    def __init__(self, of: ValueFormat, record_type: RecordType, cache: Path | None = None) -> None:
        self._registry = SchemaRegistry.of_format(of, cache)
        self._plain = JsonReader(record_type)
        self._validators: dict[int, Validator] = {}

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        contents = [self._checked(value) for value in values.to_pylist()]
        return self._plain.read(timestamps, pa.array(contents, pa.binary()))

    def _checked(self, value: bytes) -> bytes:
        if value[:1] != b"\0" or len(value) < _HEAD:
            raise ValueError(
                f"it begins with {value[:_HEAD].hex(' ') or 'nothing'}, not with 00 and a schema id"
            )
        (schema_id,) = _ID.unpack_from(value, 1)
        content = value[_HEAD:]
        _check(self._validator(schema_id), msgspec.json.decode(content))
        return content

    def _validator(self, schema_id: int) -> Validator:
        if schema_id not in self._validators:
            self._validators[schema_id] = _create_validator(self._registry.texts(schema_id))
        return self._validators[schema_id]


class JsonSchemaWriter:
    """See `factory.create_writer`."""

    def __init__(
        self, of: ValueFormat, record_type: RecordType, topic: str, part: MessagePart = MessagePart.VALUE
    ) -> None:
        text = of.schema or json.dumps(_derive(record_type))
        form = json.loads(text)
        name = form.get("title") if isinstance(form, dict) else None
        subject = of.subject.subject(topic, part, name)
        schema_id = SchemaRegistry.of_format(of).find_id(subject, text, "JSON", register=of.register)
        self._head = b"\0" + _ID.pack(schema_id)
        self._plain = JsonWriter(record_type)
        self._validator = None if of.schema is None else _create_validator([RegisteredText("", text)])

    def write(self, batch: Batch) -> list[bytes]:
        values = self._plain.write(batch)
        if self._validator is not None:
            for value in values:
                _check(self._validator, msgspec.json.decode(value))
        return [self._head + value for value in values]


def _derive(record_type: RecordType) -> dict[str, Any]:
    if record_type == PICKLED:
        raise TaskError(
            "no JSON Schema follows from records whose type is not declared: give a schema, or declare the output_type"
            " of the operator before it"
        )
    schema = msgspec.json.schema(create_conversion(record_type).type)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": str(record_type), **schema}


def _create_validator(texts: list[RegisteredText]) -> Validator:
    """Returns the validator of the last schema; it may refer to the others by their names."""
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    *references, own = texts
    registry: Registry[Any] = Registry().with_resources(
        (each.name, Resource.from_contents(json.loads(each.text), default_specification=DRAFT7))
        for each in references
    )
    schema = json.loads(own.text)
    made: Validator = validator_for(schema)(schema, registry=registry)
    return made


def _check(validator: Validator, value: Any) -> None:
    for error in validator.iter_errors(value):
        raise ValueError(f"{error.message[:200]} - at `{error.json_path}`")
