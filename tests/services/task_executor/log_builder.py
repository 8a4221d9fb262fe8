"""One TaskExecutor and its inputs: every event that it requires is folded when it is sent, as a host does."""

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
    TaskDeploymentDescriptor,
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


def descriptor(
    attempt: str, allocation_id: str, subtask: int = 0, number: int = 0
) -> TaskDeploymentDescriptor:
    """Returns a task to submit."""
    return TaskDeploymentDescriptor(
        subtask_index=subtask,
        attempt_number=number,
        execution_attempt_id=attempt,
        allocation_id=allocation_id,
    )


class Driver:
    """The state of the role after all events so far; `now` is the time of all of them."""

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

    def receive(
        self, body: Body, sender: str = RESOURCE_MANAGER, recipient: str = OWN, cause: int | None = None
    ) -> int:
        """Folds an event; returns its offset."""
        self.offset += 1
        output = replace(header(sender, recipient, time=self.now), cause=cause)
        self.state = self.role.evolve(self.state, Record(self.offset, output, body))
        return self.offset

    def start(self) -> None:
        """Starts a process, which registers."""
        self.receive(
            everyone.LeaderElected(role=OWN, epoch=self.offset + 2, address="here", session="s"), OWN, "*"
        )
        self.receive(self.registration, OWN, RESOURCE_MANAGER)
        self.admit()

    def admit(self) -> None:
        """The ResourceManager answers the registration; then the required events are sent."""
        self.receive(task_executor.TaskExecutorRegistrationSuccess(instance_id=f"instance {self.offset}"))
        self.settle()

    def settle(self) -> list[OutgoingEvent]:
        """Sends all required events until there are none; returns them."""
        events: list[OutgoingEvent] = []
        while owed := self.role.decide(self.state, self.now):
            for event in owed:
                self.receive(event.body, OWN, event.recipient, event.cause)
            events += owed
            assert len(events) < 1_000, "it talks without end"
        return events

    def allocate(self, *allocations: str, job_id: str = "j") -> None:
        """Requests free slots, by number; sends nothing yet."""
        free = (n for n, slot in sorted(self.state.slots.slots.items()) if slot.state is TaskSlotState.FREE)
        for allocation_id, number in zip(allocations, list(free), strict=False):
            self.receive(
                task_executor.RequestSlot(
                    slot_id=SlotID(resource_id="te", slot_number=number),
                    job_id=job_id,
                    allocation_id=allocation_id,
                    reason="free",
                )
            )

    def answer(self, job_id: str = "j") -> None:
        """The JobMaster answers the registration."""
        body = task_executor.JobManagerRegistrationSuccess(job_id=job_id, job_graph=GRAPH)
        self.receive(body, address(JOB_MASTER, job_id))

    def take(self, *allocations: str, job_id: str = "j") -> None:
        """The JobMaster accepts slots."""
        body = task_executor.SlotsAccepted(job_id=job_id, allocation_ids=allocations)
        self.receive(body, address(JOB_MASTER, job_id))

    def hold(self, *allocations: str, job_id: str = "j") -> None:
        """Allocates slots, which are offered and accepted."""
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
    ) -> int:
        """Sends SubmitTask of job j for one task."""
        return self.submit_all(deployment, (descriptor(attempt, allocation_id, subtask, number),))

    def submit_all(self, deployment: str, subtasks: tuple[TaskDeploymentDescriptor, ...]) -> int:
        """Sends SubmitTask of job j."""
        body = task_executor.SubmitTask(
            job_id="j", vertex_id="v", deployment_id=deployment, subtasks=subtasks
        )
        return self.receive(body, JM)

    def report(self, attempt: str, *states: ExecutionState) -> None:
        """The runtime reports a state of a task."""
        for state in states:
            body = job_master.UpdateTaskExecutionState(
                job_id="j", execution_attempt_id=attempt, execution_state=state
            )
            self.receive(body, OWN, JM)

    def free(self, allocation_id: str, sender: str = JM) -> None:
        self.receive(task_executor.FreeSlot(allocation_id=allocation_id, reason="not needed"), sender)

    def lose(self) -> None:
        """Broadcasts that this TaskExecutor is lost."""
        self.receive(everyone.TaskExecutorLost(resource_id="te", reason="silence"), recipient="*")

    def silence(self, peer: str) -> None:
        self.receive(task_executor.HeartbeatTimedOut(peer=peer, reason="silence"), OWN)

    # What there is.

    def slot(self, number: int = 0) -> TaskSlotState:
        return self.state.slots.slots[number].state

    def demands(self) -> tuple[dict[str, list[str]], list[str]]:
        """Returns by deployment the attempts that have to run, and the attempts that have to stop."""
        runs: dict[str, list[str]] = {}
        stops: list[str] = []
        for instruction in self.role.instructions(self.state):
            match instruction:
                case RunTasks(deployment_id=deployment_id, tasks=tasks):
                    runs[deployment_id] = [task.execution_attempt_id for task in tasks]
                case StopTask(execution_attempt_id=attempt):
                    stops.append(attempt)
                case Instruction():
                    raise AssertionError(instruction)
        return runs, stops


def names(owed: list[OutgoingEvent]) -> list[str]:
    """Returns the names of the events: RegisterTaskManager, OfferSlots, ..."""
    return [event.body.AVRO_NAME.rpartition(".")[2] for event in owed]


def heartbeat(position: int, *allocations: str) -> task_executor.HeartbeatFromJobManager:
    """Returns job j's heartbeat, with these allocations at te."""
    infos = tuple(
        AllocatedSlotInfo(slot_index=index, allocation_id=item) for index, item in enumerate(allocations)
    )
    report = AllocatedSlotReport(job_id="j", allocated_slot_infos=infos)
    return task_executor.HeartbeatFromJobManager(position=position, allocated_slot_report=report)
