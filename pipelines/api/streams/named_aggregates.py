"""The record type of aggregates by name: key, window and values (functions/aggregates.py)."""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from ...functions.aggregates import (
    AggregateTogether,
    Count,
    Max,
    Min,
    WindowAggregate,
    WindowRow,
    itself,
)
from ...types import ClassOf, RecordType, Scalar, TupleOf
from ..keys import Key, column_of
from .settings import refusal

_INT = Scalar("int")


class NamedAggregates(NamedTuple):
    """The functions of an `aggregate` by name, and the types of their accumulator and their result."""

    function: AggregateTogether
    window_function: WindowRow
    accumulator_type: RecordType
    output_type: RecordType


def create_named_aggregates(
    records: RecordType,
    aggregates: Mapping[str, object],
    key: Key | None,
    *,
    has_bounds: bool,
    output_type: object = None,
) -> NamedAggregates:
    """Returns the functions. `key`: None: the result has no key; `has_bounds`: it has the bounds of the window;
    `output_type`: the class of the result. Raises ProgramError."""
    fields: dict[str, RecordType] = {}
    if key is not None:
        fields[_key_name(key)] = key.record_type
    if has_bounds:
        fields |= {"window_start": _INT, "window_end": _INT}
    parts, accumulators = [], []
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, WindowAggregate):
            raise refusal(
                "aggregate", f"{name} is {aggregate!r}, not an aggregate such as Count() or Sum('amount')"
            )
        if name in fields or name.startswith("_") or keyword.iskeyword(name):
            raise refusal("aggregate", f"an aggregate cannot have the name {name!r}: give it another one")
        of, get = _value_of(records, name, aggregate)
        parts.append((aggregate, get))
        accumulators.append(aggregate.accumulator_type(of))
        fields[name] = aggregate.result_type(of)
    result = _result_type(fields, output_type)
    return NamedAggregates(
        AggregateTogether(parts),
        WindowRow(result.cls, has_key=key is not None, has_bounds=has_bounds),
        TupleOf(tuple(accumulators)),
        result,
    )


def _result_type(fields: Mapping[str, RecordType], declared: object) -> ClassOf:
    """Returns the type of the result: that of the declared class if it has these fields."""
    if declared is None:
        row = row_class(tuple(fields))
        return ClassOf(row.__name__, "named_tuple", tuple(fields.items()), row)
    found = RecordType.of(declared)
    if not isinstance(found, ClassOf) or found.fields != tuple(fields.items()):
        wanted = ", ".join(f"{name}: {of}" for name, of in fields.items())
        raise refusal("aggregate", f"output_type is {found}, not a NamedTuple or dataclass with {wanted}")
    return found


@cache
def row_class(names: tuple[str, ...]) -> Any:
    """Returns the class of results with these fields, the same one for the same names."""
    return namedtuple("WindowResult", names)


def _key_name(key: Key) -> str:
    return key.field if key.field is not None and key.field.isidentifier() else "key"


def _value_of(records: RecordType, name: str, aggregate: WindowAggregate) -> tuple[RecordType, Any]:
    """Returns the type of what is aggregated, and a function that takes it out of a record."""
    get: Callable[[Any], Any]
    if isinstance(aggregate, Count):
        return _INT, itself
    if aggregate.field is None:
        of, get, what = records, itself, "the record"
    else:
        column = column_of(records, aggregate.field, "aggregate")
        of, get, what = column.of, column.select, f"the field {column.name!r}"
    is_number = isinstance(of, Scalar) and of.kind in ("int", "float")
    is_ordered = isinstance(of, Scalar) and isinstance(aggregate, (Min, Max))
    if not (is_number or is_ordered):
        wanted = "one value that can be compared" if isinstance(aggregate, (Min, Max)) else "a number"
        raise refusal("aggregate", f"{name}: {what} is {of}, not {wanted}")
    return of, get
