"""The subtasks of a vertex with what each does now: GET /api/v1/jobs/:jobid/vertices/:vertexid/subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...history.execution_history import AttemptView
from ..endpoint import Endpoint, Parameters
from ..errors import NotFound
from ..flink.endpoints import path_parameters
from ..flink.lookup import find_attempts, find_graph, find_job, find_vertex
from ..flink.metrics import live_values
from ..live_metrics import Values
from ..moment import Moment


class SubtaskLoad(msgspec.Struct, frozen=True):
    """What a subtask does, on the average of the last seconds. Shares are from 0 to 1. `pending_records`: its lag, of a
    source that knows it. `watermark`: in milliseconds since the epoch; null: it has none."""

    records_in_per_second: float
    records_out_per_second: float
    busy: float
    back_pressured: float
    idle: float
    pending_records: float | None
    watermark: int | None


class VertexSubtask(msgspec.Struct, frozen=True):
    """A subtask, and its present attempt; both numbers begin at 0. `load`: null if nothing is known, as of the past."""

    subtask: int
    attempt: int
    state: str
    task_executor: str | None
    load: SubtaskLoad | None


class VertexSubtasks(msgspec.Struct, frozen=True):
    """/api/v1/jobs/:jobid/vertices/:vertexid/subtasks. `now` is in milliseconds since the epoch."""

    now: int
    name: str
    subtasks: Sequence[VertexSubtask]


def subtasks(moment: Moment, parameters: Parameters) -> VertexSubtasks:
    """GET /jobs/:jobid/vertices/:vertexid/subtasks: each subtask with its state, rates, load, lag and watermark"""
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    vertex = find_vertex(graph, parameters)
    return VertexSubtasks(
        now=moment.now,
        name=vertex.name,
        subtasks=[
            _subtask(each, live_values(moment, view.job_id, each)) for each in find_attempts(graph, vertex)
        ],
    )


def _subtask(attempt: AttemptView, values: Values) -> VertexSubtask:
    return VertexSubtask(
        subtask=attempt.subtask_index,
        attempt=attempt.attempt_number,
        state=attempt.state.value,
        task_executor=attempt.resource_id,
        load=read_load(values),
    )


def read_load(values: Values) -> SubtaskLoad | None:
    """Returns the load that metrics of a subtask say; None without any."""
    if not values:
        return None

    def share(name: str) -> float:
        return round(min(1.0, max(0.0, values.get(name, 0.0) / 1_000)), 3)

    watermark = values.get("currentInputWatermark")
    return SubtaskLoad(
        records_in_per_second=round(values.get("numRecordsInPerSecond", 0.0), 1),
        records_out_per_second=round(values.get("numRecordsOutPerSecond", 0.0), 1),
        busy=share("busyTimeMsPerSecond"),
        back_pressured=share("backPressuredTimeMsPerSecond"),
        idle=share("idleTimeMsPerSecond"),
        pending_records=values.get("pendingRecords"),
        watermark=None if watermark is None or watermark < _FIRST_WATERMARK else int(watermark),
    )


_FIRST_WATERMARK: Final = -(2**62)
"""Flink's watermark of a subtask that has none is below."""
_PATH: Final = "/jobs/{jobid}/vertices/{vertexid}/subtasks"
READS = (Endpoint("GET", _PATH, path_parameters(_PATH), view=subtasks, errors=(NotFound,), is_live=True),)
