"""What a request for another parallelism asks for, and why it is refused."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ....pipelines.graph.execution_graph import required_slots
from ....pipelines.graph.parallelism import (
    changed_vertices,
    changing_vertices,
    find_vertices,
    with_parallelism,
)
from ....pipelines.graph.validation import validate
from ....schemas.types import JobGraph, ParallelismBounds
from .. import job_status
from ..state import StartedJob
from .finished_subtasks import find_finished
from .fitting import graph_at, largest_width, least_width, width_of
from .state import RescaleRequest

_REASONS = 3
_SHOWN = 100


class RequestRefused(Exception):
    """The request is impossible; the text says why, and what to do."""


def bounds_of(state: StartedJob, request: RescaleRequest) -> Mapping[str, ParallelismBounds]:
    """Returns the wanted bounds by vertex id. Raises RequestRefused."""
    found: dict[str, ParallelismBounds] = {}
    if request.parallelism is not None:
        for vertex_id in sorted(state.rescaling.default_vertices):
            found[vertex_id] = ParallelismBounds(lower_bound=1, upper_bound=request.parallelism)
    for wanted, bounds in sorted(request.bounds.items()):
        vertices = find_vertices(state.graph, wanted)
        if not vertices:
            names = ", ".join(vertex.name for vertex in state.topology.in_order)
            raise RequestRefused(f"job {state.job_id} has no vertex {wanted[:_SHOWN]!r}: it has {names}")
        found.update(dict.fromkeys(vertices, bounds))
    if not found:
        raise RequestRefused("the request names no parallelism and no vertex")
    for vertex_id, bounds in found.items():
        if not 1 <= bounds.lower_bound <= bounds.upper_bound:
            name = state.topology.vertices[vertex_id].name
            raise RequestRefused(
                f"vertex {name!r} can't run with {bounds.lower_bound} to {bounds.upper_bound} subtasks: give 1 or more,"
                " and no lower bound above the upper one"
            )
    return found


def check(state: StartedJob, request: RescaleRequest) -> Mapping[str, int]:
    """Returns the parallelism of the vertices that are new or change. Raises RequestRefused if the job can't have it
    now."""
    job_id = state.job_id
    if state.status not in job_status.ACTIVE:
        raise RequestRefused(not_running(job_id, state.status.value))
    if state.options.runs_in_stages:
        raise RequestRefused(f"job {job_id} runs in BATCH mode: start it with another parallelism")
    if state.rescaling.current is not None:
        raise RequestRefused(f"job {job_id} is being rescaled already: ask again when that is over")
    if state.checkpoints.has_stop:
        raise RequestRefused(f"job {job_id} is being stopped with a savepoint")
    if state.rescaling.is_adaptive and state.is_untouched:
        raise RequestRefused(f"job {job_id} waits for its first slots: ask again when it runs")
    bounds = bounds_of(state, request)
    graph = with_parallelism(state.graph, {vertex_id: each.upper_bound for vertex_id, each in bounds.items()})
    parallelism = changed_vertices(state.graph, graph)
    if state.rescaling.is_adaptive:
        return _check_adaptive(state, request, bounds)
    if not parallelism:
        return parallelism
    _check_graph(state, request, graph)
    return parallelism


def _check_adaptive(
    state: StartedJob, request: RescaleRequest, bounds: Mapping[str, ParallelismBounds]
) -> Mapping[str, int]:
    """Returns what changes at once: the job gets more subtasks when it has slots."""
    all_bounds = state.rescaling.bounds.update(dict(bounds))
    if changes_bounds(state, bounds):
        _check_graph(state, request, graph_at(state.graph, all_bounds, largest_width(all_bounds)))
    width = max(width_of(state.topology, state.rescaling.bounds), least_width(all_bounds))
    graph = graph_at(state.graph, all_bounds, width)
    parallelism = changed_vertices(state.graph, graph)
    if parallelism:
        _check_graph(state, request, graph)
    return parallelism


def changes_bounds(state: StartedJob, bounds: Mapping[str, ParallelismBounds]) -> bool:
    """Whether a job with the adaptive scheduler would get other bounds."""
    before = state.rescaling
    return before.is_adaptive and any(before.bounds.get(key) != each for key, each in bounds.items())


def _check_graph(state: StartedJob, request: RescaleRequest, graph: JobGraph) -> None:
    """Raises RequestRefused if the job can't become this graph."""
    if not state.options.checkpointing.checkpoints_directory:
        raise RequestRefused("the cluster has no directory for checkpoints: set state.checkpoints.dir")
    # Its options, to which the Dispatcher has added those of the cluster, were checked at its submission.
    if reasons := validate(replace(graph, configuration={})):
        more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
        raise RequestRefused(
            f"{'; '.join(reasons[:_REASONS])}{more}: choose another parallelism, or stop the job with a savepoint and"
            " run the program from it at this one"
        )
    if (finished := find_finished(state, changing_vertices(state.graph, graph))) is not None:
        raise RequestRefused(finished)
    needed = required_slots(graph)
    if request.max_slots is not None and needed > request.max_slots:
        raise RequestRefused(
            f"it would need {needed:,} slots, and may use {request.max_slots:,}: a job of a tenant with a limit of"
            " slots keeps to those that it was submitted with"
        )


def not_running(job_id: str, status: str) -> str:
    """Returns why a job that does not run has no other parallelism."""
    return f"job {job_id} is {status}: only a job that runs is rescaled"
