"""Converts Arrow data of users into the columns of a record type.

Columns are matched by name, in any order; surplus columns are dropped. A value is converted if nothing is lost (an
int32 column for an `int` field), and refused otherwise, with the column and a remedy. A field of a class without a
layout (an enum, a set, a class with `__post_init__`) is converted as its type hint says. Other pickled columns may hold
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from ...sentinels import class_hints
from ...types import PICKLED, ClassOf, ListOf, OptionalOf, Pickled, RecordType, RecordTypeError, TupleOf

Convert = Callable[[pa.Array], pa.Array]


def coerce_batch(table: pa.Table | pa.RecordBatch, record_type: RecordType) -> list[pa.Array]:
    """Returns the columns of the record type from a table's. Raises RecordTypeError if they do not fit.

    A type of one column takes the only column of a table, whatever its name. A tuple takes the columns in order if they
    are not named f0, f1, ...
    """
    names = table.schema.names
    hints = field_hints(record_type)
    return [
        convert(_whole(table.column(place)), of, names[place], hints.get(field, Any))
        for place, (field, of) in zip(places(names, record_type), record_type.columns(), strict=True)
    ]


def field_hints(of: RecordType) -> Mapping[str, Any]:
    """Returns the type hints of the fields of a class that are pickled."""
    pickled = [name for name, each in of.columns() if each == PICKLED] if isinstance(of, ClassOf) else []
    hints = class_hints(of.cls) if isinstance(of, ClassOf) and pickled else {}
    return {name: hints[name] for name in pickled if hints.get(name, Any) not in (Any, object)}


def places(names: list[str], record_type: RecordType) -> list[int]:
    """Returns the positions of the record type's columns among these names. Raises RecordTypeError."""
    wanted = [name for name, _ in record_type.columns()]
    if set(wanted) <= set(names):
        return [names.index(name) for name in wanted]
    if not isinstance(record_type, ClassOf) and len(names) == len(wanted):
        return list(range(len(wanted)))
    missing = ", ".join(name for name in wanted if name not in names)
    there = ", ".join(names) or "none"
    raise RecordTypeError(f"{record_type} needs the columns {missing}; there are only {there}")


def convert(array: pa.Array, of: RecordType, name: str, hint: Any = Any) -> pa.Array:
    """Converts one column to the record type's; `name` is for the error. Raises RecordTypeError.

    `hint`: the type hint of a pickled field.
    """
    match of:
        case Pickled():
            return of.encode(_convert_elements(array, hint, name))
        case OptionalOf(item):
            if array.null_count == 0:
                return convert(array, item, name)
            present = convert(array.drop_null(), item, name)
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            order = pa.array(valid.cumsum() - 1, pa.int64(), mask=~valid)
            return present.take(order)
        case _ if array.null_count:
            raise RecordTypeError(f"column {name} has no value in some record: declare it as {of} | None")
        case ListOf(item) if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            array = array.cast(pa.list_(array.type.value_type))
            items = convert(array.flatten(), item, f"{name}[]")
            offsets = array.offsets
            start = offsets[0].as_py()
            if start:
                offsets = pa.array(offsets.to_numpy() - start, pa.int32())
            return pa.ListArray.from_arrays(offsets, items, type=of.arrow_type())
        case ClassOf() | TupleOf() if pa.types.is_struct(array.type):
            inner = [field.name for field in array.type]
            parts = array.flatten()
            hints = field_hints(of)
            columns = [
                convert(parts[place], each, f"{name}.{inner[place]}", hints.get(field, Any))
                for place, (field, each) in zip(places(inner, of), of.columns(), strict=True)
            ]
            return pa.StructArray.from_arrays(columns, fields=list(of.arrow_type()))
        case _:
            return _cast(array, of, name)


def _convert_elements(array: pa.Array, hint: Any, name: str) -> list[Any]:
    values: list[Any] = array.to_pylist()
    if hint is Any:
        return values
    if pa.types.is_map(array.type):
        values = [value if value is None else dict(value) for value in values]
    try:
        return [msgspec.convert(value, hint) for value in values]
    except (msgspec.ValidationError, TypeError) as error:
        raise RecordTypeError(
            f"column {name} is {array.type}, and not all of it is {hint}: {error}"
        ) from error


def _cast(array: pa.Array, of: RecordType, name: str) -> pa.Array:
    wanted = of.arrow_type()
    if array.type == wanted:
        return array
    if pa.types.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), of, name)
    if not _lossless(array.type, wanted):
        raise RecordTypeError(f"column {name} is {array.type}, which is no {of}: declare another record type")
    try:
        return array.cast(wanted)
    except pa.ArrowException as error:
        raise RecordTypeError(f"column {name} is {array.type}, and not all of it is {of}: {error}") from error


def _lossless(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the types are of one family: Arrow would also convert numbers to text."""
    is_ = pa.types
    if is_.is_string(wanted):
        return bool(is_.is_string(given) or is_.is_large_string(given) or is_.is_string_view(given))
    if is_.is_binary(wanted):
        return bool(
            is_.is_large_binary(given) or is_.is_fixed_size_binary(given) or is_.is_binary_view(given)
        )
    if is_.is_floating(wanted):
        return bool(is_.is_floating(given) or is_.is_integer(given))
    return bool(is_.is_integer(wanted) and is_.is_integer(given))


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
