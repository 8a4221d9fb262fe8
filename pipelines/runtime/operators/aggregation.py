"""Aggregations: a user's reduce or aggregate function, or sum, min, max, min_by and max_by of a field.

As in Flink, sum, min and max change one field of the first record and leave the others unchanged; min_by and max_by
return the first whole record that has the least or greatest field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from ...functions import AggregateFunction
from ...types import ClassOf, RecordType, TupleOf
from .keyed import getter
from .user_functions import method_of

Reduce = Callable[[Any, Any], Any]
FIELD_FUNCTIONS: Final = ("sum", "min", "max", "min_by", "max_by")


class Aggregation:
    """Records of one type reduced to one of the same type."""

    def __init__(self, reduce: Reduce) -> None:
        self.add = reduce
        """(accumulator, record) -> the accumulator of both."""
        self.merge = reduce
        """(earlier, later) -> the combined accumulator."""

    is_mergeable = True
    """Whether the accumulator of some records can be shared, and merged into several others."""

    def first(self, value: Any) -> Any:
        """Returns the accumulator of one record."""
        return value

    def result(self, folded: Any) -> Any:
        """Returns the value to emit."""
        return folded


class FunctionAggregation(Aggregation):
    """Aggregates records in accumulators of another type. Functions may change accumulators in place, so none is
    shared."""

    is_mergeable = False

    def __init__(self, function: AggregateFunction[Any, Any, Any]) -> None:
        super().__init__(lambda accumulator, value: function.add(value, accumulator))
        self.merge = function.merge
        self._function = function

    def first(self, value: Any) -> Any:
        return self._function.add(value, self._function.create_accumulator())

    def result(self, folded: Any) -> Any:
        return self._function.get_result(folded)


def create_aggregation(
    aggregation: str, function: Any, record_type: RecordType, field: str | None
) -> Aggregation:
    """Returns the aggregation of this name. Raises ValueError."""
    match aggregation:
        case "reduce":
            return Aggregation(method_of(function, "reduce"))
        case "aggregate":
            return FunctionAggregation(function)
        case _:
            return Aggregation(field_reduce(aggregation, record_type, field))


def field_reduce(function: str, record_type: RecordType, field: str | None) -> Reduce:
    """Returns the reduce function of sum, min, ... of a field; None: of the record itself. Raises ValueError."""
    get, put = field_access(record_type, field)
    match function:
        case "sum" if isinstance(record_type, TupleOf) and (len(record_type.items), field) == (2, "f1"):
            return lambda a, b: (a[0], a[1] + b[1])  # the most frequent sum
        case "sum":
            return lambda a, b: put(a, get(a) + get(b))
        case "min":
            return lambda a, b: put(a, get(b)) if get(b) < get(a) else a
        case "max":
            return lambda a, b: put(a, get(b)) if get(b) > get(a) else a
        case "min_by":
            return lambda a, b: b if get(b) < get(a) else a
        case "max_by":
            return lambda a, b: b if get(b) > get(a) else a
        case _:
            raise ValueError(f"there is no aggregation {function!r}, only {', '.join(FIELD_FUNCTIONS)}")


def field_access(
    record_type: RecordType, field: str | None
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Returns functions that read a field, and that copy a record with another value of it. Raises ValueError if
    there is no such field."""
    if field is None:
        return (lambda record: record), (lambda record, value: value)
    names = [name for name, _ in record_type.columns()]
    get = getter(record_type, field) if field in names else None
    if get is None:
        raise ValueError(f"{record_type} has no field {field!r}")
    at = names.index(field)
    match record_type:
        case TupleOf(items=(_, _)):
            return get, (lambda record, value: (record[0], value)) if at else (
                lambda record, value: (value, record[1])
            )
        case ClassOf(form="dataclass"):
            return get, lambda record, value: dataclasses.replace(record, **{field: value})
        case ClassOf():
            return get, lambda record, value: record._replace(**{field: value})
        case _:
            return get, lambda record, value: (*record[:at], value, *record[at + 1 :])
