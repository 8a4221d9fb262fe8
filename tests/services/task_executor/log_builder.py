"""One TaskExecutor and what it hears: every event that it owes is folded as it is said, as a host would do."""

from __future__ import annotations

from msgspec.structs import replace

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import (
    AllocatedSlotInfo,
    AllocatedSlotReport,
    ExecutionState,
    JobGraph,
    SlotID,
)
from tailrace.services.core.role import JOB_MASTER, RESOURCE_MANAGER, Instruction, OutgoingEvent, address
from tailrace.services.task_executor import TaskExecutor
from tailrace.services.task_executor.instructions import RunTasks, StopTask
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from ..simulated_cluster.cluster import HARDWARE, PROFILE, SECOND, header

OWN = "task_executor/te"
JM = address(JOB_MASTER, "j")
GRAPH = JobGraph(name="job", vertices=(), edges=(), configuration={})


class Talk:
    """The role's state after all that was said; `now` is the time of all of it."""

    def __init__(self, slots: int = 2, **options: str) -> None:
        self.role = TaskExecutor()
        self.state: TaskExecutorState = self.role.initial(OWN)
        self.offset = -1
        self.now = 1_000 * SECOND
        self.registration = resource_manager.RegisterTaskExecutor(
            address="here",
            resource_id="te",
            data_port=0,
            hardware=HARDWARE,
            number_of_slots=slots,
            default_slot_profile=PROFILE,
            configuration=options,
        )
        self.start()

    # What is folded.

    def hear(
        self, body: Body, sender: str = RESOURCE_MANAGER, recipient: str = OWN, cause: int | None = None
    ) -> int:
        """Folds an event; returns its offset."""
        self.offset += 1
        said = replace(header(sender, recipient, time=self.now), cause=cause)
        self.state = self.role.evolve(self.state, Record(self.offset, said, body))
        return self.offset

    def start(self) -> None:
        """A process starts and registers."""
        self.hear(
            everyone.LeaderElected(role=OWN, epoch=self.offset + 2, address="here", session="s"), OWN, "*"
        )
        self.hear(self.registration, OWN, RESOURCE_MANAGER)
        self.admit()

    def admit(self) -> None:
        """The ResourceManager answers the registration; what is owed then is said."""
        self.hear(task_executor.TaskExecutorRegistrationSuccess(instance_id=f"instance {self.offset}"))
        self.settle()

    def settle(self) -> list[OutgoingEvent]:
        """All that is owed is said, until nothing is; returns it."""
        said: list[OutgoingEvent] = []
        while owed := self.role.decide(self.state, self.now):
            for each in owed:
                self.hear(each.body, OWN, each.recipient, each.cause)
            said += owed
            assert len(said) < 1_000, "it talks without end"
        return said

    def allocate(self, *allocations: str, job_id: str = "j") -> None:
        """Free slots are asked for, by number; nothing is said yet."""
        free = (n for n, slot in sorted(self.state.slots.slots.items()) if slot.state is TaskSlotState.FREE)
        for allocation_id, number in zip(allocations, list(free), strict=False):
            self.hear(
                task_executor.RequestSlot(
                    slot_id=SlotID(resource_id="te", slot_number=number),
                    job_id=job_id,
                    allocation_id=allocation_id,
                    resource_profile=None,
                    reason="free",
                )
            )

    def answer(self, job_id: str = "j") -> None:
        """The JobMaster answers the greeting."""
        body = task_executor.JobManagerRegistrationSuccess(job_id=job_id, job_graph=GRAPH)
        self.hear(body, address(JOB_MASTER, job_id))

    def take(self, *allocations: str, job_id: str = "j") -> None:
        """The JobMaster takes slots."""
        body = task_executor.SlotsAccepted(job_id=job_id, allocation_ids=allocations)
        self.hear(body, address(JOB_MASTER, job_id))

    def hold(self, *allocations: str, job_id: str = "j") -> None:
        """Slots are allocated, offered and taken."""
        self.allocate(*allocations, job_id=job_id)
        self.settle()
        self.answer(job_id)
        self.settle()
        self.take(*allocations, job_id=job_id)

    def submit(
        self,
        attempt: str,
        allocation_id: str = "a",
        *,
        subtask: int = 0,
        number: int = 0,
        deployment: str = "d",
        size: int = 1,
    ) -> int:
        """SubmitTask of job j."""
        body = task_executor.SubmitTask(
            job_id="j",
            vertex_id="v",
            subtask_index=subtask,
            attempt_number=number,
            execution_attempt_id=attempt,
            allocation_id=allocation_id,
            deployment_id=deployment,
            deployment_size=size,
        )
        return self.hear(body, JM)

    def report(self, attempt: str, *states: ExecutionState) -> None:
        """What the runtime says of a task."""
        for state in states:
            body = job_master.UpdateTaskExecutionState(
                job_id="j", execution_attempt_id=attempt, execution_state=state
            )
            self.hear(body, OWN, JM)

    def free(self, allocation_id: str, sender: str = JM) -> None:
        self.hear(task_executor.FreeSlot(allocation_id=allocation_id, reason="not needed"), sender)

    def lose(self) -> None:
        """Everybody is told that this TaskExecutor is lost."""
        self.hear(everyone.TaskExecutorLost(resource_id="te", reason="silence"), recipient="*")

    def silence(self, peer: str) -> None:
        self.hear(task_executor.HeartbeatTimedOut(peer=peer, reason="silence"), OWN)

    # What there is.

    def slot(self, number: int = 0) -> TaskSlotState:
        return self.state.slots.slots[number].state

    def demands(self) -> tuple[dict[str, list[str]], list[str]]:
        """(deployment -> the attempts that are to run, the attempts that are to stop)"""
        runs: dict[str, list[str]] = {}
        stops: list[str] = []
        for each in self.role.instructions(self.state):
            match each:
                case RunTasks(deployment_id=deployment_id, tasks=tasks):
                    runs[deployment_id] = [task.execution_attempt_id for task in tasks]
                case StopTask(execution_attempt_id=attempt):
                    stops.append(attempt)
                case Instruction():
                    raise AssertionError(each)
        return runs, stops


def names(owed: list[OutgoingEvent]) -> list[str]:
    """RegisterTaskManager, OfferSlots, ..."""
    return [each.body.AVRO_NAME.rpartition(".")[2] for each in owed]


def heartbeat(position: int, *allocations: str) -> task_executor.HeartbeatFromJobManager:
    """Job j's, which holds these allocations at te."""
    infos = tuple(
        AllocatedSlotInfo(slot_index=index, allocation_id=each) for index, each in enumerate(allocations)
    )
    report = AllocatedSlotReport(job_id="j", allocated_slot_infos=infos)
    return task_executor.HeartbeatFromJobManager(position=position, allocated_slot_report=report)
