"""Who held each slot: the job, and the attempts of its tasks, over a part of a history, real or simulated.

A slot is held as its TaskExecutor says, for as long as the ResourceManager knows the TaskExecutor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ...core.replica import Replica
from ...core.role import JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, Time, address, instance_of, kind_of
from ...job_master.state import StartedJob
from ...resource_manager.state import ResourceManagerState
from ...task_executor.state import TaskExecutorState
from ...task_executor.task_slot_table import TaskSlot

MAX_SPANS = 20_000
"""The history ends when it has so many spans."""


class HeldTask(msgspec.Struct, frozen=True, order=True):
    """An attempt of a subtask; both numbers begin at 0."""

    vertex: str
    """The name of the vertex."""
    subtask: int
    attempt: int


class SlotSpan(msgspec.Struct, frozen=True):
    """A job holds a slot with these tasks, from `start` to `end`, in microseconds since the epoch."""

    start: Time
    end: Time
    job_id: str
    tasks: tuple[HeldTask, ...]


class SlotOccupancy(msgspec.Struct, frozen=True):
    """The spans of one slot, in order. `present`: when the slot was registered."""

    resource_id: str
    slot: int
    present: tuple[tuple[Time, Time], ...]
    spans: tuple[SlotSpan, ...]


class SlotHistory(msgspec.Struct, frozen=True):
    """All slots by TaskExecutor and number. `end`: until when it is known."""

    end: Time
    slots: tuple[SlotOccupancy, ...] = ()


class _Holder(msgspec.Struct, frozen=True):
    job_id: str
    attempts: frozenset[str]
    tasks: tuple[HeldTask, ...]


class _Slot:
    """A slot while it is measured. Times are None while it is not registered, and while nobody holds it."""

    __slots__ = ("held_since", "holder", "present", "present_since", "spans")

    def __init__(self) -> None:
        self.present: list[tuple[Time, Time]] = []
        self.spans: list[SlotSpan] = []
        self.present_since: Time | None = None
        self.held_since: Time = 0
        self.holder: _Holder | None = None

    def hold(self, holder: _Holder | None, now: Time) -> bool:
        """Notes who holds the slot from now on; returns whether that ended a span."""
        before, self.holder = self.holder, holder
        since, self.held_since = self.held_since, now
        if before is None or since == now:
            return False
        self.spans.append(SlotSpan(since, now, before.job_id, before.tasks))
        return True

    def leave(self, now: Time) -> None:
        """Notes that the slot is not registered any more."""
        self.hold(None, now)
        if self.present_since is not None:
            self.present.append((self.present_since, now))
        self.present_since = None


class SlotObserver:
    """Observes the slots while the caller folds a replica."""

    def __init__(self, replica: Replica, start: Time, max_spans: int = MAX_SPANS) -> None:
        self._replica = replica
        self._max_spans = max_spans
        self._slots: dict[str, dict[int, _Slot]] = {}
        """By TaskExecutor and number; also those that are gone."""
        self._present: set[str] = set()
        self._names: dict[str, Mapping[str, str]] = {}
        """Job -> vertex id -> name."""
        self._count = 0
        self._end: Time | None = None
        """When the history was full."""
        self._update_workers(start)

    def on_changed(self, addresses: Iterable[str], now: Time) -> None:
        """An event has changed the states of these addresses."""
        if self._end is not None:
            return
        for role_address in addresses:
            if role_address == RESOURCE_MANAGER:
                self._update_workers(now)
            elif kind_of(role_address) == TASK_EXECUTOR and instance_of(role_address) in self._present:
                self._update_slots(instance_of(role_address), now)
        if self._count >= self._max_spans:
            self._end = now

    def history(self, end: Time) -> SlotHistory:
        """Returns the history up to `end`."""
        end = end if self._end is None else min(end, self._end)
        return SlotHistory(
            end,
            tuple(
                _occupancy(resource_id, number, slots[number], end)
                for resource_id, slots in sorted(self._slots.items())
                for number in sorted(slots)
            ),
        )

    def _update_workers(self, now: Time) -> None:
        state = self._replica.states.get(RESOURCE_MANAGER)
        known = set(state.slot_manager.slots.workers if isinstance(state, ResourceManagerState) else ())
        # One event adds or removes TaskExecutors, and never both.
        if len(known) == len(self._present):
            return
        for resource_id in self._present - known:
            for slot in self._slots[resource_id].values():
                slot.leave(now)
        added = known - self._present
        self._present = known
        for resource_id in added:
            self._slots.setdefault(resource_id, {})
            self._update_slots(resource_id, now)

    def _update_slots(self, resource_id: str, now: Time) -> None:
        state = self._replica.states.get(address(TASK_EXECUTOR, resource_id))
        table = state.slots.slots if isinstance(state, TaskExecutorState) else {}
        slots = self._slots[resource_id]
        for number, held in table.items():
            slot = slots.get(number)
            if slot is None:
                slot = slots[number] = _Slot()
            if slot.present_since is None:
                slot.present_since = now
            before = slot.holder
            if held.job_id is None:
                if before is not None:
                    self._count += slot.hold(None, now)
            elif before is None or before.job_id != held.job_id or before.attempts != held.tasks:
                assert isinstance(state, TaskExecutorState)
                self._count += slot.hold(self._holder(state, held, held.job_id), now)

    def _holder(self, state: TaskExecutorState, slot: TaskSlot, job_id: str) -> _Holder:
        names = self._names_of(job_id)
        known = (state.tasks.get(attempt) for attempt in slot.tasks)
        tasks = sorted(
            HeldTask(names.get(task.vertex_id, task.vertex_id), task.subtask_index, task.attempt_number)
            for task in known
            if task is not None
        )
        return _Holder(job_id, slot.tasks, tuple(tasks))

    def _names_of(self, job_id: str) -> Mapping[str, str]:
        found = self._names.get(job_id)
        if found is None:
            state = self._replica.states.get(address(JOB_MASTER, job_id))
            if not isinstance(state, StartedJob):
                return {}
            found = {vertex.vertex_id: vertex.name for vertex in state.graph.vertices}
            self._names[job_id] = found
        return found


def _occupancy(resource_id: str, number: int, slot: _Slot, end: Time) -> SlotOccupancy:
    present, spans, holder = list(slot.present), list(slot.spans), slot.holder
    if slot.present_since is not None:
        present.append((slot.present_since, max(end, slot.present_since)))
    if holder is not None and slot.held_since < end:
        spans.append(SlotSpan(slot.held_since, end, holder.job_id, holder.tasks))
    return SlotOccupancy(resource_id, number, tuple(present), tuple(spans))
