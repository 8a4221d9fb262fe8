"""Queries in SQL over streams (`sql`), translated into the steps of this API.

A view is a stream with a name. SELECT and WHERE become `select` and `where`, UNION ALL becomes `union`. A grouping
becomes a selection of its keys and arguments, a window with an aggregate function, and a selection of the items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from ..functions.aggregates import AggregateTogether, Count, Max, Mean, Min, Sum, WindowAggregate
from ..functions.kafka_record import without_none
from ..functions.query_aggregates import CountValues, KeyColumns, OfValues, QueryRow, QueryRowOfAll
from ..graph.errors import ProgramError
from ..sql.errors import SqlError
from ..sql.query import (
    WINDOW_BOUNDS,
    Aggregate,
    Function,
    Grouping,
    Query,
    QueryWindow,
    SelectQuery,
    UnionQuery,
    WindowKind,
)
from ..sql.syntax import parse_query
from ..types import PICKLED, ClassOf, OptionalOf, RecordType, Scalar, TupleOf
from .source_location import caller_location
from .sql import row_class
from .streams import DataStream
from .windows import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)

Views = Mapping[str, DataStream[Any]]
_INNER: Final[Mapping[Function, WindowAggregate]] = {
    Function.SUM: Sum(),
    Function.AVG: Mean(),
    Function.MIN: Min(),
    Function.MAX: Max(),
}
_INT: Final = Scalar("int")


def run_query(text: object, views: Views) -> DataStream[Any]:
    """Returns the stream of a query's results. Raises ProgramError."""
    if not isinstance(text, str) or not text.strip():
        raise _refusal(f"{text!r} is no query: give a text, such as SELECT user, amount FROM orders")
    try:
        return _translate(parse_query(text), views)
    except SqlError as error:
        raise _refusal(str(error)) from None


def check_view(name: str, stream: object) -> None:
    """Raises ProgramError if the stream cannot be a view."""
    step = "create_temporary_view"
    if not isinstance(stream, DataStream):
        raise _refusal(f"the view {name} is {stream!r}, not a stream", step)
    if stream.record_type == PICKLED:
        raise _refusal(
            f"the records of the view {name} are pickled and have no columns: declare the output_type of the step"
            " before",
            step,
        )


def _refusal(reason: str, step: str = "sql") -> ProgramError:
    return ProgramError(reason, operator=step, location=caller_location())


def _translate(query: Query, views: Views) -> DataStream[Any]:
    match query:
        case UnionQuery(parts=parts):
            first, *others = [_translate(part, views) for part in parts]
            return first.union(*others)
        case SelectQuery():
            stream = _source(query.source, views)
            if query.where is not None:
                stream = stream.where(query.where)
            if query.grouping is not None:
                stream = _group(stream, query.grouping)
            if query.having is not None:
                stream = stream.where(query.having)
            return stream if query.items == "*" else stream.select(query.items)


def _source(source: str | Query, views: Views) -> DataStream[Any]:
    if not isinstance(source, str):
        return _translate(source, views)
    if (stream := views.get(source)) is None:
        known = ", ".join(sorted(views)) or "none: add one by create_temporary_view"
        raise SqlError(f"there is no view {source}; the views are {known}")
    return stream


def _group(stream: DataStream[Any], grouping: Grouping) -> DataStream[Any]:
    """Returns a stream of the grouping's columns: its keys, the bounds of the window, its aggregates."""
    keys = [name for name, _ in grouping.keys]
    arguments = {
        each.argument: f"v{i}" for i, each in enumerate(grouping.aggregates) if each.argument is not None
    }
    columns = [(text, name) for name, text in grouping.keys] + list(arguments.items())
    # count(*) alone needs rows, and no column of them.
    rows = stream.select(", ".join(f"{text} AS {name}" for text, name in columns or [("true", "row")]))
    types = dict(rows.record_type.columns())
    parts: list[tuple[WindowAggregate, Callable[[Any], Any]]] = []
    accumulators: list[RecordType] = []
    fields: dict[str, RecordType] = {name: types[name] for name in keys} | dict.fromkeys(WINDOW_BOUNDS, _INT)
    for each in grouping.aggregates:
        column = None if each.argument is None else arguments[each.argument]
        of = _INT if column is None else types[column]
        aggregate = _aggregate(each, of)
        parts.append((aggregate, _nothing if column is None else attrgetter(column)))
        accumulators.append(aggregate.accumulator_type(of))
        fields[each.name] = aggregate.result_type(of)
    create = row_class(tuple(fields))
    function = AggregateTogether(parts)
    made = {
        "accumulator_type": TupleOf(tuple(accumulators)),
        "output_type": ClassOf(create.__name__, "named_tuple", tuple(fields.items()), create),
    }
    assigner = _assigner(grouping.window)
    if not keys:
        return rows.window_all(assigner).aggregate(function, QueryRowOfAll(create), **made)
    if len(keys) == 1:
        keyed = rows.key_by(keys[0])
    else:
        keyed = rows.key_by(KeyColumns(tuple(keys)), TupleOf(tuple(types[name] for name in keys)))
    return keyed.window(assigner).aggregate(function, QueryRow(create, has_many_keys=len(keys) > 1), **made)


def _aggregate(aggregate: Aggregate, of: RecordType) -> WindowAggregate:
    function = aggregate.function
    if function is Function.COUNT:
        return Count() if aggregate.argument is None else CountValues()
    item = without_none(of)
    is_number = isinstance(item, Scalar) and item.kind in ("int", "float")
    if not (is_number or (isinstance(item, Scalar) and function in (Function.MIN, Function.MAX))):
        raise SqlError(f"{function}({aggregate.argument}) is of {item}, which it does not aggregate")
    inner = _INNER[function]
    return OfValues(inner=inner) if isinstance(of, OptionalOf) else inner


def _assigner(window: QueryWindow) -> WindowAssigner:
    size, slide, offset = window.size_ms, window.slide_ms, window.offset_ms / 1000
    match window.kind:
        case WindowKind.TUMBLING:
            tumbling = TumblingEventTimeWindows if window.is_event_time else TumblingProcessingTimeWindows
            return tumbling.of(milliseconds=size, offset_seconds=offset)
        case WindowKind.SLIDING:
            sliding = SlidingEventTimeWindows if window.is_event_time else SlidingProcessingTimeWindows
            return sliding.of(milliseconds=size, slide_seconds=slide / 1000, offset_seconds=offset)
        case WindowKind.SESSION:
            session = EventTimeSessionWindows if window.is_event_time else ProcessingTimeSessionWindows
            return session.with_gap(milliseconds=size)


def _nothing(record: Any) -> None:
    del record
