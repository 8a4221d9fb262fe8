"""Detects slow tasks of a stage, and moves them to slots that other tasks have left (Flink's speculative execution).

A task is slow if it has run for longer than the median of the tasks of its vertex that have finished, times a factor.
`decide` says so, with an available slot of the job on another TaskExecutor (SlowTaskDetected). The tasks of the slot
continue there from their last commits: the next attempt fences the slow one, so the two never run beside each other
(docs/decisions/slow-tasks-move.md). A task moves once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median_low
from typing import NamedTuple

from msgspec.structs import replace

from ...schemas import job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import ExecutionState
from ..core.role import JOB_MASTER, OutgoingEvent, Step, Time, address
from . import executions, failover, slot_moves
from .slot_pool import AllocatedSlot, SlotStep, best_matching
from .state import Execution, StartedJob
from .topology import SlotKey

_RUNS = frozenset({ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING})


class _Candidate(NamedTuple):
    """A task that is slow from a time on."""

    execution: Execution
    due: Time
    median: Time
    """0: none has finished."""


def detector_events(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns SlowTaskDetected for tasks that are slow, as far as there are slots for them elsewhere."""
    events: list[OutgoingEvent] = []
    idle, moved = state.slots.idle_slots(), set[SlotKey]()
    for candidate in _candidates(state):
        execution = candidate.execution
        key = state.topology.slot_of(execution.vertex)
        if candidate.due > now or key in moved:
            continue
        target = _find_target(state, execution, idle)
        if target is None:
            continue
        idle.remove(target)
        moved.add(key)
        body = job_master.SlowTaskDetected(
            job_id=state.job_id,
            execution_attempt_id=execution.execution_attempt_id,
            allocation_id=target.allocation_id,
            reason=_reason(state, candidate, target, now),
        )
        events.append(OutgoingEvent(address(JOB_MASTER, state.job_id), body, execution.cause))
    return events


def deadline(state: StartedJob) -> Time | None:
    """Returns when the next task is slow that could move."""
    idle = state.slots.idle_slots()
    dues = (each.due for each in _candidates(state) if _find_target(state, each.execution, idle) is not None)
    return min(dues, default=None)


def on_slow_task_detected(state: StartedJob, record: Record, body: job_master.SlowTaskDetected) -> StartedJob:
    execution = state.executions.get(body.execution_attempt_id)
    target = state.slots.slots.get(body.allocation_id)
    if execution is None or execution.state not in _RUNS or not slot_moves.may_move(state):
        return state
    old = _slot(state, execution)
    if target is None or target.step is not SlotStep.AVAILABLE or old is None or old.slot is None:
        # It was lost or taken since the decision.
        return state
    state = replace(
        state,
        slots=state.slots.allocate_available(target.allocation_id, old.slot),
        moved_tasks=state.moved_tasks.set(execution.vertex, None),
    )
    return failover.move_tasks(state, old, target.allocation_id, body.reason, record.offset)


def _candidates(state: StartedJob) -> Iterator[_Candidate]:
    options = state.options.slow_task_detector
    is_calm = slot_moves.may_move(state) and state.pending_failure is None
    if options is None or not is_calm or not state.slots.idle or not state.counts.unfinished:
        return
    for vertex in state.topology.in_order:
        if vertex.stage != state.stage:
            continue
        keys = ((vertex.vertex_id, index) for index in range(vertex.parallelism))
        current = [state.executions[state.current_attempts[key]] for key in keys]
        durations = [each.duration for each in current if each.state is ExecutionState.FINISHED]
        if len(durations) < math.ceil(options.ratio * vertex.parallelism):
            continue
        median = median_low(durations) if durations else 0
        baseline = max(options.lower_bound, round(median * options.multiplier))
        for each in current:
            if each.state in _RUNS and each.vertex not in state.moved_tasks:
                yield _Candidate(each, each.since + baseline, median)


def _find_target(state: StartedJob, execution: Execution, idle: list[AllocatedSlot]) -> AllocatedSlot | None:
    old = _slot(state, execution)
    if old is None or old.replacement is not None:
        return None
    key = state.topology.slot_of(execution.vertex)
    profile = state.topology.profiles_of([key], state.stage)[key]
    return best_matching((slot for slot in idle if slot.resource_id != old.resource_id), profile)


def _slot(state: StartedJob, execution: Execution) -> AllocatedSlot | None:
    """Returns the slot in which a task runs; None if it is moving or has lost it."""
    tree = state.sharing.trees.get(state.topology.slot_of(execution.vertex))
    slot = None if tree is None or not tree.resolved else state.slots.slots.get(tree.allocation_id)
    return slot if slot is not None and slot.allocation_id == execution.allocation_id else None


def _reason(state: StartedJob, candidate: _Candidate, target: AllocatedSlot, now: Time) -> str:
    name = executions.execution_name(state, candidate.execution)
    usual = f", and others for {candidate.median / 1e6:.1f} s" if candidate.median else ""
    runs = f"{name} runs for {(now - candidate.execution.since) / 1e6:.1f} s{usual}"
    return f"{runs}: it moves to TaskExecutor {target.resource_id}"


STEPS: Mapping[type[Body], Step[StartedJob]] = {job_master.SlowTaskDetected: on_slow_task_detected}
