"""The JobMaster's indexes, recomputed from its Executions, slots and connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...schemas.types import ExecutionState
from ..core.index_validation import compare, compare_times
from .execution_states import DEPLOYED
from .slot_pool import SlotPool, SlotStep
from .state import Handshake, JobMasterState


def index_errors(state: JobMasterState) -> Iterator[str]:
    """A line for each index that differs."""
    yield from compare_times("submissions.ready", state.submissions.ready)
    yield from _pool(state.slots)
    yield from _executions(state)
    yield from _deployments(state)
    owing = {
        connection.resource_id
        for connection in state.connections.values()
        if Handshake.OWED in (connection.registration, connection.disconnect)
    }
    yield from compare("connections_owing", set(state.connections_owing), owing)


def _pool(pool: SlotPool) -> Iterator[str]:
    yield from compare_times("wanted slots", pool.wanted)
    yield from compare_times("idle slots", pool.idle)
    available = {slot.allocation_id for slot in pool.slots.values() if slot.step is SlotStep.AVAILABLE}
    yield from compare("idle slots", set(pool.idle.times), available)
    yield from compare("wanted slots without a request", set(pool.wanted.times) - set(pool.requests), set())
    of_resource: dict[str, set[str]] = {}
    for slot in pool.slots.values():
        of_resource.setdefault(slot.resource_id, set()).add(slot.allocation_id)
    yield from compare(
        "of_resource", {key: set(slots) for key, slots in pool.of_resource.items()}, of_resource
    )


def _executions(state: JobMasterState) -> Iterator[str]:
    current = [state.executions[attempt] for attempt in state.current.values()]
    counts = Counter(execution.state for execution in current)
    yield from compare("counts.scheduled", state.counts.scheduled, counts[ExecutionState.SCHEDULED])
    yield from compare("counts.finished", state.counts.finished, counts[ExecutionState.FINISHED])
    yield from compare("counts.running", state.counts.running, counts[ExecutionState.RUNNING])
    yield from compare("counts.unfinished", state.counts.unfinished, sum(counts[each] for each in DEPLOYED))


def _deployments(state: JobMasterState) -> Iterator[str]:
    """The number of subtasks of a vertex that are still to be submitted to a TaskExecutor in one deployment."""
    left: Counter[tuple[str, str, int]] = Counter()
    for attempt in state.submissions.ready.times:
        execution = state.executions[attempt]
        resource_id = execution.resource_id
        if execution.state is ExecutionState.SCHEDULED:
            tree = state.sharing.trees[state.topology.slot_of(execution.vertex)]
            resource_id = state.slots.slots[tree.allocation_id].resource_id
        left[(execution.vertex_id, resource_id or "", state.submissions.ready.value(attempt))] += 1
    kept = {key: deployment.left for key, deployment in state.submissions.deployments.items()}
    yield from compare("submissions.deployments", kept, dict(left))
