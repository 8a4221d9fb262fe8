"""Metrics: the counts of tasks, and the lists of metrics with their values and aggregations.

Subtasks that run have the figures of their TaskExecutors; of those that have ended, the log has the counts of records.
Other figures are 0 and marked as not complete, as Flink shows metrics that it does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ...history.execution_history import AttemptView, ExecutionGraphView, has_ended
from ..endpoint import Parameters
from ..errors import BadRequest
from ..live_metrics import TaskKey, Values
from ..moment import Moment

_NOTHING: Final[Values] = {}
AGGREGATIONS: Final = ("min", "max", "avg", "sum", "skew")


class IoMetrics(msgspec.Struct, frozen=True, rename="kebab"):
    """Flink's IOMetricsInfo. Times are in milliseconds."""

    read_bytes: int = 0
    read_bytes_complete: bool = False
    write_bytes: int = 0
    write_bytes_complete: bool = False
    read_records: int = 0
    read_records_complete: bool = False
    write_records: int = 0
    write_records_complete: bool = False
    accumulated_backpressured_time: int = 0
    accumulated_idle_time: int = 0
    accumulated_busy_time: float = 0.0


class Metric(msgspec.Struct, frozen=True):
    """The name of a metric, and its value if it was asked for."""

    id: str
    value: str | msgspec.UnsetType = msgspec.UNSET


class AggregatedMetric(msgspec.Struct, frozen=True):
    """The name of a metric, and the aggregations that were asked for."""

    id: str
    min: float | msgspec.UnsetType = msgspec.UNSET
    max: float | msgspec.UnsetType = msgspec.UNSET
    avg: float | msgspec.UnsetType = msgspec.UNSET
    sum: float | msgspec.UnsetType = msgspec.UNSET
    skew: float | msgspec.UnsetType = msgspec.UNSET


def live_values(moment: Moment, job_id: str, attempt: AttemptView) -> Values:
    """Returns the metrics of an attempt that runs; none if its TaskExecutor does not tell them."""
    if attempt.resource_id is None or not attempt.is_current or has_ended(attempt):
        return _NOTHING
    key = TaskKey(attempt.resource_id, job_id, attempt.vertex_id, attempt.subtask_index)
    return moment.live.tasks.get(key, _NOTHING)


def io_metrics(
    moment: Moment, job_id: str, graph: ExecutionGraphView, attempts: Iterable[AttemptView]
) -> IoMetrics:
    """Returns the sums over attempts. A sum is complete if all have told their part."""
    known: list[Values] = []
    for each in attempts:
        known.append(
            live_values(moment, job_id, each)
            or graph.counts.get(f"{each.vertex_id}/{each.subtask_index}", _NOTHING)
        )

    def total(name: str) -> float:
        return sum(values.get(name, 0) for values in known)

    def is_complete(name: str) -> bool:
        return bool(known) and all(name in values for values in known)

    return IoMetrics(
        read_bytes=int(total("numBytesIn")),
        read_bytes_complete=is_complete("numBytesIn"),
        write_bytes=int(total("numBytesOut")),
        write_bytes_complete=is_complete("numBytesOut"),
        read_records=int(total("numRecordsIn")),
        read_records_complete=is_complete("numRecordsIn"),
        write_records=int(total("numRecordsOut")),
        write_records_complete=is_complete("numRecordsOut"),
        accumulated_backpressured_time=int(total("accumulateBackPressuredTimeMs")),
        accumulated_idle_time=int(total("accumulateIdleTimeMs")),
        accumulated_busy_time=round(float(total("accumulateBusyTimeMs")), 3),
    )


def names_of(parameters: Parameters, name: str) -> Collection[str] | None:
    """Returns the texts of a parameter that has commas between them; None without the parameter."""
    text = parameters.get(name)
    return None if text is None else [each for each in text.split(",") if each]


def select(values: Mapping[str, float | str], parameters: Parameters) -> Sequence[Metric]:
    """Returns the values that `get` names and that exist; without `get`, all names."""
    names = names_of(parameters, "get")
    if names is None:
        return [Metric(name) for name in values]
    return [Metric(name, _text(values[name])) for name in dict.fromkeys(names) if name in values]


def aggregate(
    values: Sequence[Mapping[str, float | str]], parameters: Parameters
) -> Sequence[AggregatedMetric]:
    """Returns the aggregations `agg` of what `get` names, over the parts that have it; without `get`, all names. Raises
    BadRequest for an unknown aggregation."""
    kinds = names_of(parameters, "agg")
    for kind in kinds or ():
        if kind not in AGGREGATIONS:
            raise BadRequest(f'Cannot resolve query parameter (agg) from value "{kind[:80]}".')
    names = names_of(parameters, "get")
    known = dict.fromkeys(name for each in values for name in each)
    if names is None:
        return [AggregatedMetric(name) for name in known]
    found = []
    for name in dict.fromkeys(names):
        numbers = [number for each in values if isinstance(number := each.get(name), int | float)]
        if numbers:
            calculated = _aggregate(numbers)
            found.append(AggregatedMetric(name, **{kind: calculated[kind] for kind in kinds or AGGREGATIONS}))
    return found


def _aggregate(numbers: Sequence[float]) -> dict[str, float]:
    """Returns all aggregations. Skew is Flink's DoubleDataSkew: the mean deviation from the mean, in percent of the
    mean and at most 100."""
    total = float(sum(numbers))
    average = total / len(numbers)
    deviation = sum(abs(each - average) for each in numbers) / len(numbers)
    return {
        "min": float(min(numbers)),
        "max": float(max(numbers)),
        "avg": average,
        "sum": total,
        "skew": 0.0 if average == 0 else min(deviation / average * 100, 100.0),
    }


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if float(value).is_integer() else str(round(value, 3))
