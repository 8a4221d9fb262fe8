"""Finds what the parameters of a path name. Raises NotFound, or BadRequest for a text that can be no id."""

from __future__ import annotations

from ...dispatcher.state import DispatcherState, Job
from ...history import cluster_view
from ...history.cluster_view import JobView
from ...history.execution_history import AttemptView, ExecutionGraphView, VertexView
from ..endpoint import Parameters
from ..errors import BadRequest, NotFound
from ..moment import Moment
from . import ids


def dispatcher(moment: Moment) -> DispatcherState:
    """Returns the Dispatcher's state."""
    return cluster_view.find_dispatcher(moment.fold.replica.states)


def find_job(moment: Moment, parameters: Parameters) -> tuple[Job, JobView]:
    """Returns the job of `jobid`."""
    wanted = parameters["jobid"]
    if not ids.is_well_formed(wanted):
        raise BadRequest(f'Cannot resolve path parameter (jobid) from value "{wanted[:80]}".')
    jobs = dispatcher(moment).jobs
    job_id = ids.find_job_id(jobs, wanted)
    if job_id is None:
        raise NotFound(f"Job {wanted} not found")
    return jobs[job_id], cluster_view.job_view(moment.fold, jobs[job_id])


def find_graph(moment: Moment, view: JobView) -> ExecutionGraphView:
    """Returns the graph of a job; one without vertices before the job is started."""
    found = moment.fold.executions.graph(view.job_id)
    return ExecutionGraphView(view.name) if found is None else found


def find_vertex(graph: ExecutionGraphView, parameters: Parameters) -> VertexView:
    """Returns the vertex of `vertexid`."""
    wanted = parameters["vertexid"]
    if not ids.is_well_formed(wanted):
        raise BadRequest(f'Cannot resolve path parameter (vertexid) from value "{wanted[:80]}".')
    for vertex in graph.vertices:
        if wanted in (vertex.vertex_id, ids.to_vertex_id(vertex.vertex_id)):
            return vertex
    raise NotFound(f"JobVertex {wanted} not found")


def find_attempts(graph: ExecutionGraphView, vertex: VertexView) -> list[AttemptView]:
    """Returns the current attempts of a vertex, by subtask."""
    return [each for each in graph.attempts if each.is_current and each.vertex_id == vertex.vertex_id]


def find_attempt(graph: ExecutionGraphView, vertex: VertexView, parameters: Parameters) -> AttemptView:
    """Returns the attempt of `subtaskindex` and `attempt`; without `attempt`, the current one."""
    subtask, number = parameters["subtaskindex"], parameters.get("attempt")
    for each in graph.attempts:
        if (each.vertex_id, each.subtask_index) == (vertex.vertex_id, subtask) and (
            each.is_current if number is None else each.attempt_number == number
        ):
            return each
    if not 0 <= subtask < vertex.parallelism:
        raise NotFound(f"Invalid subtask index for vertex {ids.to_vertex_id(vertex.vertex_id)}: {subtask}")
    raise NotFound(f"Attempt {number} of subtask {subtask} is not known")
