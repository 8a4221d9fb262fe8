"""One JobMaster alone: the test sends the events of all others. Events that the JobMaster requires are folded when
they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from tailrace.schemas import client, everyone, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import (
    ExecutionState,
    Header,
    JobGraph,
    ParallelismBounds,
    ResourceProfile,
    SlotOffer,
)
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.state import Execution, StartedJob

from ...submitted_tasks import SubmittedTask, submitted_tasks
from ..simulated_cluster.cluster import PROFILE, SECOND
from .invariants import check_job_master

B = TypeVar("B", bound=Body)
JOB = "job_master/j"


class Job:
    """Job j, from StartJob on. Every state is checked against the invariants. Each task has a process of its own,
    unless the configuration has `execution.isolation: slot`."""

    def __init__(
        self,
        graph: JobGraph,
        configuration: Mapping[str, str] | None = None,
        savepoint_path: str | None = None,
        bounds: Mapping[str, ParallelismBounds] | None = None,
    ) -> None:
        self.role = JobMaster()
        self.state: Any = self.role.initial(JOB)
        """A JobMasterState: mostly of a StartedJob."""
        self.now = 1_000 * SECOND
        self.log: list[Record] = []
        self.slots_given = 0
        start = job_master.StartJob(
            job_id="j",
            job_graph=graph,
            configuration={"execution.isolation": "vertex", **(configuration or {})},
            savepoint_path=savepoint_path,
            bounds=dict(bounds or {}),
        )
        self.receive("dispatcher", start)

    def receive(
        self,
        sender: str,
        body: Body,
        *,
        recipient: str = JOB,
        cause: int | None = None,
        decided_at: int | None = None,
    ) -> int:
        """Folds an event; without `decided_at` its sender has read everything before it.

        Without a `cause`, a report of the shell about channels is about those that are demanded now.
        """
        if cause is None and isinstance(body, job_master.ChannelsCreated | job_master.ChannelsFailed):
            cause = getattr(self.state, "start_offset", None)
        header = Header(
            event_id=str(len(self.log)),
            time=self.now,
            sender=sender,
            sender_epoch=1,
            recipient=recipient,
            cause=cause,
            decided_at=len(self.log) - 1 if decided_at is None else decided_at,
        )
        return self.fold(Record(len(self.log), header, body))

    def fold(self, record: Record) -> int:
        """Folds an event. Raises IllegalEvent."""
        self.log.append(record)
        self.state = self.role.evolve(self.state, record)
        check_job_master(self.state)
        return record.offset

    def owed(self) -> list[OutgoingEvent]:
        """Returns the events that the JobMaster requires now."""
        return self.role.decide(self.state, self.now)

    def send(self, owed: list[OutgoingEvent] | None = None) -> list[OutgoingEvent]:
        """Sends the required events, or the given ones, and those that follow, until there are none; returns all of
        them."""
        events: list[OutgoingEvent] = []
        now = self.owed() if owed is None else owed
        while now or owed is not None:
            for event in now:
                self.receive(JOB, event.body, recipient=event.recipient, cause=event.cause)
            events += now
            now, owed = self.owed(), None
            assert len(events) < 10_000, "it talks without end"
        return events

    def judge(self) -> None:
        """Sends the verdict on the failures, and nothing else."""
        (verdict,) = [
            event
            for event in self.owed()
            if isinstance(event.body, job_master.RestartScheduled | job_master.RestartSuppressed)
        ]
        self.receive(JOB, verdict.body, recipient=verdict.recipient, cause=verdict.cause)

    def change_status(self) -> None:
        """Sends the due change of the status, and nothing else."""
        change = self.owed()[0]
        assert isinstance(change.body, client.JobStatusChanged)
        self.receive(JOB, change.body, recipient=change.recipient, cause=change.cause)

    def tick(self, seconds: float) -> list[OutgoingEvent]:
        """Advances the time."""
        self.now += round(seconds * SECOND)
        return self.send()

    def assemble(self, resource_ids: tuple[str, ...] = ("te-1",)) -> list[OutgoingEvent]:
        """Registers the job, creates channels, and gives slots for all requests, spread over TaskExecutors; returns
        the last events."""
        self.receive(JOB, job_master.ChannelsCreated(job_id="j"))
        self.send()
        self.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
        self.send()
        return self.give(*resource_ids)

    def give(self, *resource_ids: str, profile: ResourceProfile = PROFILE) -> list[OutgoingEvent]:
        """Gives slots for all open requests, one offer per TaskExecutor; returns the events in response."""
        waiting = sorted(self.state.slots.requests.values(), key=lambda item: item.slot)
        for place, resource_id in enumerate(resource_ids):
            if resource_id not in self.state.connections:
                hello = job_master.RegisterTaskManager(job_id="j", resource_id=resource_id)
                self.receive(f"task_executor/{resource_id}", hello)
            self.offer(
                resource_id,
                *(request.allocation_id for request in waiting[place :: len(resource_ids)]),
                profile=profile,
            )
        return self.send()

    def offer(self, resource_id: str, *allocation_ids: str, profile: ResourceProfile = PROFILE) -> int:
        """Sends OfferSlots."""
        offers = []
        for allocation_id in allocation_ids:
            offers.append(
                SlotOffer(allocation_id=allocation_id, slot_number=self.slots_given, resource_profile=profile)
            )
            self.slots_given += 1
        body = job_master.OfferSlots(job_id="j", resource_id=resource_id, slots=tuple(offers))
        return self.receive(f"task_executor/{resource_id}", body)

    def report(
        self,
        execution: Execution,
        state: ExecutionState,
        failure: str | None = None,
        accumulators: Mapping[str, float] | None = None,
        *,
        progress_lost: bool = False,
    ) -> int:
        """Sends UpdateTaskExecutionState."""
        body = job_master.UpdateTaskExecutionState(
            job_id="j",
            execution_attempt_id=execution.execution_attempt_id,
            execution_state=state,
            failure=failure,
            accumulators=accumulators or {},
            progress_lost=progress_lost,
        )
        return self.receive(f"task_executor/{execution.resource_id}", body)

    def runs(self) -> None:
        """Reports every submitted task as RUNNING."""
        for execution in self.executions():
            if execution.state is ExecutionState.DEPLOYING:
                self.report(execution, ExecutionState.RUNNING)

    def executions(self) -> list[Execution]:
        """Returns the current Executions, by vertex and subtask; none of a terminated job."""
        if not isinstance(self.state, StartedJob):
            return []
        current = self.state.current_attempts
        return [self.state.executions[current[vertex]] for vertex in sorted(current)]

    def execution(self, vertex_id: str, index: int = 0) -> Execution:
        """Returns the current Execution of a subtask."""
        found: Execution = self.state.executions[self.state.current_attempts[(vertex_id, index)]]
        return found

    def lose(self, resource_id: str, reason: str = "it has exited") -> int:
        """Sends TaskExecutorLost."""
        body = everyone.TaskExecutorLost(resource_id=resource_id, reason=reason)
        return self.receive("resource_manager", body, recipient="*")


def submissions(events: list[OutgoingEvent]) -> list[SubmittedTask]:
    """Returns the tasks of SubmitTask events."""
    return submitted_tasks(event.body for event in events)


def bodies(events: list[OutgoingEvent], kind: type[B]) -> list[B]:
    """Returns the bodies of one kind."""
    return [event.body for event in events if isinstance(event.body, kind)]


def running(
    graph: JobGraph, configuration: Mapping[str, str] | None = None, resource_ids: tuple[str, ...] = ("te-1",)
) -> Job:
    """Returns a job whose tasks all run."""
    job = Job(graph, configuration)
    job.assemble(resource_ids)
    job.runs()
    job.send()
    return job
