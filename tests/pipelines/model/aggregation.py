"""Aggregation and window assignment of records: the plain functions of the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from typing import Any

from tailrace.pipelines.functions import TimeWindow


def call_of(function: Any, method: str) -> Callable[..., Any]:
    result: Callable[..., Any] = getattr(function, method, function)
    return result


def folding_of(parameters: Mapping[str, Any], function: Any = None) -> Callable[[Any, Any], Any]:
    """Returns the function that combines two records: of `reduce`, or of a built-in aggregation on a field."""
    if function is not None:
        return call_of(function, "reduce")
    name, column = parameters["function"], parameters.get("field")
    if column is None:
        read: Callable[[Any], Any] = lambda record: record  # noqa: E731
    else:
        read = itemgetter(int(column[1:])) if column[1:].isdigit() else attrgetter(column)
    match name:
        case "min_by":
            return lambda a, b: b if read(b) < read(a) else a
        case "max_by":
            return lambda a, b: b if read(b) > read(a) else a
    fold = {"sum": lambda a, b: a + b, "min": min, "max": max}[name]
    if column is None:
        return fold
    return lambda a, b: _with(a, column, fold(read(a), read(b)))


def _with(record: Any, column: str, value: Any) -> Any:
    if hasattr(record, "_replace"):
        return record._replace(**{column: value})
    place = int(column[1:])
    return (*record[:place], value, *record[place + 1 :])


def windows_of(assigner: Mapping[str, Any], time: int, gap: int = 0) -> list[TimeWindow]:
    """`gap`: that of the record, for sessions with gaps of their own."""
    if assigner["kind"] == "dynamic_session":
        return [TimeWindow(time, time + gap)]
    if assigner["kind"] == "session":
        return [TimeWindow(time, time + assigner["gap_ms"])]
    size, slide = assigner["size_ms"], assigner.get("slide_ms") or assigner["size_ms"]
    offset = assigner.get("offset_ms") or 0
    starts = range((time - offset) // slide * slide + offset, time - size, -slide)
    return [TimeWindow(start, start + size) for start in starts]


def put(
    windows: list[tuple[TimeWindow, list[Any]]], window: TimeWindow, value: Any, *, merging: bool
) -> None:
    """Adds a record to its window, and merges sessions that overlap or touch."""
    values = [value]
    for other in list(windows):
        same = other[0] == window
        if same or (merging and other[0].start <= window.end and window.start <= other[0].end):
            windows.remove(other)
            values = other[1] + values
            window = TimeWindow(min(window.start, other[0].start), max(window.end, other[0].end))
    windows.append((window, values))
