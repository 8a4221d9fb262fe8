"""Failover: restarts what a failure affects, and nothing else.

A failed task restarts in its slot; if the tasks of a slot are one process, all of them do. Tasks of a lost slot restart
in another one. Other tasks continue.

`evolve` records a failure: what failed, why and when (PendingFailure). `decide` applies the restart strategy to it and
says the verdict, RestartScheduled or RestartSuppressed. `evolve` of the verdict restarts the tasks, or fails the job.
Failures that come before the verdict join the one that waits for it, and restart with it. Failures of one cause count
once: one event, or one decision of the ResourceManager, which sends one event for each slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from msgspec.structs import replace

from ...schemas import job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS
from ...schemas.types import ExecutionState
from ..core.outbox import Outbox, with_outbox
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, OutgoingEvent, Step, Time, address
from . import execution_states, executions, job_status, restore, scheduling, slot_moves, termination
from .checkpoints.stop_phase import UNDECIDED, StopPhase
from .exception_history import TaskException, append_exception
from .owed_events import JobMasterEvent, OwedSlotsAccepted, OwedSubmitTask
from .rescale import adaptive_scheduler
from .restart_strategies import FailureHistory, on_failure
from .slot_pool import AllocatedSlot, SlotStep
from .slot_sharing import leaves
from .state import Execution, PendingFailure, StartedJob
from .topology import SlotKey, VertexKey

_REPEAT_INTERVAL: Final = 60_000_000
"""When a denied slot is requested again for a task that can wait for another one, in microseconds."""


def fail_tasks(
    state: StartedJob,
    ended: Sequence[Execution],
    why: str,
    record: Record,
    *,
    progress_lost: bool = False,
    counts: bool = True,
) -> StartedJob:
    """Handles failed Executions whose slots still exist.

    If the tasks of a slot are one process, all of them restart. `progress_lost`: their state is gone, so all tasks roll
    back to a checkpoint. `counts`: whether the restart strategy decides; otherwise they restart at once.
    """
    cause = record.offset
    if state.status not in job_status.ACTIVE or not ended:
        return state
    waits, affected = False, list(ended)
    if not restore.is_under_way(state):
        state = _record_exception(state, ended, why, record)
        if state.checkpoints.stop is StopPhase.SAVED:
            # The savepoint is complete for this task: another attempt would have nothing to do.
            return state
        reason = _failure_message(state, ended, why)
        if state.options.has_slot_processes:
            state, affected = _end_processes(state, ended, cause)
        waits = counts
        if counts:
            vertices = [execution.vertex for execution in affected]
            state = _await_verdict(state, record, reason, vertices=vertices, progress_lost=progress_lost)
    affected.sort(key=lambda each: executions.executions_in_order(state, each))
    state = _retry_ended(state, affected, cause)
    if waits:
        return state
    again = [state.executions[state.current_attempts[execution.vertex]] for execution in affected]
    in_slots = [each for each in again if state.sharing.trees[state.topology.slot_of(each.vertex)].resolved]
    return scheduling.mark_ready(state, in_slots, cause, record.header.time)


def lose_slots(
    state: StartedJob,
    slots: Sequence[AllocatedSlot],
    why: str,
    record: Record,
    *,
    free: bool = False,
) -> StartedJob:
    """Handles lost slots, and the tasks in them. `free`: their TaskExecutor is asked to free them."""
    if not slots:
        return state
    cause = record.offset
    affected: list[Execution] = []
    homeless: list[SlotKey] = []
    lost = {slot.allocation_id for slot in slots}
    state = with_outbox(state, _withdraw_acceptances(state.outbox, lost))
    for slot in slots:
        state = slot_moves.cancel_move(state, slot.allocation_id, why, cause)
        if free:
            state = slot_moves.give_back(state, slot.allocation_id, why, cause)
        else:
            state = replace(state, slots=state.slots.remove_slot(slot.allocation_id))
        for key in state.trees_in(slot):
            homeless.append(key)
            for leaf in leaves(state.sharing.trees[key].root):
                affected.append(state.executions[leaf.execution_attempt_id])
    for execution in affected:
        state = _fail_or_withdraw(state, execution, cause)
    for key in homeless:
        state = replace(state, sharing=state.sharing.assign(key, "", resolved=False))
    if state.status not in job_status.ACTIVE or not affected:
        return state
    if restore.is_under_way(state):
        return scheduling.find_slots(_retry_ended(state, affected, cause), homeless, cause)
    state = _record_exception(state, affected, why, record, slots[0].resource_id)
    if state.checkpoints.stop is StopPhase.SAVED:
        return state
    reason = _failure_message(state, affected, why, slots[0].resource_id)
    return _retry_ended(_await_verdict(state, record, reason, slots=homeless), affected, cause)


def fail_request(state: StartedJob, allocation_id: str, why: str, record: Record) -> StartedJob:
    """Handles a failed PENDING request."""
    request = state.slots.requests[allocation_id]
    is_reserve = state.is_reserve(request)
    state = replace(state, slots=state.slots.cancel_request(allocation_id))
    if request.replaces is not None:
        # Its tasks stay where they are.
        return state
    if state.status not in job_status.ACTIVE:
        return state
    if is_reserve:
        return replace(state, rescaling=state.rescaling.with_failure(why))
    is_denied = record.header.sender == RESOURCE_MANAGER
    state = replace(state, sharing=state.sharing.assign(request.slot, "", resolved=False))
    if is_denied and scheduling.can_wait(state, request):
        due = record.header.time + _REPEAT_INTERVAL
        return scheduling.find_slots(state, [request.slot], record.offset, due)
    return _await_verdict(state, record, why, slots=[request.slot], is_denied=is_denied)


def move_tasks(state: StartedJob, old: AllocatedSlot, allocation_id: str, why: str, cause: int) -> StartedJob:
    """Moves the tasks of a slot to another one, which the job has got for them: each continues there from its last
    commit, and the old slot is freed. It is no failure."""
    key = old.slot
    if key is None:
        return state
    state = with_outbox(state, _withdraw_acceptances(state.outbox, {old.allocation_id}))
    state = slot_moves.give_back(state, old.allocation_id, why, cause)
    affected = [state.executions[leaf.execution_attempt_id] for leaf in leaves(state.sharing.trees[key].root)]
    due = _due_time(state, key)
    for execution in affected:
        state = _fail_or_withdraw(state, execution, cause)
    affected.sort(key=lambda each: executions.executions_in_order(state, each))
    state = replace(state, sharing=state.sharing.assign(key, allocation_id, resolved=True))
    return scheduling.assign_slots(_retry_ended(state, affected, cause), [key], cause, due)


def restart_tasks(state: StartedJob, chosen: Sequence[Execution], record: Record) -> StartedJob:
    """Restarts running tasks in their slots, because somebody asked for it. It is no failure. A job that rolls back,
    rescales or stops with a savepoint restarts none: they end already."""
    cause = record.offset
    if restore.is_under_way(state) or not slot_moves.may_move(state):
        return state
    affected = [each for each in chosen if each.state in execution_states.DEPLOYED]
    for execution in affected:
        state = executions.transition(state, execution, ExecutionState.FAILED, cause)
        state = executions.request_cancel(state, execution, cause)
    if affected and state.options.has_slot_processes:
        state, affected = _end_processes(state, affected, cause)
    affected.sort(key=lambda each: executions.executions_in_order(state, each))
    slots = dict.fromkeys(state.topology.slot_of(execution.vertex) for execution in affected)
    return scheduling.assign_slots(_retry_ended(state, affected, cause), slots, cause)


def rerequest_slots(state: StartedJob, why: str, cause: int) -> StartedJob:
    """Cancels PENDING requests and creates new ones."""
    if state.status not in job_status.ACTIVE:
        return state
    pending = [each for each in state.slots.requests.values() if each.step is SlotStep.PENDING]
    # A rescale requests its own slots again by itself.
    waiting = sorted(each.slot for each in state.tree_requests() if each.step is SlotStep.PENDING)
    for request in sorted(pending, key=lambda each: (each.slot, each.allocation_id)):
        state = slot_moves.give_back(state, request.allocation_id, why, cause)
    return scheduling.find_slots(state, waiting, cause)


def free_slot(state: StartedJob, slot: AllocatedSlot, cause: int) -> StartedJob:
    """Handles a freed slot that was reused while FreeSlot was in flight: the waiting tasks get another slot."""
    if slot.replacement is not None:
        state = slot_moves.give_back(state, slot.replacement, "its tasks have another slot", cause)
    for key in state.trees_in(slot):
        state = _free_tree(state, key, cause)
    return state


def _free_tree(state: StartedJob, key: SlotKey, cause: int) -> StartedJob:
    due = _due_time(state, key)
    for leaf in leaves(state.sharing.trees[key].root):
        state = replace(state, ready=state.ready.remove(OwedSubmitTask, leaf.execution_attempt_id))
    state = replace(state, sharing=state.sharing.assign(key, "", resolved=False))
    if state.status not in job_status.ACTIVE:
        return state
    failure = state.pending_failure
    if failure is not None and any(state.topology.slot_of(vertex) == key for vertex in failure.vertices):
        return replace(state, pending_failure=replace(failure, slots=failure.slots.set(key, None)))
    return scheduling.find_slots(state, [key], cause, due)


def _due_time(state: StartedJob, key: SlotKey) -> Time:
    """Returns the time from which on all tasks of a slot may be submitted."""
    inside = leaves(state.sharing.trees[key].root)
    return max(
        (state.ready.due_time(OwedSubmitTask, each.execution_attempt_id) or 0 for each in inside), default=0
    )


def verdict_events(state: StartedJob) -> list[OutgoingEvent]:
    """Returns RestartScheduled or RestartSuppressed for failures without a verdict. A job that never had all its slots
    does not restart if it cannot get them.

    None while the outcome of the job's final savepoint is open: if it is complete, nothing is left to restart.
    """
    failure = state.pending_failure
    if failure is None or state.status not in job_status.ACTIVE or state.checkpoints.stop in UNDECIDED:
        return []
    strategy = state.options.restart_strategy
    history = on_failure(strategy, state.failures, failure.identity, failure.time, state.job_id)
    body: Body
    denial = None if state.has_had_all_slots else failure.denial
    if denial is not None and adaptive_scheduler.may_start_with_fewer(state):
        return []
    if denial is not None or history.restart_at is None:
        body = job_master.RestartSuppressed(
            job_id=state.job_id, failure_count=history.counted, reason=denial or failure.reason
        )
    else:
        body = job_master.RestartScheduled(
            job_id=state.job_id,
            restart_at=history.restart_at,
            failure_count=history.counted,
            backoff_us=history.backoff,
            failures_in_interval=len(history.recent),
        )
    return [OutgoingEvent(address(JOB_MASTER, state.job_id), body, failure.cause)]


def on_restart_scheduled(state: StartedJob, record: Record, body: job_master.RestartScheduled) -> StartedJob:
    """Restarts the tasks of the pending failures at the time that the verdict says."""
    failure, cause, due = state.pending_failure, record.offset, body.restart_at
    if failure is None or record.header.cause != failure.cause:
        return state
    before = state.failures
    is_counted = body.failure_count != before.counted
    recent = (*before.recent, failure.time) if is_counted else before.recent
    recent = recent[max(0, len(recent) - body.failures_in_interval) :]
    history = FailureHistory(
        counted=body.failure_count,
        identity=failure.identity,
        decision=max(before.decision, failure.decision),
        restart_at=due,
        backoff=body.backoff_us,
        recent=recent,
    )
    state = replace(state, failures=history, pending_failure=None)
    if failure.progress_lost is not None and not restore.is_under_way(state):
        state = restore.start_rollback(state, failure.progress_lost, cause, due)
    trees = state.sharing.trees
    homeless = [key for key in sorted(failure.slots) if key in trees and not trees[key].allocation_id]
    state = scheduling.find_slots(state, homeless, cause, due)
    return scheduling.mark_ready(state, _waiting_in_slots(state, failure), cause, due)


def on_restart_suppressed(
    state: StartedJob, record: Record, body: job_master.RestartSuppressed
) -> StartedJob:
    """Requires that the job fails."""
    failure = state.pending_failure
    if failure is None or record.header.cause != failure.cause:
        return state
    history = replace(state.failures, counted=body.failure_count, identity=failure.identity, restart_at=None)
    # The failure waits for the job's end: its tasks have no slots.
    return termination.fail_job(replace(state, failures=history), body.reason, record.offset)


def _await_verdict(
    state: StartedJob,
    record: Record,
    reason: str,
    *,
    vertices: Iterable[VertexKey] = (),
    slots: Iterable[SlotKey] = (),
    progress_lost: bool = False,
    is_denied: bool = False,
) -> StartedJob:
    """Records a failure, or adds it to those that wait for a verdict."""
    header, before, counted = record.header, state.pending_failure, state.failures
    decided_at = header.decided_at if header.sender == RESOURCE_MANAGER else None
    decision = -1 if decided_at is None else decided_at
    if decided_at is not None and decision <= counted.decision and counted.identity is not None:
        # An event of a decision that has counted already joins without an identity of its own.
        identity = counted.identity if before is None else before.identity
    else:
        identity = str(record.offset) if decided_at is None else f"{header.sender}@{decision}"
    failure = before or PendingFailure(record.offset, header.time, identity, reason)
    failure = replace(
        failure,
        identity=identity,
        decision=max(failure.decision, decision),
        denial=reason if is_denied else failure.denial,
        progress_lost=reason if progress_lost and failure.progress_lost is None else failure.progress_lost,
        vertices=failure.vertices.update(dict.fromkeys(vertices)),
        slots=failure.slots.update(dict.fromkeys(slots)),
    )
    return replace(state, pending_failure=failure)


def _waiting_in_slots(state: StartedJob, failure: PendingFailure) -> list[Execution]:
    """Returns the Executions that wait for the verdict and whose slots exist."""
    found = []
    for vertex in sorted(failure.vertices):
        execution = state.executions[state.current_attempts[vertex]]
        tree = state.sharing.trees.get(state.topology.slot_of(vertex))
        is_waiting = state.ready.get(OwedSubmitTask, execution.execution_attempt_id) is None
        if execution.state is ExecutionState.SCHEDULED and is_waiting and tree is not None and tree.resolved:
            found.append(execution)
    return found


def _record_exception(
    state: StartedJob,
    affected: Sequence[Execution],
    why: str,
    record: Record,
    resource_id: str | None = None,
) -> StartedJob:
    first = min(affected, key=lambda each: executions.executions_in_order(state, each))
    exception = TaskException(
        record.header.time, record.offset, _join_names(state, affected), first.resource_id or resource_id, why
    )
    return replace(state, exceptions=append_exception(state.exceptions, exception))


def _withdraw_acceptances(outbox: Outbox[JobMasterEvent], lost: Set[str]) -> Outbox[JobMasterEvent]:
    """Removes the lost slots from the answers to offers."""
    for event in outbox:
        if isinstance(event, OwedSlotsAccepted) and not lost.isdisjoint(event.allocation_ids):
            left = tuple(each for each in event.allocation_ids if each not in lost)
            outbox = (
                outbox.owe(replace(event, allocation_ids=left))
                if left
                else outbox.remove(OwedSlotsAccepted, event.cause)
            )
    return outbox


def _fail_or_withdraw(state: StartedJob, execution: Execution, cause: int) -> StartedJob:
    """Fails an Execution in a lost slot if it was submitted; otherwise it waits for another slot."""
    if execution.state in execution_states.DEPLOYED:
        return executions.transition(state, execution, ExecutionState.FAILED, cause)
    return replace(state, ready=state.ready.remove(OwedSubmitTask, execution.execution_attempt_id))


def _end_processes(
    state: StartedJob, ended: Sequence[Execution], cause: int
) -> tuple[StartedJob, list[Execution]]:
    """Fails the other tasks of the processes in which tasks have ended; returns all tasks of these slots.

    Their TaskExecutor reports the end of each task of a process. The first report decides for all, so it is one
    failure, and no task of the slot is submitted without the others. The other tasks are also cancelled, for a
    TaskExecutor that failed between these reports would continue with them; their reports withdraw that.
    """
    affected = {execution.execution_attempt_id: execution for execution in ended}
    for slot in dict.fromkeys(state.topology.slot_of(execution.vertex) for execution in ended):
        for leaf in leaves(state.sharing.trees[slot].root):
            other = state.executions[leaf.execution_attempt_id]
            if other.execution_attempt_id in affected:
                continue
            affected[other.execution_attempt_id] = other
            state = _fail_or_withdraw(state, other, cause)
            if other.state in execution_states.DEPLOYED:
                state = executions.request_cancel(state, other, cause)
    return state, list(affected.values())


def _retry_ended(state: StartedJob, affected: Sequence[Execution], cause: int) -> StartedJob:
    for execution in affected:
        if state.executions[execution.execution_attempt_id].state in EXECUTION_ENDS:
            state = executions.retry_execution(state, execution.vertex, cause)
    return state


def _failure_message(
    state: StartedJob, affected: Sequence[Execution], why: str, resource_id: str | None = None
) -> str:
    first = min(affected, key=lambda each: executions.executions_in_order(state, each))
    where = first.resource_id or resource_id
    return f"{_join_names(state, affected)} on {where}: {why}"


def _join_names(state: StartedJob, affected: Sequence[Execution]) -> str:
    first = min(affected, key=lambda each: executions.executions_in_order(state, each))
    more = f" and {len(affected) - 1} more" if len(affected) > 1 else ""
    return f"{executions.execution_name(state, first)}{more}"


STEPS: Mapping[type[Body], Step[StartedJob]] = {
    job_master.RestartScheduled: on_restart_scheduled,
    job_master.RestartSuppressed: on_restart_suppressed,
}
