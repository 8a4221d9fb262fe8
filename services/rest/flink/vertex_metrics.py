"""The live metrics of vertices and subtasks: values, watermarks, back pressure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from ...history.execution_history import AttemptView
from ..endpoint import Parameters
from ..errors import BadRequest
from ..live_metrics import Values
from ..moment import Moment
from .lookup import find_attempt, find_attempts, find_graph, find_job, find_vertex
from .metrics import AggregatedMetric, Metric, aggregate, live_values, names_of, select

_WATERMARK: Final = "currentInputWatermark"
_NO_WATERMARK: Final = -(2**63)
"""Flink's value of a task without a watermark."""
_LOW_ABOVE: Final = 0.1
_HIGH_ABOVE: Final = 0.5
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class BackPressureLevel(StrEnum):
    """Flink's levels, by the part of the time in which a task is back-pressured."""

    OK = "ok"
    LOW = "low"
    HIGH = "high"

    @classmethod
    def of(cls, ratio: float) -> BackPressureLevel:
        """Returns the level of a ratio: up to 10 % is ok, up to 50 % is low."""
        return cls.OK if ratio <= _LOW_ABOVE else cls.LOW if ratio <= _HIGH_ABOVE else cls.HIGH


class SubtaskBackPressure(msgspec.Struct, frozen=True, rename="camel"):
    """A subtask: Flink's SubtaskBackPressureInfo. The level is there twice, as in Flink."""

    subtask: int
    attempt_number: int = msgspec.field(name="attempt-number")
    backpressure_level: str
    backpressure_level_compatible: str = msgspec.field(name="backpressure-level")
    ratio: float
    idle_ratio: float
    busy_ratio: float


class BackPressure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """/jobs/:jobid/vertices/:vertexid/backpressure: Flink's JobVertexBackPressureInfo. `status` is `ok`, or
    `deprecated` if nothing is measured: then there is nothing else."""

    status: str
    backpressure_level: str | None = None
    backpressure_level_compatible: str | None = msgspec.field(default=None, name="backpressure-level")
    end_timestamp: int | None = msgspec.field(default=None, name="end-timestamp")
    subtasks: Sequence[SubtaskBackPressure] | None = None


def metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """GET /jobs/:jobid/vertices/:vertexid/metrics: names begin with the index of the subtask"""
    found = _live_attempts(moment, parameters)
    return select(
        {f"{each.subtask_index}.{name}": value for each, values in found for name, value in values.items()},
        parameters,
    )


def subtask_metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """GET /jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/metrics"""
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    attempt = find_attempt(graph, find_vertex(graph, parameters), parameters)
    return select(live_values(moment, view.job_id, attempt), parameters)


def aggregated_metrics(moment: Moment, parameters: Parameters) -> Sequence[AggregatedMetric]:
    """GET /jobs/:jobid/vertices/:vertexid/subtasks/metrics: over all subtasks, or those of `subtasks`"""
    chosen = _ranges(parameters)
    found = [
        values
        for each, values in _live_attempts(moment, parameters)
        if chosen is None or any(each.subtask_index in numbers for numbers in chosen)
    ]
    return aggregate(found, parameters)


def no_operator_metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """GET /jobs/:jobid/vertices/:vertexid/jm-operator-metrics: an empty list, for operators have no coordinators"""
    _live_attempts(moment, parameters)
    return ()


def watermarks(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """GET /jobs/:jobid/vertices/:vertexid/watermarks: the event time of each subtask that runs"""
    return [
        Metric(f"{each.subtask_index}.{_WATERMARK}", str(int(values.get(_WATERMARK, _NO_WATERMARK))))
        for each, values in _live_attempts(moment, parameters)
        if values
    ]


def back_pressure(moment: Moment, parameters: Parameters) -> BackPressure:
    """GET /jobs/:jobid/vertices/:vertexid/backpressure"""
    subtasks = [
        _back_pressure(each, values)
        for each, values in _live_attempts(moment, parameters)
        if "backPressuredTimeMsPerSecond" in values
    ]
    if not subtasks:
        return BackPressure("deprecated")
    level = BackPressureLevel.of(max(each.ratio for each in subtasks)).value
    return BackPressure("ok", level, level, moment.now, subtasks)


def _back_pressure(attempt: AttemptView, values: Values) -> SubtaskBackPressure:
    def ratio(name: str) -> float:
        return round(min(1.0, values.get(name, 0.0) / 1_000), 3)

    part = ratio("backPressuredTimeMsPerSecond")
    level = BackPressureLevel.of(part).value
    return SubtaskBackPressure(
        subtask=attempt.subtask_index,
        attempt_number=attempt.attempt_number,
        backpressure_level=level,
        backpressure_level_compatible=level,
        ratio=part,
        idle_ratio=ratio("idleTimeMsPerSecond"),
        busy_ratio=ratio("busyTimeMsPerSecond"),
    )


def _live_attempts(moment: Moment, parameters: Parameters) -> list[tuple[AttemptView, Values]]:
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    attempts = find_attempts(graph, find_vertex(graph, parameters))
    return [(each, live_values(moment, view.job_id, each)) for each in attempts]


def _ranges(parameters: Parameters) -> list[range] | None:
    """Returns the subtasks of a text such as `0,2,4-7`; None without one. Raises BadRequest."""
    texts = names_of(parameters, "subtasks")
    if texts is None:
        return None
    found = []
    for text in texts:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise BadRequest(f'Cannot resolve query parameter (subtasks) from value "{text[:80]}".')
        found.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found
