"""Schedules the subtasks of a job and assigns slots to them (Flink's Scheduler).

EAGER: all at once; no subtask is submitted before all have slots. LAZY_FROM_SOURCES: sources at once; a vertex is
scheduled when some subtask of each vertex that it consumes from has produced output, and each subtask is submitted as
soon as it has a slot. An unused slot of the job is reused before a new one is requested.

Stages of a job with blocking exchanges: the vertices of a stage are scheduled when all tasks of the stage before it
have finished. Tasks of a stage do not wait for each other, so a stage also runs in fewer slots than it has requested: a
slot that a task leaves is assigned to a tree that still waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from ...pipelines.graph.job_options import ScheduleMode
from ...schemas.types import ExecutionState
from ..core.resource_profile import matches
from ..core.role import Time, derive_id
from . import execution_states, slot_moves
from .owed_events import OwedSubmitTask
from .slot_pool import PendingRequest, best_matching
from .slot_sharing import LogicalSlot, allocate_slot, leaves
from .state import ChannelsState, Execution, StartedJob
from .topology import SchedulingVertex, SlotKey, VertexKey

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_EAGER: Final = ScheduleMode.EAGER
_CREATED: Final = ExecutionState.CREATED
_SCHEDULED: Final = ExecutionState.SCHEDULED
_FINISHED: Final = ExecutionState.FINISHED


def schedule(state: StartedJob, cause: int) -> StartedJob:
    """Schedules every vertex of the stage whose inputs allow it and that was not scheduled before, with all its
    subtasks."""
    options, stage = state.options, state.stage
    at_once = options.schedule_mode is _EAGER or options.runs_in_stages
    vertices = [
        vertex
        for vertex in state.topology.in_order
        if vertex.stage <= stage
        and vertex.vertex_id not in state.scheduled_vertices
        and (at_once or all(producer in state.vertices_with_output for producer in vertex.producers))
    ]
    return _schedule(state, vertices, cause) if vertices else state


def on_first_output(state: StartedJob, vertex_id: str, cause: int) -> StartedJob:
    """Schedules consumers that may wait for it: a subtask of the vertex runs, or has run."""
    if state.options.runs_in_stages:
        return state
    if state.options.schedule_mode is _EAGER or vertex_id in state.vertices_with_output:
        return state
    return schedule(replace(state, vertices_with_output=state.vertices_with_output | {vertex_id}), cause)


def on_task_finished(state: StartedJob, vertex_id: str, cause: int) -> StartedJob:
    """Schedules what may follow a task that has finished. In a job with stages its slot is assigned to a tree that
    waits, or the next stage begins."""
    if not state.options.runs_in_stages:
        return on_first_output(state, vertex_id, cause)
    return schedule(_reuse_slots(state, cause), cause)


def can_wait(state: StartedJob, request: PendingRequest) -> bool:
    """Whether a task can wait for a slot that other tasks of its stage leave."""
    held = (slot for slot in state.slots.slots.values() if slot.slot is not None)
    return state.options.runs_in_stages and best_matching(held, request.profile) is not None


def find_slots(state: StartedJob, slots: Sequence[SlotKey], cause: int, due: Time = 0) -> StartedJob:
    """Assigns an available slot to trees without one, or requests one; their subtasks are submitted from `due` on."""
    pool, trees = state.slots, {}
    idle = pool.idle_slots() if slots else []
    requests = []
    profiles = state.topology.profiles_of(slots, state.stage)
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


def _reuse_slots(state: StartedJob, cause: int) -> StartedJob:
    """Assigns available slots to trees that wait for slots, and cancels their requests."""
    # A task that restarts waits for the time that the verdict says.
    due = state.failures.restart_at or 0
    for slot in state.slots.idle_slots() if state.slots.requests else ():
        waiting = (each for each in state.slots.requests.values() if each.replaces is None)
        fitting = (each for each in waiting if matches(slot.profile, each.profile))
        request = min(fitting, key=lambda each: each.slot, default=None)
        if request is None:
            continue
        reason = f"its tasks have slot {slot.allocation_id} of the job"
        state = slot_moves.give_back(state, request.allocation_id, reason, cause)
        state = replace(
            state,
            slots=state.slots.allocate_available(slot.allocation_id, request.slot),
            sharing=state.sharing.assign(request.slot, slot.allocation_id, resolved=True),
        )
        state = assign_slots(state, [request.slot], cause, due)
    return state


def assign_slots(state: StartedJob, slots: Iterable[SlotKey], cause: int, due: Time = 0) -> StartedJob:
    """Assigns physical slots to trees: their subtasks are ready from `due` on, unless all subtasks wait for each
    other."""
    return release_if_all_slots(mark_ready(state, _scheduled_in(state, slots), cause, due), cause)


def release_if_all_slots(state: StartedJob, cause: int) -> StartedJob:
    """Records that the job has all its slots, and releases its tasks when the channels exist, too."""
    if not state.has_had_all_slots and not state.is_short_of_slots and _all_scheduled(state):
        state = replace(state, has_had_all_slots=True)
    if (
        not state.is_waiting_for_slots
        or state.is_short_of_slots
        or state.channels is not ChannelsState.CREATED
    ):
        return state
    if state.checkpoints.restoring is not None:
        return state
    state = replace(state, is_waiting_for_slots=False)
    current = (state.executions[each] for each in state.current_attempts.values())
    return mark_ready(state, (each for each in current if each.state is _SCHEDULED), cause)


def mark_ready(state: StartedJob, executions: Iterable[Execution], cause: int, due: Time = 0) -> StartedJob:
    """Submits SCHEDULED Executions with slots from `due` on; those of one vertex at one TaskExecutor together.

    Not while all wait for the last slot, or for the checkpoint that they start from.
    """
    if state.is_waiting_for_slots or state.checkpoints.restoring is not None:
        return state
    owed = (OwedSubmitTask(cause, execution.execution_attempt_id) for execution in executions)
    ready = state.ready.owe_all(owed, due or None)
    return state if ready is state.ready else replace(state, ready=ready)


def resume_after_restore(state: StartedJob, again: Sequence[VertexKey], cause: int, due: Time) -> StartedJob:
    """Continues after the restored checkpoint is known: subtasks with slots are ready from `due` on.

    `again`: finished subtasks that run once more; their current Executions are CREATED.
    """
    subtasks = [(state.topology.vertices[vertex_id], index) for vertex_id, index in again]
    state = release_if_all_slots(_place(state, subtasks, cause, due), cause)
    slots = [slot for slot, tree in state.sharing.trees.items() if tree.resolved]
    return mark_ready(state, _scheduled_in(state, slots), cause, due)


def slot_of(state: StartedJob, execution: Execution) -> LogicalSlot:
    """Returns the slot of the tree of an Execution. Raises KeyError if it has none."""
    allocation_id = state.sharing.trees[state.topology.slot_of(execution.vertex)].allocation_id
    return LogicalSlot(allocation_id, state.slots.slots[allocation_id].resource_id)


def process_size(state: StartedJob, slot: SlotKey) -> int:
    """Returns the number of tasks that share the process of a slot; 1 if each has its own."""
    if not state.options.has_slot_processes:
        return 1
    return sum(1 for _ in leaves(state.sharing.trees[slot].root))


def _schedule(state: StartedJob, vertices: Sequence[SchedulingVertex], cause: int) -> StartedJob:
    state = replace(
        state, scheduled_vertices=state.scheduled_vertices | {vertex.vertex_id for vertex in vertices}
    )
    subtasks = ((vertex, index) for vertex in vertices for index in range(vertex.parallelism))
    return _place(state, subtasks, cause)


def _place(
    state: StartedJob, subtasks: Iterable[tuple[SchedulingVertex, int]], cause: int, due: Time = 0
) -> StartedJob:
    """Puts unfinished subtasks into trees, and assigns slots to the trees."""
    executions: dict[str, Execution] = {}
    planted: dict[SlotKey, list[tuple[SchedulingVertex, str]]] = {}
    slotless: list[SlotKey] = []
    in_slots: list[Execution] = []
    newly = 0
    for vertex, index in subtasks:
        execution = state.executions[state.current_attempts[(vertex.vertex_id, index)]]
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


def _scheduled_in(state: StartedJob, slots: Iterable[SlotKey]) -> list[Execution]:
    failure = state.pending_failure
    without_verdict = () if failure is None else failure.vertices
    found = []
    for slot in slots:
        for leaf in leaves(state.sharing.trees[slot].root):
            execution = state.executions[leaf.execution_attempt_id]
            if (
                execution.state is _SCHEDULED
                and execution.vertex not in without_verdict
                and state.ready.get(OwedSubmitTask, execution.execution_attempt_id) is None
            ):
                found.append(execution)
    return found


def _all_scheduled(state: StartedJob) -> bool:
    # All vertices of a stage are scheduled together.
    return state.options.runs_in_stages or len(state.scheduled_vertices) == len(state.topology.vertices)


def unscheduled(state: StartedJob) -> StartedJob:
    """Returns the state before scheduling, for a job that restarts; finished subtasks stay finished."""
    finished = {
        vertex_id
        for (vertex_id, _), attempt in state.current_attempts.items()
        if state.executions[attempt].state is _FINISHED
    }
    return replace(
        state,
        scheduled_vertices=frozenset(),
        vertices_with_output=frozenset(finished),
        is_waiting_for_slots=state.options.schedule_mode is _EAGER,
    )
