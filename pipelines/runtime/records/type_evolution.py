"""Reads records that were written as an older form of their type.

Fields are matched by name, so their order does not matter. A new field takes its default, a removed field is dropped,
`int` becomes `float`, and a value becomes an optional one. Nothing else is converted: `TypeMismatch` names the field
and both types. Tuples have no field names, and are matched by position. Pickled values are not converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ...types import ClassOf, ListOf, OptionalOf, RecordType, RecordTypeError, Scalar, TupleOf
from .record_validation import ValidatorFactory, default_values

Convert = Callable[[pa.Array], pa.Array]


class TypeMismatch(Exception):
    """Values of one type cannot be read as another; the text says which field and why."""


def to_layout(of: RecordType) -> Any:
    """Returns the type as JSON, without its classes, as it is stored beside values."""
    match of:
        case OptionalOf(item):
            return {"kind": "optional", "of": to_layout(item)}
        case ListOf(item):
            return {"kind": "list", "of": to_layout(item)}
        case TupleOf(items):
            return {"kind": "tuple", "of": list(map(to_layout, items))}
        case ClassOf(name, form, fields):
            return {
                "kind": form,
                "name": name,
                "fields": [[field, to_layout(field_type)] for field, field_type in fields],
                "class": "",
            }
        case _:
            return of.to_json()


def from_layout(layout: Any) -> RecordType:
    """Returns the type of a layout (`to_layout`). It can lay out columns, but not create objects. Raises
    RecordTypeError."""
    return RecordType.from_json(layout)


def without_classes(of: RecordType) -> RecordType:
    """Returns a type with the same columns that creates tuples instead of objects."""
    match of:
        case OptionalOf(item):
            return OptionalOf(without_classes(item))
        case ListOf(item):
            return ListOf(without_classes(item))
        case TupleOf() | ClassOf():
            return TupleOf(tuple(without_classes(column_type) for _, column_type in of.columns()))
        case _:
            return of


def describe_layout(of: RecordType) -> str:
    """Returns the type with the fields of its classes, for messages."""
    match of:
        case OptionalOf(item):
            return f"{describe_layout(item)} | None"
        case ListOf(item):
            return f"list[{describe_layout(item)}]"
        case TupleOf(items):
            return f"tuple[{', '.join(map(describe_layout, items))}]"
        case ClassOf(name, _, fields):
            return f"{name}({', '.join(f'{field}: {describe_layout(field_type)}' for field, field_type in fields)})"
        case _:
            return str(of)


def create_converter(written: RecordType, declared: RecordType, path: str = "") -> Convert | None:
    """Returns a function that converts written arrays to arrays of the declared type; None if they need no
    conversion.

    Loads the classes of the declared type if a default is needed. Raises TypeMismatch.
    """
    if to_layout(written) == to_layout(declared):
        return None
    match written, declared:
        case Scalar("int"), Scalar("float"):
            return _floats(path)
        case OptionalOf(item), OptionalOf(wanted):
            return _optional(create_converter(item, wanted, path))
        case _, OptionalOf(wanted):
            return create_converter(written, wanted, path)
        case ListOf(item), ListOf(wanted):
            return _list(create_converter(item, wanted, f"{path}[...]"))
        case TupleOf(items), TupleOf(wanted_items) if len(items) == len(wanted_items):
            steps = [
                _existing(i, create_converter(item, wanted, _joined(path, f"[{i}]")))
                for i, (item, wanted) in enumerate(zip(items, wanted_items, strict=True))
            ]
            return _struct(steps, declared)
        case ClassOf(), ClassOf() if written.name == declared.name:
            return _struct(_fields(written, declared, path), declared)
    what = f"its field {path}" if path else "it"
    raise TypeMismatch(f"{what} was {describe_layout(written)} and is {describe_layout(declared)}")


Step = Callable[[list[pa.Array], int], pa.Array]
"""(written columns, their length) -> a column of the declared type."""


def _fields(written: ClassOf, declared: ClassOf, path: str) -> list[Step]:
    places = {name: i for i, (name, _) in enumerate(written.fields)}
    defaults = default_values(declared.cls) if any(name not in places for name, _ in declared.fields) else {}
    steps = []
    for name, of in declared.fields:
        own = _joined(path, name)
        if name in places:
            steps.append(_existing(places[name], create_converter(written.fields[places[name]][1], of, own)))
        elif name in defaults:
            steps.append(_added(of, defaults[name], own))
        else:
            raise TypeMismatch(f"its field {own} is new and has no default")
    return steps


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _existing(place: int, convert: Convert | None) -> Step:
    return lambda columns, length: columns[place] if convert is None else convert(columns[place])


def _added(of: RecordType, default: Any, path: str) -> Step:
    def encode(values: list[Any]) -> pa.Array:
        try:
            return of.encode(values)
        except RecordTypeError as error:
            raise TypeMismatch(f"its field {path} is new, and its default does not fit: {error}") from error

    if isinstance(default, ValidatorFactory):
        return lambda columns, length: encode([default.make() for _ in range(length)])
    encode([default])
    return lambda columns, length: encode([default] * length)


def _struct(steps: list[Step], declared: RecordType) -> Convert:
    names = [name for name, _ in declared.columns()]

    def convert(array: pa.Array) -> pa.Array:
        columns = array.flatten()
        # The layout does not store whether a field may be null: only the values count.
        return pa.StructArray.from_arrays([step(columns, len(array)) for step in steps], names)

    return convert


def _floats(path: str) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        try:
            return array.cast(pa.float64())
        except pa.ArrowInvalid as error:
            raise TypeMismatch(
                f"its field {path or 'value'} has an int that no float represents exactly: {error}"
            ) from error

    return convert


def _optional(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None

    def converted(array: pa.Array) -> pa.Array:
        if array.null_count == 0:
            return convert(array)
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        order = pa.array(valid.cumsum() - 1, pa.int64(), mask=~valid)
        return convert(array.drop_null()).take(order)

    return converted


def _list(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None

    def converted(array: pa.Array) -> pa.Array:
        offsets = array.offsets.to_numpy()
        items = convert(array.flatten())
        return pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), items)

    return converted
