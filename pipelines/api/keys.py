"""Keys, and the fields of records that steps name: their selectors and their columns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..functions.adapters import Field, no_key
from ..graph.errors import ProgramError
from ..types import PICKLED, ClassOf, ListOf, OptionalOf, RecordType, Scalar, TupleOf
from .checks import is_field
from .signatures import SELECTOR, check_function
from .source_location import caller_location
from .type_hints import return_type


@dataclass(frozen=True, slots=True)
class Key:
    """How to find a record's key."""

    selector: Callable[[Any], Any]
    record_type: RecordType
    """The type of the key."""
    field: str | None = None
    """The column of the key, if the key is a column."""

    def parameters(self) -> Mapping[str, Any]:
        """The parameters of operators and HASH edges, without the selector."""
        return {"key_type": self.record_type.to_json(), "key_field": self.field}


NO_KEY = Key(no_key, Scalar("int"))
"""The key of all records of a stream without keys."""


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a stream's records."""

    name: str
    """The name of the Arrow column."""
    of: RecordType
    select: Callable[[Any], Any]


def key_of(records: RecordType, key: Callable[[Any], Any] | str | int, key_type: object, step: str) -> Key:
    """Returns the key for a function, a field's name or a position. Raises ProgramError."""
    location = caller_location()
    if isinstance(key_type, (int, str)):
        raise ProgramError(
            f"{key_type!r} is not the type of a key: for a key of several fields write a function that returns a tuple",
            operator=step,
            location=location,
        )
    if not is_field(key):
        check_function(key, SELECTOR, operator=step, location=location)
        selector: Any = key
        found = Key(selector, return_type(key) if key_type is None else RecordType.of(key_type))
    elif records == PICKLED:
        selector = Field(key) if isinstance(key, str) else operator.itemgetter(key)
        found = Key(selector, PICKLED if key_type is None else RecordType.of(key_type))
    else:
        column = column_of(records, key, step)
        found = Key(column.select, column.of, column.name)
    if not _has_stable_hash(found.record_type):
        raise ProgramError(
            f"a key of type {found.record_type} has no form that is the same in every process:"
            " let it be str, int, float, bool, bytes, None, or a tuple of them",
            operator=step,
            location=location,
        )
    return found


def common_key_type(first: Key, second: Key, step: str) -> RecordType:
    """Returns the type of the keys of two streams, which must have the same keys. Raises ProgramError."""
    one, other = first.record_type, second.record_type
    if one != other and PICKLED not in (one, other):
        raise ProgramError(
            f"the keys of the two streams differ: {one} and {other}; let their selectors return one type",
            operator=step,
            location=caller_location(),
        )
    return one if one == other else PICKLED


def column_of(records: RecordType, field: str | int, step: str) -> Column:
    """Returns the field with that name, or at that position of a tuple. Raises ProgramError if it does not exist."""

    def refuse(reason: str) -> ProgramError:
        return ProgramError(reason, operator=step, location=caller_location())

    if not is_field(field):
        raise refuse(f"{field!r} is neither the name nor the position of a field")
    match records:
        case TupleOf(items=items):
            position = _position(field)
            if position is not None and position < len(items):
                return Column(f"f{position}", items[position], operator.itemgetter(position))
        case ClassOf(form=form, fields=fields):
            if isinstance(field, int) and form == "named_tuple" and 0 <= field < len(fields):
                field = fields[field][0]
            for name, of in fields:
                if name == field:
                    return Column(name, of, operator.attrgetter(name))
        case _ if records == PICKLED:
            raise refuse(
                f"the type of the records is not known, so they have no field {field!r}:"
                " declare output_type, or returns(), on the step before"
            )
        case _:
            pass
    names = ", ".join(name for name, _ in records.columns()) if _has_fields(records) else "none"
    raise refuse(f"{records} has no field {field!r}; its fields: {names}")


def field_selector(records: RecordType, field: str | int, step: str) -> Callable[[Any], Any]:
    """Returns a function that takes the field out of a record of known or unknown type. Raises ProgramError."""
    if records == PICKLED and isinstance(field, str):
        return Field(field)
    return column_of(records, field, step).select


def _has_fields(records: RecordType) -> bool:
    return isinstance(records, (TupleOf, ClassOf))


def _position(field: str | int) -> int | None:
    if isinstance(field, int):
        return field if field >= 0 else None
    return int(field[1:]) if field[:1] == "f" and field[1:].isdecimal() else None


def _has_stable_hash(of: RecordType) -> bool:
    match of:
        case ListOf():
            return False
        case OptionalOf(item=item):
            return _has_stable_hash(item)
        case TupleOf(items=items):
            return all(map(_has_stable_hash, items))
        case ClassOf(fields=fields):
            return all(_has_stable_hash(item) for _, item in fields)
        case _:
            return True
