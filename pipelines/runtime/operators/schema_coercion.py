"""Converts Arrow data of users into the columns of a record type.

Columns are matched by name, in any order; surplus columns are dropped. A value is converted if nothing is lost (an
int32 column for an `int` field), and refused otherwise, with the column and a remedy. Pickled columns may hold
anything.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ...types import ClassOf, ListOf, OptionalOf, Pickled, RecordType, RecordTypeError, TupleOf

Convert = Callable[[pa.Array], pa.Array]


def coerce_batch(table: pa.Table | pa.RecordBatch, record_type: RecordType) -> list[pa.Array]:
    """The columns of the record type, out of a table's. Raises RecordTypeError for what does not fit.

    A type of one column takes the only column of a table, whatever its name; a tuple takes the columns in order where
    they are not named f0, f1, ...
    """
    names = table.schema.names
    return [
        convert(_whole(table.column(place)), of, names[place])
        for place, (_, of) in zip(places(names, record_type), record_type.columns(), strict=True)
    ]


def places(names: list[str], record_type: RecordType) -> list[int]:
    """Where among the columns of these names those of the record type are. Raises RecordTypeError."""
    wanted = [name for name, _ in record_type.columns()]
    if set(wanted) <= set(names):
        return [names.index(name) for name in wanted]
    if not isinstance(record_type, ClassOf) and len(names) == len(wanted):
        return list(range(len(wanted)))
    missing = ", ".join(name for name in wanted if name not in names)
    there = ", ".join(names) or "none"
    raise RecordTypeError(f"{record_type} needs the columns {missing}; there are only {there}")


def convert(array: pa.Array, of: RecordType, name: str) -> pa.Array:
    """One column as the record type has it; `name` is for the error. Raises RecordTypeError."""
    match of:
        case Pickled():
            return of.encode(array.to_pylist())
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
            columns = [
                convert(parts[place], each, f"{name}.{inner[place]}")
                for place, (_, each) in zip(places(inner, of), of.columns(), strict=True)
            ]
            return pa.StructArray.from_arrays(columns, fields=list(of.arrow_type()))
        case _:
            return _cast(array, of, name)


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
    """Whether the types are of one family: Arrow would also make text of numbers."""
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
