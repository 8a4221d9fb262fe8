"""Checks whether the fields of a record type are those of a Protobuf message class.

A type of a field that is not declared completely, such as a dict, is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...functions.kafka_record import without_none
from ...graph import protobuf_classes
from ...types import PICKLED, ClassOf, ListOf, RecordType, Scalar

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor


def find_field_errors(name: str, records: RecordType, *, is_sink: bool) -> Iterator[str]:
    """Yields why a sink cannot write such records as messages of the class, or a source not read them."""
    try:
        message = protobuf_classes.load(name).DESCRIPTOR
    except ValueError as error:
        yield str(error)
        return
    yield from _find_errors(message, records, is_sink=is_sink)


def _find_errors(message: Descriptor, records: RecordType, *, is_sink: bool) -> Iterator[str]:
    if not isinstance(records, ClassOf):
        return
    for name, of in records.fields:
        field = message.fields_by_name.get(name)
        if field is None:
            there = ", ".join(message.fields_by_name) or "no fields"
            yield f"the message {message.full_name} has no field {name!r} of {records}; it has {there}"
        else:
            yield from _find_field_errors(field, without_none(of), is_sink=is_sink)


def _find_field_errors(field: FieldDescriptor, of: RecordType, *, is_sink: bool) -> Iterator[str]:
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    if of == PICKLED:
        return
    if field.is_repeated != isinstance(of, ListOf) or is_map:
        shown = "a map" if is_map else "repeated" if field.is_repeated else "not repeated"
        wanted = "dict" if is_map else "a list" if field.is_repeated else "no list"
        yield f"the field {field.full_name} is {shown}: declare {wanted}, not {of}"
        return
    item = without_none(of.item) if isinstance(of, ListOf) else of
    if item == PICKLED:
        return
    if field.message_type is not None:
        if isinstance(item, ClassOf):
            yield from _find_errors(field.message_type, item, is_sink=is_sink)
        else:
            yield f"the field {field.full_name} is a message: declare a dataclass or NamedTuple, not {item}"
        return
    types = _types(field, is_sink=is_sink)
    if not (isinstance(item, Scalar) and item.kind in types):
        yield f"the field {field.full_name} is of type {' or '.join(sorted(types))}, not {item}"


def _types(field: FieldDescriptor, *, is_sink: bool) -> set[str]:
    """Returns the types of a field that is no message. A sink takes an int for a float, and the number of an enum."""
    if field.enum_type is not None:
        return {"str", "int"} if is_sink else {"str"}
    if field.type == field.TYPE_BYTES:
        return {"bytes"}
    if field.type == field.TYPE_STRING:
        return {"str"}
    if field.type == field.TYPE_BOOL:
        return {"bool"}
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return {"float", "int"} if is_sink else {"float"}
    return {"int"} if is_sink else {"int", "float"}
