"""Invariants of every state of a JobMaster: redundant data agrees, and the slot sharing trees are well-formed."""

from __future__ import annotations

from collections.abc import Set

from tailrace.schemas.states import JOB_ENDS
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.owed_events import OwedFreeSlot
from tailrace.services.job_master.checkpoints.stop_phase import StopPhase
from tailrace.services.job_master.index_validation import index_errors
from tailrace.services.job_master.job_status import ACTIVE
from tailrace.services.job_master.owed_events import (
    OwedCancelSlotRequest,
    OwedCancelTask,
    OwedRequestSlot,
    OwedTriggerCheckpoint,
)
from tailrace.services.job_master.slot_pool import SlotPool, SlotStep
from tailrace.services.job_master.slot_sharing import MultiTaskSlot, SingleTaskSlot, leaves
from tailrace.services.job_master.state import Execution, JobMasterState, StartedJob


def check_job_master(state: JobMasterState) -> None:
    """Checks all invariants. Raises AssertionError."""
    errors = [*index_errors(state)]
    assert not errors, "; ".join(errors)
    if not isinstance(state, StartedJob):
        return
    returning = {
        event.allocation_id
        for event in state.outbox
        if isinstance(event, OwedFreeSlot | OwedCancelSlotRequest)
    }
    check_pool(state.slots, returning)
    check_executions(state)
    check_trees(state)
    check_submissions(state)
    check_checkpoints(state)


def check_pool(pool: SlotPool, returning: Set[str]) -> None:
    """Checks that each allocation is in one place only."""
    assert not set(pool.requests) & set(pool.slots)
    assert not returning & {*pool.requests, *pool.slots}
    for request in pool.requests.values():
        assert request.step in (SlotStep.WANTED, SlotStep.PENDING)
        assert (
            request.step is SlotStep.PENDING
            or pool.wanted.get(OwedRequestSlot, request.allocation_id) is not None
        )
    for slot in pool.slots.values():
        assert (slot.step is SlotStep.AVAILABLE) == (slot.slot is None)


def check_executions(state: StartedJob) -> None:
    """Checks that each ExecutionVertex has one current Execution, and at most one ended Execution before it."""
    current = [state.executions[item] for item in state.current_attempts.values()]
    assert len(current) == state.topology.subtasks
    prior = {execution.prior for execution in current}
    for attempt, execution in state.executions.items():
        assert state.current_attempts[execution.vertex] == attempt or attempt in prior
        if attempt in prior:
            assert execution.state in (ExecutionState.FAILED, ExecutionState.CANCELED)


def check_trees(state: StartedJob) -> None:
    """Checks that each subtask to run has its leaf in the tree of its slot; co-located ones share a node."""
    result: dict[tuple[str, int], str] = {}
    failure = state.pending_failure
    assert failure is None or _restarts_tasks(state)
    without_verdict = failure.slots if failure is not None else {}
    for slot, tree in state.sharing.trees.items():
        group, index = slot
        inside = list(leaves(tree.root))
        assert inside, f"the tree of {slot} is empty"
        assert len({leaf.vertex_id for leaf in inside}) == len(inside)
        for leaf in inside:
            vertex = state.topology.vertices[leaf.vertex_id]
            assert vertex.group == group
            result[(leaf.vertex_id, index)] = leaf.execution_attempt_id
        if isinstance(tree.root, MultiTaskSlot):
            assert tree.root.group == group
            for child in tree.root.children:
                of = {state.topology.vertices[leaf.vertex_id].co_location_group for leaf in leaves(child)}
                assert of == ({None} if isinstance(child, SingleTaskSlot) else {child.group})
        held = state.slots.slots.get(tree.allocation_id)
        is_held = held is not None and held.slot in _sharing(state, tree.allocation_id, slot)
        assert tree.resolved == is_held
        requested = state.slots.requests.get(tree.allocation_id)
        if not tree.resolved and _restarts_tasks(state):
            if slot in without_verdict:
                assert tree.allocation_id == ""
            else:
                assert requested is not None
                assert requested.slot == slot
    for vertex_id in state.scheduled_vertices:
        if _restarts_tasks(state):
            assert all(
                execution.state is not ExecutionState.CREATED for execution in current_of(state, vertex_id)
            )
            for index in range(state.topology.vertices[vertex_id].parallelism):
                attempt = state.current_attempts[(vertex_id, index)]
                ended = state.executions[attempt].state is ExecutionState.FINISHED
                assert result.get((vertex_id, index)) == (None if ended else attempt)
    for vertex_id in state.topology.vertices:
        if state.status in ACTIVE and vertex_id not in state.scheduled_vertices:
            waiting = {item.state for item in current_of(state, vertex_id)}
            assert waiting <= {ExecutionState.CREATED, ExecutionState.FINISHED}
    if state.status in JOB_ENDS:
        assert not state.sharing.trees
        assert not state.slots.slots
        assert not state.slots.requests


def _sharing(state: StartedJob, allocation_id: str, slot: tuple[str, int]) -> set[tuple[str, int]]:
    """Returns the trees of a slot: several of one group, if the adaptive scheduler has shared it."""
    if not state.rescaling.is_adaptive:
        return {slot}
    trees = {key for key, tree in state.sharing.trees.items() if tree.allocation_id == allocation_id}
    assert len({group for group, _ in trees}) <= 1
    return trees


def _restarts_tasks(state: StartedJob) -> bool:
    """Returns whether lost tasks are restarted."""
    return state.status in ACTIVE and state.checkpoints.stop is not StopPhase.SAVED


def current_of(state: StartedJob, vertex_id: str) -> list[Execution]:
    """Returns the current Executions of a vertex."""
    parallelism = state.topology.vertices[vertex_id].parallelism
    return [state.executions[state.current_attempts[(vertex_id, index)]] for index in range(parallelism)]


def check_checkpoints(state: StartedJob) -> None:
    """Checks that ids are unique and ordered, pending checkpoints cover every subtask, and the retained ones are the
    newest."""
    checkpoints, options = state.checkpoints, state.options.checkpointing
    for number, pending in checkpoints.pending.items():
        assert number == pending.checkpoint_id <= checkpoints.counter
        parts = [*pending.awaited.values(), *pending.acknowledged, *pending.finished]
        assert len(parts) == len(set(parts))
        if pending.failure is None:
            assert len(parts) == state.topology.subtasks
            assert pending.generation == state.generation
            for attempt, subtask in pending.awaited.items():
                assert state.current_attempts[subtask] == attempt
                assert state.executions[attempt].state in {ExecutionState.RUNNING, ExecutionState.CANCELING}
        assert pending.failure is not None or state.status not in JOB_ENDS or not pending.awaited
    numbers = [checkpoint.checkpoint_id for checkpoint in checkpoints.completed]
    assert numbers == sorted(set(numbers))
    assert len(numbers) <= options.retained
    assert not set(numbers) & {item.checkpoint_id for item in checkpoints.subsumed}
    assert not set(numbers) & set(checkpoints.discarding)
    assert not set(checkpoints.pending) & set(checkpoints.discarding)
    assert (checkpoints.since is not None) == state.is_fully_running
    if checkpoints.restoring is not None and not checkpoints.restoring.initial:
        assert not state.ready
        assert all(item.state is not ExecutionState.RUNNING for item in state.executions.values()) or (
            _cancelled(state)
        )
    for owed in checkpoints.notifications:
        assert owed.resource_id in state.slots.of_resource or state.connections
        assert not isinstance(owed, OwedTriggerCheckpoint) or owed.checkpoint_id in checkpoints.pending


def check_submissions(state: StartedJob) -> None:
    """Checks that ready tasks have a slot, and that scheduled tasks with a slot are ready, or wait for a verdict."""
    assert _cancelled(state) <= set(state.executions)
    ready = {owed.execution_attempt_id for owed in state.ready}
    for attempt in ready:
        execution = state.executions[attempt]
        tree = state.sharing.trees.get(state.topology.slot_of(execution.vertex))
        assert execution.state is ExecutionState.SCHEDULED
        assert tree is not None
        assert tree.resolved
    if state.is_waiting_for_slots or state.checkpoints.restoring is not None:
        assert not state.ready
    elif state.status in ACTIVE and (state.requested is None or state.requested.status not in JOB_ENDS):
        failure = state.pending_failure
        without_verdict = failure.vertices if failure is not None else {}
        for attempt in state.current_attempts.values():
            execution = state.executions[attempt]
            tree = state.sharing.trees.get(state.topology.slot_of(execution.vertex))
            if execution.state is ExecutionState.SCHEDULED and tree is not None and tree.resolved:
                assert (attempt in ready) == (execution.vertex not in without_verdict)


def check_processes(state: StartedJob) -> None:
    """Checks that no task is to be submitted into a slot whose tasks run as one process. Holds if TaskExecutors report
    no task of a process before all are submitted."""
    if not state.options.has_slot_processes or not _restarts_tasks(state) or state.checkpoints.restoring:
        return
    for tree in state.sharing.trees.values():
        inside = {state.executions[leaf.execution_attempt_id].state for leaf in leaves(tree.root)}
        if inside & {ExecutionState.INITIALIZING, ExecutionState.RUNNING}:
            assert ExecutionState.SCHEDULED not in inside, f"{tree} is in parts"


def _cancelled(state: StartedJob) -> set[str]:
    return {event.execution_attempt_id for event in state.outbox if isinstance(event, OwedCancelTask)}
