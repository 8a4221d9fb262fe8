"""What holds in every state of a JobMaster: whatever it keeps twice agrees, and the trees are trees."""

from __future__ import annotations

from tailrace.schemas.states import JOB_ENDS
from tailrace.schemas.types import ExecutionState
from tailrace.services.job_master.checkpoints.state import NotificationKind
from tailrace.services.job_master.index_validation import index_errors
from tailrace.services.job_master.job_status import ACTIVE
from tailrace.services.job_master.slot_pool import SlotPool, SlotStep
from tailrace.services.job_master.slot_sharing import MultiTaskSlot, SingleTaskSlot, leaves
from tailrace.services.job_master.state import Execution, JobMasterState


def check_job_master(state: JobMasterState) -> None:
    """All of it. Raises AssertionError."""
    assert [*index_errors(state)] == []
    check_pool(state.slots)
    check_executions(state)
    check_trees(state)
    check_submissions(state)
    check_checkpoints(state)


def check_pool(pool: SlotPool) -> None:
    """An allocation is in one place only."""
    assert not set(pool.requests) & set(pool.slots)
    assert not set(pool.returning) & {*pool.requests, *pool.slots}
    for request in pool.requests.values():
        assert request.step in (SlotStep.WANTED, SlotStep.PENDING)
        assert request.step is SlotStep.PENDING or request.allocation_id in pool.wanted
    for slot in pool.slots.values():
        assert (slot.step is SlotStep.AVAILABLE) == (slot.slot is None)


def check_executions(state: JobMasterState) -> None:
    """One current Execution for each ExecutionVertex; at most one before it, which has ended."""
    current = [state.executions[each] for each in state.current.values()]
    assert len(current) == state.topology.subtasks
    prior = {each.prior for each in current}
    for attempt, execution in state.executions.items():
        assert state.current[execution.vertex] == attempt or attempt in prior
        if attempt in prior:
            assert execution.state in (ExecutionState.FAILED, ExecutionState.CANCELED)


def check_trees(state: JobMasterState) -> None:
    """A subtask that is to run has its leaf, in the tree that holds its slot; co-located ones hang together."""
    found: dict[tuple[str, int], str] = {}
    for slot, tree in state.sharing.trees.items():
        group, index = slot
        inside = list(leaves(tree.root))
        assert inside, f"the tree of {slot} is empty"
        assert len({leaf.vertex_id for leaf in inside}) == len(inside)
        for leaf in inside:
            vertex = state.topology.vertices[leaf.vertex_id]
            assert vertex.group == group
            found[(leaf.vertex_id, index)] = leaf.execution_attempt_id
        if isinstance(tree.root, MultiTaskSlot):
            assert tree.root.group == group
            for child in tree.root.children:
                of = {state.topology.vertices[each.vertex_id].co_location_group for each in leaves(child)}
                assert of == ({None} if isinstance(child, SingleTaskSlot) else {child.group})
        held = state.slots.slots.get(tree.allocation_id)
        assert tree.resolved == (held is not None and held.slot == slot)
        requested = state.slots.requests.get(tree.allocation_id)
        if not tree.resolved and _goes_on(state):
            assert requested is not None
            assert requested.slot == slot
    for vertex_id in state.scheduled:
        if _goes_on(state):
            assert all(each.state is not ExecutionState.CREATED for each in current_of(state, vertex_id))
            for index in range(state.topology.vertices[vertex_id].parallelism):
                attempt = state.current[(vertex_id, index)]
                ended = state.executions[attempt].state is ExecutionState.FINISHED
                assert found.get((vertex_id, index)) == (None if ended else attempt)
    for vertex_id in state.topology.vertices:
        if state.status in ACTIVE and vertex_id not in state.scheduled:
            waiting = {each.state for each in current_of(state, vertex_id)}
            assert waiting <= {ExecutionState.CREATED, ExecutionState.FINISHED}
    if state.status in JOB_ENDS:
        assert not state.sharing.trees
        assert not state.slots.slots
        assert not state.slots.requests


def _goes_on(state: JobMasterState) -> bool:
    """Whether what is lost is to run again."""
    return state.status in ACTIVE and not state.checkpoints.stopping


def current_of(state: JobMasterState, vertex_id: str) -> list[Execution]:
    """The current Executions of a vertex."""
    parallelism = state.topology.vertices[vertex_id].parallelism
    return [state.executions[state.current[(vertex_id, index)]] for index in range(parallelism)]


def check_checkpoints(state: JobMasterState) -> None:
    """Ids are given once, in order; what is under way accounts for every subtask; what is kept is the newest."""
    checkpoints, options = state.checkpoints, state.options.checkpointing
    for number, pending in checkpoints.pending.items():
        assert number == pending.checkpoint_id <= checkpoints.counter
        parts = [*pending.awaited.values(), *pending.acknowledged, *pending.finished]
        assert len(parts) == len(set(parts))
        if pending.failure is None:
            assert len(parts) == state.topology.subtasks
            assert pending.generation == state.generation
            for attempt, subtask in pending.awaited.items():
                assert state.current[subtask] == attempt
                assert state.executions[attempt].state in {ExecutionState.RUNNING, ExecutionState.CANCELING}
        assert pending.failure is not None or state.status not in JOB_ENDS or not pending.awaited
    numbers = [each.checkpoint_id for each in checkpoints.completed]
    assert numbers == sorted(set(numbers))
    assert len(numbers) <= options.retained
    assert not set(numbers) & {each.checkpoint_id for each in checkpoints.subsumed}
    assert not set(numbers) & set(checkpoints.discarding)
    assert not set(checkpoints.pending) & set(checkpoints.discarding)
    assert (checkpoints.since is not None) == state.all_run
    if checkpoints.restoring is not None and not checkpoints.restoring.initial:
        assert not state.submissions.ready
        assert all(each.state is not ExecutionState.RUNNING for each in state.executions.values()) or (
            state.submissions.cancellations
        )
    for checkpoint_id, kind, resource_id in checkpoints.notifications:
        assert resource_id in state.slots.of_resource or state.connections
        assert kind is not NotificationKind.TRIGGER or checkpoint_id in checkpoints.pending


def check_submissions(state: JobMasterState) -> None:
    """Whatever is ready has a slot, or is submitted for nothing; whatever has a slot and is scheduled is ready."""
    submissions = state.submissions
    assert set(submissions.cancellations) <= set(state.executions)
    for attempt in submissions.ready.times:
        execution = state.executions[attempt]
        tree = state.sharing.trees.get(state.topology.slot_of(execution.vertex))
        if execution.state is ExecutionState.SCHEDULED:
            assert tree is not None
            assert tree.resolved
        else:
            assert execution.state is ExecutionState.FAILED
            assert execution.resource_id is not None
    if state.waiting_for_all_slots or state.checkpoints.restoring is not None:
        assert not submissions.ready
    elif state.status in ACTIVE:
        for attempt in state.current.values():
            execution = state.executions[attempt]
            tree = state.sharing.trees.get(state.topology.slot_of(execution.vertex))
            if execution.state is ExecutionState.SCHEDULED and tree is not None and tree.resolved:
                assert attempt in submissions.ready
