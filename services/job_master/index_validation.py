"""Recomputes the JobMaster's indexes from its Executions, slots and connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...schemas.types import ExecutionState
from ..core.index_validation import compare, compare_outbox
from .checkpoints.stop_phase import UNDECIDED, StopPhase
from .execution_states import DEPLOYED
from .owed_events import OwedDisconnectJobManager
from .slot_pool import SlotPool, SlotStep
from .state import ConnectionState, JobMasterState, NewJob, StartedJob, TerminatedJob


def index_errors(state: JobMasterState) -> Iterator[str]:
    """Returns a line for each index that differs."""
    if isinstance(state, NewJob):
        return
    yield from compare_outbox(state.outbox)
    if isinstance(state, TerminatedJob):
        return
    yield from compare_outbox(state.ready)
    yield from compare_outbox(state.checkpoints.notifications)
    yield from _pool(state.slots)
    yield from _executions(state)
    yield from _submissions(state)
    yield from compare("checkpoints.stop", state.checkpoints.stop in _stop_phases(state), True)
    owed = {event.resource_id for event in state.outbox if isinstance(event, OwedDisconnectJobManager)}
    connected = {key for key, value in state.connections.items() if value is ConnectionState.CONNECTED}
    yield from compare("connected TaskExecutors to disconnect", owed & connected, set())
    yield from compare("unknown TaskExecutors to disconnect", owed - set(state.connections), set())


def _stop_phases(state: StartedJob) -> frozenset[StopPhase]:
    """Returns the possible phases of a stop with the pending savepoint that stops the job."""
    stops = [each for each in state.checkpoints.pending.values() if each.options.stops]
    if not stops:
        return frozenset({StopPhase.NONE, StopPhase.SAVED})
    (savepoint,) = stops
    if savepoint.failure is not None:
        return frozenset({StopPhase.ABORTING})
    return frozenset({StopPhase.TAKING}) if savepoint.awaited else UNDECIDED


def _pool(pool: SlotPool) -> Iterator[str]:
    yield from compare_outbox(pool.wanted)
    available = {slot.allocation_id for slot in pool.slots.values() if slot.step is SlotStep.AVAILABLE}
    yield from compare("idle slots", set(pool.idle), available)
    yield from compare(
        "wanted slots without a request",
        {owed.allocation_id for owed in pool.wanted} - set(pool.requests),
        set(),
    )
    of_resource: dict[str, set[str]] = {}
    for slot in pool.slots.values():
        of_resource.setdefault(slot.resource_id, set()).add(slot.allocation_id)
    yield from compare(
        "of_resource", {key: set(slots) for key, slots in pool.of_resource.items()}, of_resource
    )


def _executions(state: StartedJob) -> Iterator[str]:
    current = [state.executions[attempt] for attempt in state.current_attempts.values()]
    counts = Counter(execution.state for execution in current)
    yield from compare("counts.scheduled", state.counts.scheduled, counts[ExecutionState.SCHEDULED])
    yield from compare("counts.finished", state.counts.finished, counts[ExecutionState.FINISHED])
    yield from compare("counts.running", state.counts.running, counts[ExecutionState.RUNNING])
    yield from compare("counts.unfinished", state.counts.unfinished, sum(counts[each] for each in DEPLOYED))


def _submissions(state: StartedJob) -> Iterator[str]:
    """Checks that owed submissions are SCHEDULED, in a tree with a slot."""
    submitted = {owed.execution_attempt_id for owed in state.ready}
    ready = [state.executions[attempt] for attempt in submitted]
    in_slots = {
        execution.execution_attempt_id
        for execution in ready
        if execution.state is ExecutionState.SCHEDULED
        and state.sharing.trees[state.topology.slot_of(execution.vertex)].allocation_id in state.slots.slots
    }
    yield from compare("ready", submitted, in_slots)
