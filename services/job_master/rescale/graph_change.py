"""The change of a job to the graph with another parallelism. No task runs meanwhile: all have ended behind the cut.

All ExecutionVertices get a new Execution. Its attempt number is above those of all subtasks of the vertex, also of
those that are gone: if they come back with a later rescale, no TaskExecutor takes their Executions for old ones. The
job keeps its slots; the scheduler assigns them again.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from ....schemas.event import Record
from ....schemas.states import EXECUTION_ENDS
from ....schemas.types import ExecutionState
from ...blobs import job_graph_blob
from ...core.outbox import Outbox, owe
from .. import executions, slot_moves
from ..owed_events import OwedJobManagerRegistrationSuccess
from ..slot_pool import SlotStep
from ..slot_sharing import SlotSharingManager
from ..state import ConnectionState, Counts, Execution, StartedJob
from ..topology import SchedulingTopology, VertexKey
from .state import RescalePhase


def change_graph(state: StartedJob, record: Record) -> tuple[StartedJob, list[VertexKey]]:
    """Returns the job with the new graph, and the subtasks to schedule."""
    current, cause = state.rescaling.current, record.offset
    assert current is not None
    key = None if state.graph_blob is None else job_graph_blob.key_of(state.job_id, current.graph)
    state = _release_slots(state, record)
    topology = SchedulingTopology.from_graph(current.graph)
    state = replace(
        state,
        graph=current.graph,
        graph_blob=None if key is None else str(key),
        topology=topology,
        rescaling=state.rescaling.with_phase(RescalePhase.DEPLOYING),
        # The new tasks have other key groups: they continue none of the files that the old ones wrote.
        checkpoints=replace(state.checkpoints, force_full=True),
    )
    state = _with_new_executions(state, cause)
    for resource_id, connection in sorted(state.connections.items()):
        if connection is ConnectionState.CONNECTED:
            state = owe(state, OwedJobManagerRegistrationSuccess(cause, resource_id))
    again = [vertex for vertex in sorted(state.current_attempts) if vertex[0] in state.scheduled_vertices]
    return state, again


def _release_slots(state: StartedJob, record: Record) -> StartedJob:
    cause, why = record.offset, f"job {state.job_id} is rescaled"
    for allocation_id in sorted(state.slots.requests):
        state = slot_moves.give_back(state, allocation_id, why, cause)
    pool = state.slots
    allocated = [slot for slot in pool.slots.values() if slot.step is SlotStep.ALLOCATED]
    for slot in sorted(allocated, key=lambda slot: (slot.slot or ("", 0), slot.allocation_id)):
        pool = pool.available(slot.allocation_id, record.header.time, cause)
    failure = state.pending_failure
    if failure is not None:
        failure = replace(failure, vertices=Map(), slots=Map())
    return replace(state, slots=pool, sharing=SlotSharingManager(), ready=Outbox(), pending_failure=failure)


def _with_new_executions(state: StartedJob, cause: int) -> StartedJob:
    before = state.executions
    numbers: dict[str, int] = {}
    last: dict[VertexKey, Execution] = {}
    for key, attempt in state.current_attempts.items():
        execution = before[attempt]
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
                state.job_id, key, numbers[vertex.vertex_id] + 1, cause, prior=prior
            )
            found[execution.execution_attempt_id] = execution
            current[key] = execution.execution_attempt_id
    return replace(state, executions=Map(found), current_attempts=Map(current), counts=Counts())


def _submitted(execution: Execution) -> str | None:
    """Returns the last Execution of the subtask that was submitted and has not finished."""
    if execution.state is ExecutionState.FINISHED:
        return None
    return execution.execution_attempt_id if execution.state in EXECUTION_ENDS else execution.prior
