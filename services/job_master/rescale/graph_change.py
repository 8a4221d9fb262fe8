"""The change of a job to the graph with another parallelism. No task runs meanwhile: all have ended behind the cut.

All ExecutionVertices get a new Execution. Its attempt number is above those of all subtasks of the vertex, also of
those that are gone: if they come back with a later rescale, no TaskExecutor takes their Executions for old ones. The
job keeps its slots; the scheduler assigns them again. A vertex that is divided (pipelines/graph/parallelism.py) goes on
as its parts: the first has its id, the others are new.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map
from msgspec.structs import replace

from ....pipelines.graph.parallelism import is_parallel, origins_of
from ....schemas.event import Record
from ....schemas.states import EXECUTION_ENDS
from ....schemas.types import ExecutionState, JobGraph
from ...blobs import job_graph_blob
from ...core.outbox import Outbox, owe
from .. import executions, slot_moves
from ..owed_events import OwedJobManagerRegistrationSuccess
from ..slot_pool import SlotStep
from ..slot_sharing import SlotSharingManager
from ..state import ConnectionState, Counts, Execution, StartedJob
from ..topology import SchedulingTopology, VertexKey
from .fitting import slots_to_assign
from .state import RescalePhase, Rescaling


def change_graph(state: StartedJob, record: Record) -> tuple[StartedJob, list[VertexKey]]:
    """Returns the job with the new graph, and the subtasks to schedule."""
    current, cause = state.rescaling.current, record.offset
    assert current is not None
    key = None if state.graph_blob is None else job_graph_blob.key_of(state.job_id, current.graph)
    state = _release_slots(state, record)
    topology = SchedulingTopology.from_graph(current.graph)
    origins = origins_of(state.graph, current.graph)
    state = replace(
        state,
        graph=current.graph,
        graph_blob=None if key is None else str(key),
        topology=topology,
        scheduled_vertices=_with_parts(state.scheduled_vertices, origins),
        vertices_with_output=_with_parts(state.vertices_with_output, origins),
        rescaling=_with_new_vertices(state.rescaling, current.graph, origins)
        .with_places(current.graph)
        .with_phase(RescalePhase.DEPLOYING),
        # The new tasks have other key groups: they continue none of the files that the old ones wrote.
        checkpoints=replace(state.checkpoints, force_full=True),
    )
    state = _with_new_executions(state, cause)
    for resource_id, connection in sorted(state.connections.items()):
        if connection is ConnectionState.CONNECTED:
            state = owe(state, OwedJobManagerRegistrationSuccess(cause, resource_id))
    again = [vertex for vertex in sorted(state.current_attempts) if vertex[0] in state.scheduled_vertices]
    return state, again


def _with_parts(vertices: frozenset[str], origins: Mapping[str, str]) -> frozenset[str]:
    return frozenset(vertex_id for vertex_id, origin in origins.items() if origin in vertices)


def _with_new_vertices(rescaling: Rescaling, graph: JobGraph, origins: Mapping[str, str]) -> Rescaling:
    """What applies to a vertex applies to each of its parts that can have several subtasks."""
    parallel = {each.vertex_id: origins[each.vertex_id] for each in graph.vertices if is_parallel(each)}
    return replace(
        rescaling,
        default_vertices=_with_parts(rescaling.default_vertices, parallel),
        bounds=Map(
            {
                vertex_id: rescaling.bounds[origin]
                for vertex_id, origin in parallel.items()
                if origin in rescaling.bounds
            }
        ),
    )


def _release_slots(state: StartedJob, record: Record) -> StartedJob:
    cause, why = record.offset, f"job {state.job_id} is rescaled"
    for allocation_id in sorted(state.slots.requests):
        state = slot_moves.give_back(state, allocation_id, why, cause)
    pool = state.slots
    for slot in slots_to_assign(pool):
        if slot.step is not SlotStep.ALLOCATED:
            continue
        pool = pool.available(slot.allocation_id, record.header.time, cause)
    failure = state.pending_failure
    if failure is not None:
        failure = replace(failure, vertices=Map(), slots=Map())
    return replace(state, slots=pool, sharing=SlotSharingManager(), ready=Outbox(), pending_failure=failure)


def _with_new_executions(state: StartedJob, cause: int) -> StartedJob:
    before, is_untouched = state.executions, state.is_untouched
    numbers: dict[str, int] = {}
    last: dict[VertexKey, Execution] = {}
    for key, attempt in state.current_attempts.items():
        execution = before[attempt]
        if not is_untouched:
            numbers[key[0]] = max(numbers.get(key[0], 0), execution.attempt_number)
        last[key] = execution
    found: dict[str, Execution] = {}
    current: dict[VertexKey, str] = {}
    for vertex in state.topology.in_order:
        for index in range(vertex.parallelism):
            key = vertex.vertex_id, index
            prior = _submitted(last[key]) if key in last else None
            if prior is not None and prior in before:
                found[prior] = before[prior]
            execution = executions.new_attempt(
                state.job_id, key, numbers.get(vertex.vertex_id, -1) + 1, cause, prior=prior
            )
            found[execution.execution_attempt_id] = execution
            current[key] = execution.execution_attempt_id
    return replace(state, executions=Map(found), current_attempts=Map(current), counts=Counts())


def _submitted(execution: Execution) -> str | None:
    """Returns the last Execution of the subtask that was submitted and has not finished."""
    if execution.state is ExecutionState.FINISHED:
        return None
    return execution.execution_attempt_id if execution.state in EXECUTION_ENDS else execution.prior
