"""A ResourceManager alone: the test sends the events of all others; its own events are folded when they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from tailrace.schemas import everyone, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.types import Header, ResourceProfile, SlotID, SlotStatus
from tailrace.services.core.role import Instruction, OutgoingEvent
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.resource_manager.task_manager_slot import SlotState

from ..simulated_cluster.cluster import HARDWARE, PROFILE, SECOND
from ..simulated_cluster.index_invariants import check_resource_manager

B = TypeVar("B", bound=Body)
MANAGER = "resource_manager"
ACTIVE = {"resourcemanager.mode": "active", "taskmanager.numberOfTaskSlots": "2"}


class Manager:
    """Checks after every event that the indexes are consistent, and that a sent event is not required any more."""

    def __init__(self, configuration: dict[str, str] | None = None, *, started: bool = True) -> None:
        self.role = ResourceManager()
        self.state: ResourceManagerState = self.role.initial(MANAGER)
        self.log: list[Record] = []
        self.now = 1_000 * SECOND
        self.receive(
            MANAGER, everyone.LeaderElected(role=MANAGER, epoch=1, address="sim", session="1"), EVERYONE
        )
        self.receive("dispatcher", everyone.ConfigurationChanged(configuration=configuration or {}), EVERYONE)
        if started:
            self.now += 30 * SECOND

    def receive(
        self, sender: str, body: Body, recipient: str = MANAGER, *, cause: int | None = None, seen: int = -1
    ) -> int:
        """Folds one event, decided when the log was folded up to `seen` (-1: to its end); returns its offset."""
        header = Header(
            event_id=str(len(self.log)),
            time=self.now,
            sender=sender,
            sender_epoch=1,
            recipient=recipient,
            cause=cause,
            decided_at=len(self.log) - 1 if seen < 0 else seen,
        )
        record = Record(len(self.log), header, body)
        self.log.append(record)
        self.state = self.role.evolve(self.state, record)
        check_resource_manager(self.state)
        return record.offset

    def owed(self) -> list[OutgoingEvent]:
        """Returns the events that are required now."""
        return self.role.decide(self.state, self.now)

    def settle(self) -> list[Body]:
        """Sends required events until there are none; returns all of them."""
        events: list[Body] = []
        for _ in range(100):
            owed = self.owed()
            if not owed:
                deadline = self.role.deadline(self.state)
                assert deadline is None or deadline > self.now
                return events
            for event in owed:
                self.receive(MANAGER, event.body, event.recipient, cause=event.cause)
                events.append(event.body)
        raise AssertionError(f"it talks without end: {events[-5:]}")

    def wait(self, seconds: float) -> list[Body]:
        """Advances the time from deadline to deadline; returns the events that were sent."""
        end, events = self.now + int(seconds * SECOND), self.settle()
        while (deadline := self.role.deadline(self.state)) is not None and deadline <= end:
            self.now = deadline
            assert self.owed(), "a deadline has passed and nothing is owed"
            events += self.settle()
        self.now = end
        return events + self.settle()

    def instructions(self) -> Sequence[Instruction]:
        return self.role.instructions(self.state)

    def register(
        self, resource_id: str, slots: int = 1, profile: ResourceProfile = PROFILE, *, report: bool = True
    ) -> str:
        """Registers a TaskExecutor with free slots; returns its InstanceID."""
        body = resource_manager.RegisterTaskExecutor(
            address=f"host:{resource_id}",
            resource_id=resource_id,
            data_port=0,
            hardware=HARDWARE,
            number_of_slots=slots,
            default_slot_profile=profile,
        )
        self.receive(f"task_executor/{resource_id}", body)
        instance_id = self.state.workers[resource_id].instance_id
        if report:
            self.report(resource_id, [status(resource_id, number, None, profile) for number in range(slots)])
        return instance_id

    def report(self, resource_id: str, statuses: Iterable[SlotStatus], *, seen: int = -1) -> None:
        instance_id = self.state.workers[resource_id].instance_id
        body = resource_manager.SendSlotReport(
            resource_id=resource_id, instance_id=instance_id, slots=tuple(statuses)
        )
        self.receive(f"task_executor/{resource_id}", body, seen=seen)

    def job(self, job_id: str = "j") -> None:
        """Registers a JobMaster."""
        self.receive(f"job_master/{job_id}", resource_manager.RegisterJobManager(job_id=job_id))
        self.settle()

    def request(self, allocation_id: str, job_id: str = "j", profile: ResourceProfile | None = None) -> int:
        body = resource_manager.RequestSlot(
            job_id=job_id, allocation_id=allocation_id, resource_profile=profile
        )
        return self.receive(f"job_master/{job_id}", body)

    def accept(self, allocation_id: str) -> None:
        """The requested TaskExecutor allocates the slot."""
        resource_id, number = self.slot_of(allocation_id)
        body = resource_manager.SlotRequestAccepted(
            allocation_id=allocation_id, slot_id=SlotID(resource_id=resource_id, slot_number=number)
        )
        self.receive(f"task_executor/{resource_id}", body)

    def hold(self, *allocation_ids: str, job_id: str = "j") -> None:
        """Requests slots, which are allocated."""
        for allocation_id in allocation_ids:
            self.request(allocation_id, job_id)
        self.settle()
        for allocation_id in allocation_ids:
            self.accept(allocation_id)
        self.settle()

    def free(self, allocation_id: str) -> None:
        """The TaskExecutor frees the slot."""
        resource_id, number = self.slot_of(allocation_id)
        body = resource_manager.NotifySlotAvailable(
            instance_id=self.state.workers[resource_id].instance_id,
            slot_id=SlotID(resource_id=resource_id, slot_number=number),
            old_allocation_id=allocation_id,
        )
        self.receive(f"task_executor/{resource_id}", body)

    def lost(self, resource_id: str, instance_id: str | None, *, exited: bool = False) -> None:
        """The shell reports that a worker is lost."""
        body = resource_manager.WorkerLost(
            resource_id=resource_id, instance_id=instance_id, exited=exited, reason="it is silent"
        )
        self.receive(MANAGER, body)

    def leave(self, resource_id: str, reason: str = "asked to") -> None:
        body = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason=reason)
        self.receive(f"task_executor/{resource_id}", body)

    def slot_of(self, allocation_id: str) -> tuple[str, int]:
        slot = self.state.slot_manager.requests.known[allocation_id].slot
        assert slot is not None
        return slot

    def slots(self) -> dict[tuple[str, int], tuple[SlotState, str | None]]:
        """Returns every slot with its state and allocation."""
        slots = self.state.slot_manager.slots.total()
        return {key: (slot.state, slot.allocation_id) for key, slot in slots}


def status(
    resource_id: str,
    number: int,
    allocation_id: str | None = None,
    profile: ResourceProfile = PROFILE,
    job: str = "j",
) -> SlotStatus:
    """Returns the SlotStatus that a TaskExecutor reports."""
    slot_id = SlotID(resource_id=resource_id, slot_number=number)
    job_id = None if allocation_id is None else job
    return SlotStatus(slot_id=slot_id, resource_profile=profile, allocation_id=allocation_id, job_id=job_id)


def events_of(kind: type[B], bodies: Iterable[Body]) -> list[B]:
    """Returns the events of one kind."""
    return [event for event in bodies if isinstance(event, kind)]


def requested_slots(bodies: Iterable[Body]) -> list[tuple[str, str]]:
    """Returns (AllocationID, ResourceID) of every RequestSlot to a TaskExecutor."""
    requests = events_of(task_executor.RequestSlot, bodies)
    return [(request.allocation_id, request.slot_id.resource_id) for request in requests]
