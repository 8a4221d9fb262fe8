"""Failover: restarts what a failure affects, and nothing else.

A failed task restarts in its slot. Tasks of a lost slot restart in another one. Other tasks continue. The restart
strategy decides when, or that the job fails. Failures of one cause count once: one event, or one decision of the
ResourceManager, which sends one event for each slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schemas.event import Record
from ...schemas.types import ExecutionState
from ..core.role import RESOURCE_MANAGER, Time
from . import execution_states, executions, job_status, restore, scheduling, termination
from .exception_history import TaskException, append_exception
from .restart_strategies import on_failure
from .slot_pool import AllocatedSlot, SlotStep
from .slot_sharing import leaves
from .state import DeploymentKey, Execution, JobMasterState
from .topology import SlotKey

_UNTIL_STOPPED = 1_000_000
"""Between two tries, in microseconds, while the metadata is written of a savepoint that the job ends with."""


def fail_tasks(
    state: JobMasterState,
    ended: Sequence[Execution],
    why: str,
    record: Record,
    *,
    progress_lost: bool = False,
    counts: bool = True,
) -> JobMasterState:
    """Executions have ended that were to go on; their slots are still there.

    `progress_lost`: what they were to go on from is gone, so that all tasks go back to a checkpoint. `counts`: whether
    the restart strategy is asked.
    """
    cause = record.offset
    if state.status not in job_status.ACTIVE or not ended:
        return termination.finish_if_done(state, cause)
    at: Time = 0
    if not restore.is_under_way(state):
        state = _record_exception(state, ended, why, record)
        if state.checkpoints.stopping:
            # The savepoint has all that was wanted: another attempt would have nothing to do.
            return termination.finish_if_done(state, cause)
        state, due = _apply_restart_strategy(state, record) if counts else (state, record.header.time)
        if due is None:
            return termination.fail_job(state, _failure_message(state, ended, why), cause)
        at = due
        if progress_lost and not state.checkpoints.stop_is_acknowledged:
            state = restore.start_rollback(state, _failure_message(state, ended, why), cause, due)
            if state.status not in job_status.ACTIVE:
                return state
    again = []
    for execution in sorted(ended, key=lambda each: executions.executions_in_order(state, each)):
        state = executions.retry_execution(state, execution.vertex, cause)
        again.append(state.executions[state.current[execution.vertex]])
    in_slots = [each for each in again if state.sharing.trees[state.topology.slot_of(each.vertex)].resolved]
    return scheduling.mark_ready(state, in_slots, cause, at)


def on_restart(state: JobMasterState, cause: int) -> JobMasterState:
    """A task continues in a new process of its TaskExecutor, although the job ends with a savepoint.

    A TaskExecutor that has read the acknowledgement does not do that; if one does, its output contradicts the
    savepoint.
    """
    return termination.cancel_job(state, cause) if state.checkpoints.stopping else state


def lose_slots(
    state: JobMasterState,
    slots: Sequence[AllocatedSlot],
    why: str,
    record: Record,
    *,
    free: bool = False,
    alive: bool = True,
) -> JobMasterState:
    """Slots are gone, with the tasks in them.

    `free`: their TaskExecutor is told to free them. `alive`: it may still wait for the rest of a deployment.
    """
    if not slots:
        return state
    cause = record.offset
    affected: list[Execution] = []
    homeless: list[SlotKey] = []
    for slot in slots:
        state = _release_slot(state, slot, why, cause, free=free)
        if slot.slot is None or slot.slot not in state.sharing.trees:
            continue
        homeless.append(slot.slot)
        for leaf in leaves(state.sharing.trees[slot.slot].root):
            affected.append(state.executions[leaf.execution_attempt_id])
    for execution in affected:
        state = _lost(state, execution, slots, cause, alive=alive)
    state = _cancel_void_deployments(state, affected)
    for key in homeless:
        state = replace(state, sharing=state.sharing.assign(key, "", resolved=False))
    if state.status not in job_status.ACTIVE:
        return termination.finish_if_done(state, cause)
    if not affected:
        return state
    at: Time = 0
    if not restore.is_under_way(state):
        state = _record_exception(state, affected, why, record, slots[0].resource_id)
        if state.checkpoints.stopping:
            return termination.finish_if_done(state, cause)
        state, due = _apply_restart_strategy(state, record)
        if due is None:
            return termination.fail_job(
                state, _failure_message(state, affected, why, slots[0].resource_id), cause
            )
        at = due
    return scheduling.find_slots(_retry_failed(state, affected, cause), homeless, cause, at)


def fail_request(state: JobMasterState, allocation_id: str, why: str, record: Record) -> JobMasterState:
    """No slot for a PENDING request. A job that never had all its slots fails at once."""
    request, cause = state.slots.requests[allocation_id], record.offset
    state = replace(state, slots=state.slots.cancel_request(allocation_id))
    if state.status not in job_status.ACTIVE:
        return termination.finish_if_done(state, cause)
    if not state.had_all_slots and record.header.sender == RESOURCE_MANAGER:
        return termination.fail_job(state, why, cause)
    state, due = _apply_restart_strategy(state, record)
    if due is None:
        return termination.fail_job(state, why, cause)
    return scheduling.find_slots(state, [request.slot], cause, due)


def rerequest_slots(state: JobMasterState, why: str, cause: int) -> JobMasterState:
    """Cancels PENDING requests and makes new ones."""
    if state.status not in job_status.ACTIVE:
        return state
    waiting = sorted(
        (each.slot, each.allocation_id)
        for each in state.slots.requests.values()
        if each.step is SlotStep.PENDING
    )
    for _, allocation_id in waiting:
        state = replace(state, slots=state.slots.give_back(allocation_id, why, cause))
    return scheduling.find_slots(state, [slot for slot, _ in waiting], cause)


def free_slot(state: JobMasterState, slot: AllocatedSlot, cause: int) -> JobMasterState:
    """A slot was idle, and reused while FreeSlot was in flight: what waits in it gets another one."""
    key = slot.slot
    if key is None or key not in state.sharing.trees:
        return state
    due = 0
    for leaf in leaves(state.sharing.trees[key].root):
        execution = state.executions[leaf.execution_attempt_id]
        due = max(due, state.submissions.ready.times.get(leaf.execution_attempt_id, 0))
        state = scheduling.unmark_ready(state, execution, slot.resource_id)
    state = replace(state, sharing=state.sharing.assign(key, "", resolved=False))
    return scheduling.find_slots(state, [key], cause, due) if state.status in job_status.ACTIVE else state


def _apply_restart_strategy(state: JobMasterState, record: Record) -> tuple[JobMasterState, Time | None]:
    header = record.header
    identity = (
        f"{header.sender}@{header.decided_at}"
        if header.sender == RESOURCE_MANAGER and header.decided_at is not None
        else str(record.offset)
    )
    failures = on_failure(state.options.restart_strategy, state.failures, identity, header.time, state.job_id)
    due = failures.restart_at
    if due is None and state.checkpoints.stop_is_acknowledged:
        # Nobody starts again before its outcome is known: if it is complete nothing is left to be done.
        due = header.time + _UNTIL_STOPPED
    return replace(state, failures=failures), due


def _record_exception(
    state: JobMasterState,
    affected: Sequence[Execution],
    why: str,
    record: Record,
    resource_id: str | None = None,
) -> JobMasterState:
    first = min(affected, key=lambda each: executions.executions_in_order(state, each))
    exception = TaskException(
        record.header.time, record.offset, _join_names(state, affected), first.resource_id or resource_id, why
    )
    return replace(state, exceptions=append_exception(state.exceptions, exception))


def _release_slot(
    state: JobMasterState, slot: AllocatedSlot, why: str, cause: int, *, free: bool
) -> JobMasterState:
    allocation_id = slot.allocation_id
    pool = (
        state.slots.give_back(allocation_id, why, cause)
        if free
        else state.slots.remove_task_executor(allocation_id)
    )
    answers = state.answers
    for offset, answer in state.answers.items():
        if allocation_id in answer.accepted:
            left = replace(answer, accepted=tuple(each for each in answer.accepted if each != allocation_id))
            answers = answers.set(offset, left) if left.accepted or left.rejected else answers.delete(offset)
    return replace(state, slots=pool, answers=answers)


def _lost(
    state: JobMasterState,
    execution: Execution,
    slots: Sequence[AllocatedSlot],
    cause: int,
    *,
    alive: bool,
) -> JobMasterState:
    """Fails an Execution in a lost slot if it was submitted; otherwise it waits for another slot."""
    if execution.state in execution_states.DEPLOYED:
        return executions.transition(state, execution, ExecutionState.FAILED, cause)
    attempt, ready = execution.execution_attempt_id, state.submissions.ready
    if execution.state is not ExecutionState.SCHEDULED or attempt not in ready:
        return state
    key = state.topology.slot_of(execution.vertex)
    slot = next(each for each in slots if each.slot == key)
    deployment = state.submissions.deployments.get(
        (execution.vertex_id, slot.resource_id, ready.value(attempt))
    )
    execution = replace(execution, allocation_id=slot.allocation_id, resource_id=slot.resource_id)
    if not alive or deployment is None or deployment.size == 1:
        return scheduling.unmark_ready(state, execution, slot.resource_id)
    # The others of its deployment wait for it at the TaskExecutor: it is submitted, for nothing, into a lost slot.
    return executions.transition(state, execution, ExecutionState.FAILED, cause)


def _cancel_void_deployments(state: JobMasterState, affected: Sequence[Execution]) -> JobMasterState:
    """Submits nothing of a deployment of which every subtask is void."""
    ready = state.submissions.ready
    members: dict[DeploymentKey, list[Execution]] = {}
    attempts = (each.execution_attempt_id for each in affected)
    if not any(each in ready and state.executions[each].state is ExecutionState.FAILED for each in attempts):
        return state
    for attempt in ready.times:
        execution = state.executions[attempt]
        resource_id = scheduling.slot_of(state, execution).resource_id
        members.setdefault((execution.vertex_id, resource_id, ready.value(attempt)), []).append(execution)
    for key, together in members.items():
        deployment = state.submissions.deployments[key]
        if len(together) == deployment.size and all(each.state is ExecutionState.FAILED for each in together):
            for execution in together:
                state = scheduling.unmark_ready(state, execution, key[1])
    return state


def _retry_failed(state: JobMasterState, affected: Sequence[Execution], cause: int) -> JobMasterState:
    for execution in affected:
        if state.executions[execution.execution_attempt_id].state is ExecutionState.FAILED:
            state = executions.retry_execution(state, execution.vertex, cause)
    return state


def _failure_message(
    state: JobMasterState, affected: Sequence[Execution], why: str, resource_id: str | None = None
) -> str:
    first = min(affected, key=lambda each: executions.executions_in_order(state, each))
    where = first.resource_id or resource_id
    return f"{_join_names(state, affected)} on {where}: {why}"


def _join_names(state: JobMasterState, affected: Sequence[Execution]) -> str:
    first = min(affected, key=lambda each: executions.executions_in_order(state, each))
    more = f" and {len(affected) - 1} more" if len(affected) > 1 else ""
    return f"{executions.execution_name(state, first)}{more}"
