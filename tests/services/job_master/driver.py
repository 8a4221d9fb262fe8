"""One JobMaster by itself: the test is everybody else. What the JobMaster owes is folded as soon as it is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tailrace.schemas import everyone, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, Header, JobGraph, ResourceProfile, SlotOffer
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.state import Execution, JobMasterState

from ..simulated_cluster.cluster import PROFILE, SECOND
from .invariants import check_job_master

B = TypeVar("B", bound=Body)
JOB = "job_master/j"


class Job:
    """Job j, from StartJob on; every state that it passes through is checked."""

    def __init__(
        self,
        graph: JobGraph,
        configuration: Mapping[str, str] | None = None,
        savepoint_path: str | None = None,
    ) -> None:
        self.role = JobMaster()
        self.state: JobMasterState = self.role.initial(JOB)
        self.now = 1_000 * SECOND
        self.log: list[Record] = []
        self.slots_given = 0
        start = job_master.StartJob(
            job_id="j",
            job_graph=graph,
            configuration=configuration or {},
            savepoint_path=savepoint_path,
        )
        self.tell("dispatcher", start)

    def tell(self, sender: str, body: Body, *, recipient: str = JOB, cause: int | None = None) -> int:
        """An event, folded; its sender has read all that came before.

        Without a `cause`, the shell says of channels what became of those that are demanded now.
        """
        if cause is None and isinstance(body, job_master.ChannelsCreated | job_master.ChannelsFailed):
            cause = self.state.started
        header = Header(
            event_id=str(len(self.log)),
            time=self.now,
            sender=sender,
            sender_epoch=1,
            recipient=recipient,
            cause=cause,
            decided_at=len(self.log) - 1,
        )
        return self.fold(Record(len(self.log), header, body))

    def fold(self, record: Record) -> int:
        """Raises IllegalEvent."""
        self.log.append(record)
        self.state = self.role.evolve(self.state, record)
        check_job_master(self.state)
        return record.offset

    def owed(self) -> list[OutgoingEvent]:
        """What the JobMaster would say now."""
        return self.role.decide(self.state, self.now)

    def say(self, owed: list[OutgoingEvent] | None = None) -> list[OutgoingEvent]:
        """Says what it owes, or owed before, and what follows, until it owes nothing; returns all that was said."""
        said: list[OutgoingEvent] = []
        now = self.owed() if owed is None else owed
        while now or owed is not None:
            for each in now:
                self.tell(JOB, each.body, recipient=each.recipient, cause=each.cause)
            said += now
            now, owed = self.owed(), None
            assert len(said) < 10_000, "it talks without end"
        return said

    def tick(self, seconds: float) -> list[OutgoingEvent]:
        """Time passes."""
        self.now += round(seconds * SECOND)
        return self.say()

    def assemble(self, resource_ids: tuple[str, ...] = ("te-1",)) -> list[OutgoingEvent]:
        """Registration, channels, and slots for all requests, spread over TaskExecutors; returns the last words."""
        self.tell(JOB, job_master.ChannelsCreated(job_id="j"))
        self.say()
        self.tell("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
        self.say()
        return self.give(*resource_ids)

    def give(self, *resource_ids: str, profile: ResourceProfile = PROFILE) -> list[OutgoingEvent]:
        """Slots for all requests that are out, an offer from each TaskExecutor; returns what is said to that."""
        waiting = sorted(self.state.slots.requests.values(), key=lambda each: each.slot)
        for place, resource_id in enumerate(resource_ids):
            if resource_id not in self.state.connections:
                hello = job_master.RegisterTaskManager(job_id="j", resource_id=resource_id)
                self.tell(f"task_executor/{resource_id}", hello)
            self.offer(
                resource_id,
                *(each.allocation_id for each in waiting[place :: len(resource_ids)]),
                profile=profile,
            )
        return self.say()

    def offer(self, resource_id: str, *allocation_ids: str, profile: ResourceProfile = PROFILE) -> int:
        """OfferSlots."""
        offers = []
        for allocation_id in allocation_ids:
            offers.append(
                SlotOffer(allocation_id=allocation_id, slot_number=self.slots_given, resource_profile=profile)
            )
            self.slots_given += 1
        body = job_master.OfferSlots(job_id="j", resource_id=resource_id, slots=tuple(offers))
        return self.tell(f"task_executor/{resource_id}", body)

    def report(
        self,
        execution: Execution,
        state: ExecutionState,
        failure: str | None = None,
        accumulators: Mapping[str, float] | None = None,
        *,
        progress_lost: bool = False,
    ) -> int:
        """UpdateTaskExecutionState."""
        body = job_master.UpdateTaskExecutionState(
            job_id="j",
            execution_attempt_id=execution.execution_attempt_id,
            execution_state=state,
            failure=failure,
            accumulators=accumulators or {},
            progress_lost=progress_lost,
        )
        return self.tell(f"task_executor/{execution.resource_id}", body)

    def runs(self) -> None:
        """Every task that was submitted runs."""
        for execution in self.executions():
            if execution.state is ExecutionState.DEPLOYING:
                self.report(execution, ExecutionState.RUNNING)

    def executions(self) -> list[Execution]:
        """The current ones, by vertex and subtask."""
        return [self.state.executions[self.state.current[each]] for each in sorted(self.state.current)]

    def execution(self, vertex_id: str, index: int = 0) -> Execution:
        """The current one of a subtask."""
        return self.state.executions[self.state.current[(vertex_id, index)]]

    def lose(self, resource_id: str, reason: str = "it has exited") -> int:
        """TaskExecutorLost."""
        body = everyone.TaskExecutorLost(resource_id=resource_id, reason=reason)
        return self.tell("resource_manager", body, recipient="*")


def bodies(said: list[OutgoingEvent], kind: type[B]) -> list[B]:
    """Those of one kind."""
    return [each.body for each in said if isinstance(each.body, kind)]


def running(
    graph: JobGraph, configuration: Mapping[str, str] | None = None, resource_ids: tuple[str, ...] = ("te-1",)
) -> Job:
    """A job all of whose tasks run."""
    job = Job(graph, configuration)
    job.assemble(resource_ids)
    job.runs()
    job.say()
    return job
