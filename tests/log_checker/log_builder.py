"""Builds logs by hand for the tests of the checker, event by event. A log is correct until a test damages it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .events import Event

SECOND = 1_000_000
GROUP = "default"


def vertex(name: str, group: str = GROUP, co_location: str | None = None) -> dict[str, Any]:
    """Returns a vertex of a JobGraph with the fields that the checker reads."""
    return {"vertex_id": name, "slot_sharing_group": group, "co_location_group": co_location}


class LogBuilder:
    """A log that grows. Every sender has read all of it, unless `at` says how far it has read."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0
        self.epochs: dict[str, int] = {}

    def lead(self, role: str) -> int:
        """Appends the claim of a new leader."""
        self.epochs[role] = self._epoch(role) + 1
        return self.append(role, "*", "everyone.LeaderElected", role=role, epoch=self.epochs[role])

    def append(
        self,
        sender: str,
        recipient: str,
        name: str,
        *,
        cause: int | None = None,
        at: int | None = None,
        speaks_as: int | None = None,
        **body: Any,
    ) -> int:
        """Appends an event and returns its offset."""
        offset = len(self.events)
        client = sender.startswith("client")
        epoch = speaks_as if speaks_as is not None else self._epoch(sender)
        decided_at = None if client else (offset - 1 if at is None else at)
        self.events.append(
            Event(
                offset, name, sender, recipient, epoch, f"event {offset}", self.now, cause, decided_at, body
            )
        )
        return offset

    def _epoch(self, role: str) -> int:
        """Returns the epoch of a sender: JobMasters have the Dispatcher's until a leader claims them."""
        return self.epochs.get(role, self.epochs.get("dispatcher", 0) if role.startswith("job_master") else 0)

    def cluster(self, *task_executors: str, slots: int = 2) -> LogBuilder:
        """Starts a master and TaskExecutors, all of them registered."""
        for role in ("dispatcher", "resource_manager"):
            self.lead(role)
        for resource_id in task_executors:
            self.register(resource_id, slots)
        return self

    def register(self, resource_id: str, slots: int = 2) -> None:
        """Starts a TaskExecutor, which registers and reports its slots."""
        te = f"task_executor/{resource_id}"
        self.lead(te)
        request = self.append(
            te, "resource_manager", "resource_manager.RegisterTaskExecutor", resource_id=resource_id
        )
        self.append("resource_manager", te, "task_executor.TaskExecutorRegistrationSuccess", cause=request)
        free = [
            {"slot_id": slot_id(resource_id, number), "allocation_id": None, "job_id": None}
            for number in range(slots)
        ]
        self.append(
            te, "resource_manager", "resource_manager.SendSlotReport", resource_id=resource_id, slots=free
        )

    def start(self, job_id: str = "j", *vertices: dict[str, Any]) -> None:
        """Submits a job, which is accepted, started and registered."""
        jm = f"job_master/{job_id}"
        request = self.append("client/me", "dispatcher", "dispatcher.SubmitJob", job_id=job_id)
        self.append("dispatcher", "client/me", "client.JobAccepted", cause=request, job_id=job_id)
        graph = {"name": "Job", "vertices": list(vertices) or [vertex("v"), vertex("w")]}
        self.append("dispatcher", jm, "job_master.StartJob", cause=request, job_id=job_id, job_graph=graph)
        self.status("CREATED", job_id)
        registers = self.append(jm, "resource_manager", "resource_manager.RegisterJobManager", job_id=job_id)
        self.append(
            "resource_manager", jm, "job_master.JobManagerRegistrationSuccess", cause=registers, job_id=job_id
        )

    def status(self, status: str, job_id: str = "j") -> int:
        """Appends JobStatusChanged."""
        return self.append(
            f"job_master/{job_id}", "client", "client.JobStatusChanged", job_id=job_id, status=status
        )

    def request(self, allocation_id: str, resource_id: str, number: int = 0, job_id: str = "j") -> int:
        """Requests a slot, which the TaskExecutor allocates."""
        jm, te, rm = f"job_master/{job_id}", f"task_executor/{resource_id}", "resource_manager"
        request_offset = self.append(
            jm, rm, "resource_manager.RequestSlot", job_id=job_id, allocation_id=allocation_id
        )
        slot = slot_id(resource_id, number)
        request_offset = self.append(
            rm,
            te,
            "task_executor.RequestSlot",
            cause=request_offset,
            job_id=job_id,
            allocation_id=allocation_id,
            slot_id=slot,
        )
        return self.append(
            te,
            rm,
            "resource_manager.SlotRequestAccepted",
            cause=request_offset,
            allocation_id=allocation_id,
            slot_id=slot,
        )

    def offer(self, allocation_id: str, resource_id: str, number: int = 0, job_id: str = "j") -> None:
        """Offers a slot, which the JobMaster accepts."""
        jm, te = f"job_master/{job_id}", f"task_executor/{resource_id}"
        offer = {"allocation_id": allocation_id, "slot_number": number}
        offered = self.append(
            te, jm, "job_master.OfferSlots", job_id=job_id, resource_id=resource_id, slots=[offer]
        )
        self.append(
            jm,
            te,
            "task_executor.SlotsAccepted",
            cause=offered,
            job_id=job_id,
            allocation_ids=[allocation_id],
        )

    def slot(self, allocation_id: str, resource_id: str, number: int = 0, job_id: str = "j") -> None:
        """Requests a slot, which is allocated, offered and accepted."""
        self.request(allocation_id, resource_id, number, job_id)
        self.offer(allocation_id, resource_id, number, job_id)

    def submit(
        self,
        name: str,
        allocation_id: str,
        resource_id: str,
        *,
        vertex_id: str = "v",
        index: int = 0,
        number: int = 0,
        job_id: str = "j",
        at: int | None = None,
    ) -> int:
        """Appends SubmitTask."""
        return self.append(
            f"job_master/{job_id}",
            f"task_executor/{resource_id}",
            "task_executor.SubmitTask",
            at=at,
            job_id=job_id,
            vertex_id=vertex_id,
            deployment_id=f"deployment {name}",
            subtasks=[
                {
                    "subtask_index": index,
                    "attempt_number": number,
                    "execution_attempt_id": name,
                    "allocation_id": allocation_id,
                }
            ],
        )

    def report(
        self,
        name: str,
        state: str,
        resource_id: str,
        job_id: str = "j",
        at: int | None = None,
        counts: dict[str, float] | None = None,
    ) -> int:
        """Appends UpdateTaskExecutionState."""
        return self.append(
            f"task_executor/{resource_id}",
            f"job_master/{job_id}",
            "job_master.UpdateTaskExecutionState",
            at=at,
            job_id=job_id,
            execution_attempt_id=name,
            execution_state=state,
            accumulators=counts or {},
        )

    def task(self, name: str, allocation_id: str, resource_id: str, **which: Any) -> None:
        """Submits a task, which is acknowledged and runs."""
        job_id = which.get("job_id", "j")
        request = self.submit(name, allocation_id, resource_id, **which)
        self.append(
            f"task_executor/{resource_id}",
            f"job_master/{job_id}",
            "job_master.TaskAcknowledged",
            cause=request,
            execution_attempt_id=name,
        )
        self.report(name, "RUNNING", resource_id, job_id)

    def lose(self, resource_id: str) -> int:
        """Appends TaskExecutorLost."""
        return self.append(
            "resource_manager", "*", "everyone.TaskExecutorLost", resource_id=resource_id, reason="it died"
        )

    def fail_slot(self, allocation_id: str, resource_id: str, job_id: str = "j") -> int:
        """Appends FailSlot."""
        return self.append(
            f"task_executor/{resource_id}",
            f"job_master/{job_id}",
            "job_master.FailSlot",
            allocation_id=allocation_id,
            reason="broken",
        )

    def free(self, allocation_id: str, resource_id: str, job_id: str = "j") -> int:
        """Appends FreeSlot."""
        return self.append(
            f"job_master/{job_id}",
            f"task_executor/{resource_id}",
            "task_executor.FreeSlot",
            allocation_id=allocation_id,
            reason=f"Stopping JobMaster for job Job({job_id}).",
        )

    def freed(self, allocation_id: str, resource_id: str, number: int = 0) -> int:
        """Appends NotifySlotAvailable."""
        return self.append(
            f"task_executor/{resource_id}",
            "resource_manager",
            "resource_manager.NotifySlotAvailable",
            slot_id=slot_id(resource_id, number),
            old_allocation_id=allocation_id,
        )

    def part(self, resource_id: str, job_id: str = "j", freed: Iterable[str] = ()) -> None:
        """Disconnects JobMaster and TaskExecutor; slots 0, 1, ... are free again."""
        jm, te = f"job_master/{job_id}", f"task_executor/{resource_id}"
        words = f"Stopping JobMaster for job Job({job_id})."
        self.append(jm, te, "task_executor.DisconnectJobManager", job_id=job_id, reason=words)
        for number, allocation_id in enumerate(freed):
            self.freed(allocation_id, resource_id, number)
        words = f"TaskExecutor {te} has no more allocated slots for job {job_id}."
        self.append(
            te, jm, "job_master.DisconnectTaskManager", job_id=job_id, resource_id=resource_id, reason=words
        )

    def end(
        self, status: str = "FINISHED", job_id: str = "j", counts: dict[str, float] | None = None
    ) -> None:
        """Ends the job, and sends all notifications of that."""
        jm = f"job_master/{job_id}"
        self.status(status, job_id)
        end = {"job_id": job_id, "status": status, "accumulators": counts or {}}
        reached = self.append(jm, "dispatcher", "dispatcher.JobReachedTerminalState", **end)
        self.append(
            jm, "resource_manager", "resource_manager.DisconnectJobManager", job_id=job_id, status=status
        )
        self.append("dispatcher", "client/me", "client.JobFinished", cause=reached, **end)


def slot_id(resource_id: str, number: int) -> dict[str, Any]:
    """Returns a SlotID."""
    return {"resource_id": resource_id, "slot_number": number}


def running() -> LogBuilder:
    """Returns a log in which job j runs attempt a0 in slot te-1/0, allocation A; te-2 is idle."""
    builder = LogBuilder().cluster("te-1", "te-2")
    builder.start()
    builder.slot("A", "te-1")
    builder.task("a0", "A", "te-1")
    builder.status("RUNNING")
    return builder


def finished() -> LogBuilder:
    """Returns the log of `running` with the job finished and its slots freed."""
    builder = running()
    builder.report("a0", "FINISHED", "te-1")
    builder.free("A", "te-1")
    builder.part("te-1", freed=["A"])
    builder.end()
    return builder
