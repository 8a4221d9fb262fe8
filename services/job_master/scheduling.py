"""Schedules the subtasks of a job and assigns slots to them (Flink's Scheduler).

EAGER: all at once; no subtask is submitted before all have slots. LAZY_FROM_SOURCES: sources at once; a vertex is
scheduled when some subtask of each vertex that it consumes from has produced output, and each subtask is submitted as
soon as it has a slot. An unused slot of the job is reused before a new one is requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from immutables import Map
from msgspec.structs import replace

from ...pipelines.graph.job_options import ScheduleMode
from ...schemas.types import ExecutionState
from ..core.role import Time, derive_id
from . import execution_states
from .slot_pool import PendingRequest, best_matching
from .slot_sharing import LogicalSlot, allocate_slot, leaves
from .state import Deployment, DeploymentKey, Execution, Handshake, JobMasterState
from .topology import SchedulingVertex, SlotKey, VertexKey

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_EAGER: Final = ScheduleMode.EAGER
_CREATED: Final = ExecutionState.CREATED
_SCHEDULED: Final = ExecutionState.SCHEDULED
_FINISHED: Final = ExecutionState.FINISHED


def schedule(state: JobMasterState, cause: int) -> JobMasterState:
    """Schedules every vertex whose inputs allow it and that was not scheduled before, with all its subtasks."""
    eager = state.options.schedule_mode is _EAGER
    vertices = [
        vertex
        for vertex in state.topology.in_order
        if vertex.vertex_id not in state.scheduled
        and (eager or all(each in state.vertices_with_output for each in vertex.producers))
    ]
    return _schedule(state, vertices, cause) if vertices else state


def on_first_output(state: JobMasterState, vertex_id: str, cause: int) -> JobMasterState:
    """A subtask of the vertex runs, or has run: its consumers may be waiting for that."""
    if state.options.schedule_mode is _EAGER or vertex_id in state.vertices_with_output:
        return state
    return schedule(replace(state, vertices_with_output=state.vertices_with_output | {vertex_id}), cause)


def find_slots(state: JobMasterState, slots: Sequence[SlotKey], cause: int, due: Time = 0) -> JobMasterState:
    """Trees without a slot get an available one, or request one; their subtasks are submitted from `due` on."""
    pool, trees = state.slots, {}
    idle = pool.idle_slots() if slots else []
    requests = []
    profiles = state.topology.profiles_of(slots)
    for slot in slots:
        profile = profiles[slot]
        found = best_matching(idle, profile)
        if found is not None:
            idle.remove(found)
            pool = pool.allocate_available(found.allocation_id, slot)
            trees[slot] = replace(state.sharing.trees[slot], allocation_id=found.allocation_id, resolved=True)
            continue
        allocation_id = derive_id(state.job_id, "slot", *slot, pool.generation)
        requests.append(PendingRequest(allocation_id, slot, profile, cause))
        trees[slot] = replace(state.sharing.trees[slot], allocation_id=allocation_id, resolved=False)
    if requests:
        pool = replace(pool.request(requests, due), generation=pool.generation + 1)
    state = replace(state, slots=pool, sharing=state.sharing.add_tree(trees))
    resolved = [slot for slot, tree in trees.items() if tree.resolved]
    return release_if_all_slots(mark_ready(state, _scheduled_in(state, resolved), cause, due), cause)


def assign_slots(state: JobMasterState, slots: Iterable[SlotKey], cause: int) -> JobMasterState:
    """Trees have received their physical slots: their subtasks are ready, unless all subtasks wait for each other."""
    return release_if_all_slots(mark_ready(state, _scheduled_in(state, slots), cause), cause)


def release_if_all_slots(state: JobMasterState, cause: int) -> JobMasterState:
    """Records that the job has all its slots, and releases its tasks when the channels exist, too."""
    if not state.had_all_slots and not state.slots.requests and _all_scheduled(state):
        state = replace(state, had_all_slots=True)
    if not state.waiting_for_all_slots or state.slots.requests or state.channels is not Handshake.DONE:
        return state
    if state.checkpoints.restoring is not None:
        return state
    state = replace(state, waiting_for_all_slots=False)
    current = (state.executions[each] for each in state.current.values())
    return mark_ready(state, (each for each in current if each.state is _SCHEDULED), cause)


def mark_ready(
    state: JobMasterState, executions: Iterable[Execution], cause: int, due: Time = 0
) -> JobMasterState:
    """SCHEDULED Executions with slots are submitted from `due` on, neighbours together.

    Not while all wait for the last slot, or for the checkpoint that they start from.
    """
    if state.waiting_for_all_slots or state.checkpoints.restoring is not None:
        return state
    ready: dict[str, int] = {}
    sizes: dict[DeploymentKey, int] = {}
    for execution in executions:
        ready[execution.execution_attempt_id] = cause
        key = (execution.vertex_id, slot_of(state, execution).resource_id, cause)
        sizes[key] = sizes.get(key, 0) + 1
    if not ready:
        return state
    deployments = state.submissions.deployments
    together = {}
    for key, size in sizes.items():
        before = deployments.get(key, Deployment(0, 0))
        together[key] = Deployment(before.size + size, before.left + size)
    submissions = replace(
        state.submissions,
        ready=state.submissions.ready.put_all(ready, due),
        deployments=deployments.update(together),
    )
    return replace(state, submissions=submissions)


def unmark_ready(
    state: JobMasterState, execution: Execution, resource_id: str, *, submitted: bool = False
) -> JobMasterState:
    """SubmitTask was sent, or is not needed any more: its deployment has one subtask less."""
    submissions, attempt = state.submissions, execution.execution_attempt_id
    if attempt not in submissions.ready:
        return state
    key = (execution.vertex_id, resource_id, submissions.ready.value(attempt))
    deployment, deployments = submissions.deployments.get(key), submissions.deployments
    if deployment is not None and deployment.left > 1:
        size = deployment.size if submitted else deployment.size - 1
        deployments = deployments.set(key, Deployment(size, deployment.left - 1))
    elif deployment is not None:
        deployments = deployments.delete(key)
    submissions = replace(submissions, ready=submissions.ready.remove(attempt), deployments=deployments)
    return replace(state, submissions=submissions)


def resume_after_restore(
    state: JobMasterState, again: Sequence[VertexKey], cause: int, due: Time
) -> JobMasterState:
    """The restored checkpoint is known: subtasks with slots are ready from `due` on, neighbours together.

    `again`: finished subtasks that run once more; their current Executions are CREATED.
    """
    subtasks = [(state.topology.vertices[vertex_id], index) for vertex_id, index in again]
    state = release_if_all_slots(_place(state, subtasks, cause, due), cause)
    slots = [slot for slot, tree in state.sharing.trees.items() if tree.resolved]
    return mark_ready(state, _scheduled_in(state, slots), cause, due)


def slot_of(state: JobMasterState, execution: Execution) -> LogicalSlot:
    """The slot that an Execution is or was submitted into. Raises KeyError if it has none."""
    if execution.allocation_id is not None and execution.resource_id is not None:
        return LogicalSlot(execution.allocation_id, execution.resource_id)
    allocation_id = state.sharing.trees[state.topology.slot_of(execution.vertex)].allocation_id
    return LogicalSlot(allocation_id, state.slots.slots[allocation_id].resource_id)


def _schedule(state: JobMasterState, vertices: Sequence[SchedulingVertex], cause: int) -> JobMasterState:
    state = replace(state, scheduled=state.scheduled | {vertex.vertex_id for vertex in vertices})
    subtasks = ((vertex, index) for vertex in vertices for index in range(vertex.parallelism))
    return _place(state, subtasks, cause)


def _place(
    state: JobMasterState, subtasks: Iterable[tuple[SchedulingVertex, int]], cause: int, due: Time = 0
) -> JobMasterState:
    """Puts unfinished subtasks into trees, and gives slots to the trees."""
    executions: dict[str, Execution] = {}
    planted: dict[SlotKey, list[tuple[SchedulingVertex, str]]] = {}
    slotless: list[SlotKey] = []
    in_slots: list[Execution] = []
    newly = 0
    for vertex, index in subtasks:
        execution = state.executions[state.current[(vertex.vertex_id, index)]]
        if execution.state is _FINISHED:
            continue
        if execution.state is _CREATED:
            newly += 1
            scheduled = execution_states.check_transition(execution.state, _SCHEDULED)
            execution = replace(execution, state=scheduled, cause=cause)
            executions[execution.execution_attempt_id] = execution
        slot = (vertex.group, index)
        tree = state.sharing.trees.get(slot)
        if tree is None and slot not in planted:
            slotless.append(slot)
        elif tree is not None and tree.resolved:
            in_slots.append(execution)
        planted.setdefault(slot, []).append((vertex, execution.execution_attempt_id))
    trees = {
        slot: allocate_slot(state.sharing.trees.get(slot), leaves_of) for slot, leaves_of in planted.items()
    }
    state = replace(
        state,
        executions=state.executions.update(executions),
        sharing=state.sharing.add_tree(trees),
        counts=replace(state.counts, scheduled=state.counts.scheduled + newly),
    )
    return find_slots(mark_ready(state, in_slots, cause, due), slotless, cause, due)


def _scheduled_in(state: JobMasterState, slots: Iterable[SlotKey]) -> list[Execution]:
    found = []
    for slot in slots:
        for leaf in leaves(state.sharing.trees[slot].root):
            execution = state.executions[leaf.execution_attempt_id]
            if (
                execution.state is _SCHEDULED
                and execution.execution_attempt_id not in state.submissions.ready
            ):
                found.append(execution)
    return found


def _all_scheduled(state: JobMasterState) -> bool:
    return len(state.scheduled) == len(state.topology.vertices)


def unscheduled(state: JobMasterState) -> JobMasterState:
    """The state before scheduling, for a job that restarts; finished subtasks stay finished."""
    finished = {
        vertex_id
        for (vertex_id, _), attempt in state.current.items()
        if state.executions[attempt].state is _FINISHED
    }
    return replace(
        state,
        scheduled=frozenset(),
        vertices_with_output=frozenset(finished),
        waiting_for_all_slots=state.options.schedule_mode is _EAGER,
        submissions=replace(state.submissions, deployments=Map()),
    )
