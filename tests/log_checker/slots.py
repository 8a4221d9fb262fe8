"""Which allocation holds each slot according to the TaskExecutors, and which slots each JobMaster has accepted.

A slot is held from SlotRequestAccepted to NotifySlotAvailable, or until its TaskExecutor is lost or leaves;
SendSlotReport replaces everything. An event that a TaskExecutor sends before it has read of its own loss is late and
does not count: its slots are gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event

Slot = tuple[str, int]
"""(ResourceID, number)."""

_GIVES_BACK = ("task_executor.FreeSlot", "job_master.FailSlot", "resource_manager.CancelSlotRequest")


class Slots:
    """Slots and allocations so far; other invariants read it."""

    def __init__(self) -> None:
        self.job_of: dict[str, str] = {}
        """AllocationID -> the job that it was requested for."""
        self.holder: dict[Slot, str] = {}
        self.taken: dict[str, str] = {}
        """AllocationID -> the TaskExecutor whose slot the JobMaster has taken for it."""
        self.alive: set[str] = set()
        """TaskExecutors that have registered and were not lost since, nor have left."""
        self.lost: dict[str, int] = {}
        """TaskExecutor -> the offset of its last loss."""
        self.left: dict[str, int] = {}
        """TaskExecutor -> the offset at which it left last; JobMasters are told by others."""
        self.gone: dict[str, int] = {}
        """AllocationID -> the offset at which its JobMaster lost it or gave it back."""
        self.cut: dict[tuple[str, str], int] = {}
        """(job, TaskExecutor) -> the offset of the last end of their connection by the JobMaster."""
        self.lost_slot: dict[str, int] = {}
        """Job -> the offset at which it lost a slot last."""
        self.ended: set[str] = set()
        self.terminated = False
        self._since: dict[Slot, int] = {}
        self._known: dict[str, int | None] = {}
        """TaskExecutors whose processes have asked for their registration, and where it was answered."""

    def is_late(self, event: Event) -> bool:
        """Returns whether a TaskExecutor sends this without having read of its own loss or exit."""
        gone = max(self.lost.get(event.by, -1), self.left.get(event.by, -1))
        return event.kind == "task_executor" and gone >= 0 and not event.has_read(gone)

    def over(self, job_id: str, resource_id: str, allocation_id: str) -> int:
        """Returns the last offset at which the job lost an allocation at a TaskExecutor; -1 if it never did."""
        lost, cut = self.lost.get(resource_id, -1), self.cut.get((job_id, resource_id), -1)
        return max(lost, cut, self.gone.get(allocation_id, -1))

    def echo(self, event: Event) -> None:
        """Handles a duplicate event."""
        if event.name == "resource_manager.RegisterTaskExecutor":
            self._known[event["resource_id"]] = None

    def see(self, event: Event) -> Iterator[str]:
        name = event.name
        if name in ("resource_manager.RequestSlot", "task_executor.RequestSlot"):
            yield from self._on_request(event["allocation_id"], event["job_id"])
        elif name == "resource_manager.SlotRequestAccepted":
            if not self.is_late(event):
                yield from self._held(event)
        elif name == "resource_manager.NotifySlotAvailable":
            if not self.is_late(event):
                yield from self._freed(event)
        elif name == "resource_manager.SendSlotReport":
            if not self.is_late(event):
                yield from self._reported(event)
        elif name == "resource_manager.RegisterTaskExecutor":
            self._known[event["resource_id"]] = None
            if not self.is_late(event):
                self.alive.add(event["resource_id"])
        elif name == "task_executor.TaskExecutorRegistrationSuccess":
            if event.to in self._known:
                self._known[event.to] = event.offset
        elif name == "task_executor.HeartbeatTimedOut":
            if event["peer"] == "resource_manager":
                self._known[event.by] = None
        elif name == "everyone.LeaderElected":
            # An answer to an earlier process is none to this one.
            self._known.pop(event.by, None)
        elif name == "everyone.TaskExecutorLost":
            self._lost(event["resource_id"], event.offset)
        elif name == "resource_manager.DisconnectTaskManager":
            self._remove_task_executor(event["resource_id"], event.offset)
        elif name == "task_executor.SlotsAccepted":
            yield from self._on_accepted(event)
        elif name in _GIVES_BACK and not self.is_late(event):
            self._given_back(event["allocation_id"], event.offset)
        elif name == "job_master.DisconnectTaskManager":
            if not self.is_late(event):
                yield from self._has_none(event)
                self._disconnected(event["job_id"], event["resource_id"], event.offset)
        elif name == "task_executor.DisconnectJobManager":
            self.cut[event["job_id"], event.to] = event.offset
            self._disconnected(event["job_id"], event.to, event.offset)
        elif name == "job_master.HeartbeatTimedOut":
            self.cut[event.to, event["resource_id"]] = event.offset
            self._disconnected(event.to, event["resource_id"], event.offset)
        elif name == "dispatcher.JobReachedTerminalState":
            self.ended.add(event["job_id"])
        elif name in ("job_master.ResumeJob", "job_master.StartJob"):
            self.ended.discard(event["job_id"])
        elif name == "everyone.ClusterTerminated":
            self.terminated = True

    def end(self) -> Iterator[str]:
        if self.terminated:
            return
        for slot, allocation_id in self.holder.items():
            job_id = self.job_of.get(allocation_id)
            where = f"slot {_format_slot(slot)} is held for allocation {allocation_id} of job {job_id}"
            if slot[0] not in self.alive:
                continue
            if job_id in self.ended:
                yield f"{where}, which has ended"
            elif self.taken.get(allocation_id) != slot[0]:
                yield f"{where}, which has not taken it"
        for allocation_id, resource_id in self.taken.items():
            held = any(item == allocation_id and slot[0] == resource_id for slot, item in self.holder.items())
            if not held and self.job_of.get(allocation_id) not in self.ended:
                job_id = self.job_of.get(allocation_id)
                yield f"job {job_id} has taken allocation {allocation_id} at {resource_id}, which holds no slot for it"

    def _on_request(self, allocation_id: str, job_id: str) -> Iterator[str]:
        before = self.job_of.setdefault(allocation_id, job_id)
        if before != job_id:
            yield f"allocation {allocation_id} is requested for job {job_id} and for job {before}"

    def _held(self, event: Event) -> Iterator[str]:
        slot, allocation_id = _slot(event["slot_id"]), event["allocation_id"]
        if slot[0] != event.by:
            yield f"{event.sender} speaks of slot {_format_slot(slot)}"
        before = self.holder.get(slot)
        if before is not None and before != allocation_id:
            yield (
                f"slot {_format_slot(slot)} is given to allocation {allocation_id} of job "
                f"{self.job_of.get(allocation_id)} "
                f"while allocation {before} of job {self.job_of.get(before)} holds it since offset {self._since[slot]}"
            )
        self._hold(slot, allocation_id, event.offset)

    def _freed(self, event: Event) -> Iterator[str]:
        slot, allocation_id = _slot(event["slot_id"]), event["old_allocation_id"]
        if slot[0] != event.by:
            yield f"{event.sender} speaks of slot {_format_slot(slot)}"
        if self.holder.get(slot) == allocation_id:
            self._free(slot)

    def _reported(self, event: Event) -> Iterator[str]:
        for status in event["slots"]:
            slot, allocation_id = _slot(status["slot_id"]), status["allocation_id"]
            if slot[0] != event.by:
                yield f"{event.sender} speaks of slot {_format_slot(slot)}"
            if allocation_id is None:
                self._free(slot)
                continue
            if status["job_id"] is not None:
                yield from self._on_request(allocation_id, status["job_id"])
            self._hold(slot, allocation_id, event.offset)

    def _has_none(self, event: Event) -> Iterator[str]:
        known = self._known.get(event.by)
        if known is None or not event.has_read(known):
            # Nobody can be told of single slots before the registration; the report that follows it says it all.
            return
        for slot, allocation_id in self.holder.items():
            if slot[0] == event.by and self.job_of.get(allocation_id) == event["job_id"]:
                yield (
                    f"{event.sender} says that it has no more slots, but did not say that "
                    f"{_format_slot(slot)} is free"
                )

    def _hold(self, slot: Slot, allocation_id: str, offset: int) -> None:
        if self.holder.get(slot) != allocation_id:
            self.holder[slot], self._since[slot] = allocation_id, offset

    def _free(self, slot: Slot) -> None:
        self.holder.pop(slot, None)

    def _remove_task_executor(self, resource_id: str, offset: int) -> None:
        self.alive.discard(resource_id)
        self.left[resource_id] = offset
        for slot in [pair for pair in self.holder if pair[0] == resource_id]:
            self._free(slot)

    def _lost(self, resource_id: str, offset: int) -> None:
        self._remove_task_executor(resource_id, offset)
        self.lost[resource_id] = offset
        for allocation_id in [item for item, where in self.taken.items() if where == resource_id]:
            self._given_back(allocation_id, offset)

    def _on_accepted(self, event: Event) -> Iterator[str]:
        for allocation_id in event["allocation_ids"]:
            if event["job_id"] != self.job_of.get(allocation_id, event["job_id"]):
                yield f"job {event['job_id']} takes allocation {allocation_id} of job {self.job_of[allocation_id]}"
            if not event.has_read(self.over(event["job_id"], event.to, allocation_id)):
                # The slot was lost before this was in the log; the JobMaster reads so.
                continue
            before = self.taken.get(allocation_id)
            if before is not None and before != event.to:
                yield f"job {event['job_id']} takes allocation {allocation_id} at {event.to} and has it at {before}"
            self.taken[allocation_id] = event.to

    def _given_back(self, allocation_id: str, offset: int) -> None:
        self.taken.pop(allocation_id, None)
        self.gone[allocation_id] = offset

    def _disconnected(self, job_id: str, resource_id: str, offset: int) -> None:
        for allocation_id in [item for item, where in self.taken.items() if where == resource_id]:
            if self.job_of.get(allocation_id) == job_id:
                self._given_back(allocation_id, offset)


def _slot(slot_id: dict[str, object]) -> Slot:
    number = slot_id["slot_number"]
    assert isinstance(number, int)
    return str(slot_id["resource_id"]), number


def _format_slot(slot: Slot) -> str:
    return f"{slot[0]}/{slot[1]}"
