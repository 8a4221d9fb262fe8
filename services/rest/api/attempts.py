"""The attempts of a job's subtasks with their times: GET /api/v1/jobs/:jobid/attempts, for a diagram over time.

The history has the last two attempts of each subtask; earlier ones are events of the log only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...history.execution_history import AttemptView
from ..endpoint import Endpoint, Parameters
from ..errors import NotFound
from ..flink import ids
from ..flink.endpoints import path_parameters
from ..flink.lookup import find_graph, find_job
from ..flink.times import to_ms
from ..moment import Moment


class Attempt(msgspec.Struct, frozen=True):
    """An attempt. Numbers of subtasks and attempts begin at 0. `times`: state -> when the attempt entered it, in
    milliseconds since the epoch, in the order of time; the last is its present state."""

    subtask: int
    attempt: int
    is_current: bool
    task_executor: str | None
    times: Mapping[str, int]


class VertexAttempts(msgspec.Struct, frozen=True):
    """A vertex with its attempts, by subtask, current ones first. `id` is Flink's."""

    id: str
    name: str
    parallelism: int
    attempts: Sequence[Attempt]


class JobAttempts(msgspec.Struct, frozen=True):
    """/api/v1/jobs/:jobid/attempts: vertices, sources first. `now` is in milliseconds since the epoch."""

    now: int
    vertices: Sequence[VertexAttempts]


def attempts(moment: Moment, parameters: Parameters) -> JobAttempts:
    """GET /jobs/:jobid/attempts: the attempts of all subtasks with the times of their states"""
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    by_vertex: dict[str, list[Attempt]] = {vertex.vertex_id: [] for vertex in graph.vertices}
    for each in graph.attempts:
        by_vertex.setdefault(each.vertex_id, []).append(_attempt(each))
    return JobAttempts(
        now=moment.now,
        vertices=[
            VertexAttempts(
                ids.to_vertex_id(vertex.vertex_id),
                vertex.name,
                vertex.parallelism,
                by_vertex[vertex.vertex_id],
            )
            for vertex in graph.vertices
        ],
    )


def _attempt(view: AttemptView) -> Attempt:
    entered = sorted(view.times.items(), key=lambda entry: (entry[1], entry[0] is view.state))
    times = {state.value: to_ms(time) for state, time in entered}
    # An attempt that was restored from a state without its history has no times.
    times.setdefault(view.state.value, 0)
    return Attempt(view.subtask_index, view.attempt_number, view.is_current, view.resource_id, times)


_PATH = "/jobs/{jobid}/attempts"
READS = (Endpoint("GET", _PATH, path_parameters(_PATH), view=attempts, errors=(NotFound,)),)
