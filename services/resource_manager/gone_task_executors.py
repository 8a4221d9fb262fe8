"""The TaskExecutors that have left or were lost, until they are forgotten.

Replicas keep a state and the leader of each TaskExecutor that ever was, so that a late event of it is judged like any
other. After a while, or if there are too many, TaskExecutorsForgotten ends that: all replicas drop both at the same
offset. The event names the offset at which each has gone, because a new process may have claimed it since.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec.structs import replace

from ...schemas import everyone
from ...schemas.body import Body
from ...schemas.event import EVERYONE, Record
from ..core.role import OutgoingEvent, Step, Time
from .state import ResourceManagerState

MAX_BATCH = 1_000
"""TaskExecutors in one TaskExecutorsForgotten."""
_SHARE = 16
"""Above the capacity a sixteenth of it is forgotten at once, so that this is seldom decided."""


def outgoing_events(state: ResourceManagerState, now: Time) -> list[OutgoingEvent]:
    """Returns TaskExecutorsForgotten if it is due."""
    gone, options = state.gone, state.options
    due = list(islice(gone.order.until(now - options.gone_expiration_time), MAX_BATCH))
    over = len(gone.order) - options.max_gone
    if over > len(due):
        due = list(islice(gone.order, min(over + options.max_gone // _SHARE, MAX_BATCH)))
    if not due:
        return []
    gone_at = {resource_id: gone.offsets[resource_id] for resource_id in due}
    body = everyone.TaskExecutorsForgotten(gone_at=gone_at)
    return [OutgoingEvent(EVERYONE, body, max(gone_at.values()))]


def deadlines(state: ResourceManagerState) -> list[Time]:
    """Returns the time at which the next TaskExecutor is forgotten without any event."""
    first = state.gone.order.first
    return [] if first is None else [first[1] + state.options.gone_expiration_time]


def on_task_executors_forgotten(
    state: ResourceManagerState, _record: Record, body: everyone.TaskExecutorsForgotten
) -> ResourceManagerState:
    gone = state.gone
    for resource_id, offset in body.gone_at.items():
        if gone.offsets.get(resource_id) == offset:
            gone = gone.without(resource_id)
    return replace(state, gone=gone)


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    everyone.TaskExecutorsForgotten: on_task_executors_forgotten,
}
