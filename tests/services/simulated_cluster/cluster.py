"""A cluster without threads, Kafka or Spark: a Simulator that a test steps through, with a clock that the test moves.

`settle` lets every role decide, in a fixed order, until nobody owes anything; each decision is folded before the
next. What shells do takes no time: channels exist at once, tasks run until a test ends them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.pipelines.api.build import build
from tailrace.schemas import dispatcher, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.everyone import ConfigurationChanged, LeaderElected
from tailrace.schemas.types import (
    ExecutionState,
    Header,
    JobGraph,
)
from tailrace.services.core.replica import OnFalseHeader, OnIllegal, Replica
from tailrace.services.core.role import Instruction, OutgoingEvent, Role, Time, kind_of
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.job_master import JobMaster
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from tailrace.services.simulation.checkpoint_storage import SimulatedStorage
from tailrace.services.simulation.simulated_effects import MASTER_INSTRUCTIONS, perform
from tailrace.services.simulation.simulated_tasks import SimulatedTasks
from tailrace.services.simulation.simulator import Simulator
from tailrace.services.simulation.task_behavior import (
    CheckpointContribution,
    TaskEnd,
    TaskStart,
    UniformTaskBehavior,
)
from tailrace.services.simulation.task_events import HARDWARE as HARDWARE
from tailrace.services.simulation.task_events import PROFILE as PROFILE
from tailrace.services.simulation.task_events import register_event, state_change_event
from tailrace.services.task_executor import TaskExecutor
from tailrace.services.task_executor.instructions import TriggerTasks
from tailrace.services.task_executor.resources import Task

SECOND = 1_000_000


@functools.cache
def graph(parallelism: int = 1) -> JobGraph:
    """WindowWordCount in two vertices at any parallelism: needs as many slots as its parallelism."""
    program = "tailrace.pipelines.examples.window_word_count:main"
    return build(program, ["--port", "9999"], parallelism, {"execution.isolation": "vertex"})


class Cluster(UniformTaskBehavior):
    """A whole cluster in one process; `log` has the events. It is the TaskBehavior and TaskEnvironment of its tasks."""

    def __init__(
        self,
        *,
        configuration: dict[str, str] | None = None,
        answers: bool = True,
        replica: Replica | None = None,
    ) -> None:
        """`answers`: tasks acknowledge checkpoints by themselves, all as soon as one gets TriggerCheckpoint."""
        super().__init__()
        self.simulator = Simulator(replica or new_replica(), cluster="sim", now=1_000 * SECOND)
        self.configuration = configuration or {}
        self.answers = answers
        self.starts_tasks = True
        """Whether tasks that are to run do so."""
        self.obeyed: set[tuple[str, str]] = set()
        self.dead: set[str] = set()
        """Addresses of TaskExecutors whose processes have ended."""
        self.storage = SimulatedStorage()
        self.tasks = SimulatedTasks(self, self, self.storage)

    @property
    def log(self) -> list[Record]:
        return self.simulator.log

    @property
    def replica(self) -> Replica:
        return self.simulator.replica

    @property
    def now(self) -> Time:
        return self.simulator.now

    @now.setter
    def now(self, time: Time) -> None:
        self.simulator.now = time

    def start(self, task: Task, now: Time) -> TaskStart:
        return TaskStart(0 if self.starts_tasks else 1)

    def contribution(self, task: Task, trigger: TriggerTasks, now: Time) -> CheckpointContribution | None:
        return CheckpointContribution() if self.answers else None

    def schedule_after(self, delay: Time, role_address: str, action: Callable[[], None]) -> None:
        """Does nothing: actions that take time do not happen."""
        if delay == 0:
            action()

    def append_from_shell(self, role_address: str, owed: OutgoingEvent) -> None:
        self.send(role_address, owed.recipient, owed.body, cause=owed.cause)

    def lead(self, *roles: str) -> None:
        """Appends the claim of a new leader of each role."""
        for role in roles:
            epoch = self.replica.leadership.epoch(role) + 1
            self.send(
                role,
                "*",
                LeaderElected(role=role, epoch=epoch, address="sim", session=f"{role}/{epoch}"),
                epoch=epoch,
            )

    def start_master(self) -> None:
        """A jobmanager process takes the leadership; its shells start from scratch."""
        self.lead("dispatcher", "resource_manager")
        if self.configuration and not self.events_of("ConfigurationChanged"):
            claim = self.replica.leadership.leaders["dispatcher"].offset
            changed = ConfigurationChanged(configuration=self.configuration)
            self.send("dispatcher", EVERYONE, changed, cause=claim)
        self.obeyed = {pair for pair in self.obeyed if kind_of(pair[0]) == "task_executor"}

    def start_task_executor(self, resource_id: str, slots: int = 1, host: str = "sim") -> None:
        """Starts a TaskExecutor process, which registers with the options of the cluster."""
        address = f"task_executor/{resource_id}"
        self.tasks.on_process_ended(address)
        self.lead(address)
        self.dead.discard(address)
        self.obeyed = {pair for pair in self.obeyed if pair[0] != address}
        claim = self.replica.leadership.leaders[address].offset
        self.append_from_shell(
            address,
            register_event(
                resource_id, slots, configuration=self.configuration, process_address=host, cause=claim
            ),
        )

    def kill(self, resource_id: str) -> None:
        """Kills a TaskExecutor process with SIGKILL."""
        self.dead.add(f"task_executor/{resource_id}")
        self.tasks.on_process_ended(f"task_executor/{resource_id}")

    def lose(self, resource_id: str, reason: str, *, exited: bool = True, cause: int | None = None) -> None:
        """The ResourceManager's shell reports that a worker is lost."""
        registered = [
            record.body.instance_id  # type: ignore[attr-defined]
            for record in self.events_of("TaskExecutorRegistrationSuccess")
            if record.header.recipient == f"task_executor/{resource_id}"
        ]
        body = resource_manager.WorkerLost(
            resource_id=resource_id,
            instance_id=registered[-1] if registered else None,
            exited=exited,
            reason=reason,
        )
        self.send("resource_manager", "resource_manager", body, cause=cause)

    def submit(
        self,
        job_id: str,
        job_graph: JobGraph | None = None,
        client: str = "client/test",
        savepoint_path: str | None = None,
    ) -> int:
        """Appends a client's SubmitJob, admitted."""
        body = dispatcher.SubmitJob(
            job_id=job_id, job_graph=job_graph or graph(), savepoint_path=savepoint_path
        )
        return self.send(client, "dispatcher", body)

    def send(
        self,
        sender: str,
        recipient: str,
        body: Body,
        *,
        cause: int | None = None,
        epoch: int | None = None,
        decided_at: int | None = None,
    ) -> int:
        """Appends one event and folds it; returns its offset. `decided_at` is given for events that `decide`
        returned there."""
        self.simulator.append(
            sender, [OutgoingEvent(recipient, body, cause)], epoch=epoch, decided_at=decided_at
        )
        return self.replica.offset

    def settle(self, limit: int = 10_000) -> None:
        """Runs until no role requires an event and every instruction is obeyed."""
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError("the roles talk without end: " + ", ".join(self.transcript()[-20:]))

    def tick(self, seconds: float) -> None:
        """Moves the clock, then settles."""
        self.now += int(seconds * SECOND)
        self.settle()

    def led(self, role_address: str) -> bool:
        """Returns whether a leader leads the role."""
        return self.replica.leadership.epoch(role_address) > 0

    def owed(self, role_address: str) -> list[OutgoingEvent]:
        """Returns the events that a role requires now."""
        return self.replica.role(role_address).decide(self.replica.states[role_address], self.now)

    def step(self, but: str | None = None) -> bool:
        """Appends the events that one role requires (not of `but`), or obeys one instruction; returns whether there
        was any."""
        for role_address in self.replica.active_addresses:
            if not self.led(role_address) or role_address in self.dead or role_address == but:
                continue
            if self._speak(role_address, but):
                return True
            role, state = self.replica.role(role_address), self.replica.states[role_address]
            for instruction in role.instructions(state):
                if (role_address, instruction.key) not in self.obeyed:
                    self.obeyed.add((role_address, instruction.key))
                    self._perform(role_address, instruction)
                    return True
        return False

    def _speak(self, role_address: str, but: str | None) -> bool:
        """Appends all events that a process requires; returns whether there were any. A JobMaster runs with the
        Dispatcher."""
        leadership, at = self.replica.leadership, self.replica.offset
        leader = leadership.leader(role_address)
        together = [
            address
            for address in self.replica.active_addresses
            if address != but and leadership.leader(address) == leader
        ]
        owed = [(item, what) for item in together for what in self.owed(item)]
        for element, what in owed:
            self.send(element, what.recipient, what.body, cause=what.cause, decided_at=at)
        return bool(owed)

    def _perform(self, role_address: str, instruction: Instruction) -> None:
        match instruction:
            case _ if isinstance(instruction, MASTER_INSTRUCTIONS):
                event = perform(role_address, instruction, self.storage, lambda _: graph())
                self.append_from_shell(role_address, event)
            case StartWorkerProcess(resource_id=resource_id, number_of_slots=slots, cause=cause):
                started = resource_manager.WorkerStarted(resource_id=resource_id, address="sim")
                self.send(role_address, role_address, started, cause=cause)
                self.start_task_executor(resource_id, slots)
            case StopWorkerProcess(resource_id=resource_id, cause=cause):
                self.kill(resource_id)
                self.lose(resource_id, "it was stopped", cause=cause)
            case _:
                self.tasks.perform(role_address, instruction, self.replica.states[role_address])

    def report(
        self,
        role_address: str,
        attempt: str,
        state: ExecutionState,
        failure: str | None = None,
        accumulators: Mapping[str, float] | None = None,
        *,
        progress_lost: bool = False,
    ) -> None:
        """Reports the end of a task, also of one that has not run."""
        task, counts = self.task(role_address, attempt), accumulators or {}
        if not self.tasks.end(attempt, TaskEnd(0, state, failure, counts, progress_lost)):
            owed = state_change_event(
                task.job_id, attempt, state, failure, counts, progress_lost=progress_lost, cause=task.cause
            )
            self.append_from_shell(role_address, owed)

    def task(self, role_address: str, attempt: str) -> Task:
        """Returns a task as its TaskExecutor knows it."""
        result = self.replica.states[role_address].tasks[attempt]
        assert isinstance(result, Task)
        return result

    def finish_all(self, state: ExecutionState = ExecutionState.FINISHED, failure: str | None = None) -> None:
        """Ends every running task."""
        for role_address, role_state in list(self.replica.states.items()):
            if kind_of(role_address) == "task_executor" and role_address not in self.dead:
                for attempt, task in sorted(role_state.tasks.items()):
                    # Another task of its process may have ended it.
                    is_there = attempt in self.replica.states[role_address].tasks
                    if task.state is ExecutionState.RUNNING and is_there:
                        self.report(role_address, attempt, state, failure)

    def events_of(self, name: str) -> list[Record]:
        """Returns every event of a name, such as JobFinished."""
        return [record for record in self.log if record.body.AVRO_NAME.endswith(f".{name}")]

    def transcript(self) -> list[str]:
        """Formats the log, one line per event."""
        return [
            f"{record.offset:>3} {record.header.sender} -> {record.header.recipient}: "
            f"{record.body.AVRO_NAME.rpartition('.')[2]}"
            for record in self.log
        ]


def start_cluster(
    *resource_ids: str,
    slots: int = 1,
    configuration: dict[str, str] | None = None,
    answers: bool = True,
    replica: Replica | None = None,
) -> Cluster:
    """Returns a cluster in which a master leads and these TaskExecutors, with so many slots each, have registered."""
    cluster = Cluster(configuration=configuration, answers=answers, replica=replica)
    cluster.start_master()
    for resource_id in resource_ids:
        cluster.start_task_executor(resource_id, slots)
    cluster.settle()
    return cluster


def new_replica(
    *,
    only: Callable[[str], bool] | None = None,
    on_illegal: OnIllegal | None = None,
    on_false_header: OnFalseHeader | None = None,
) -> Replica:
    """Returns a replica of all roles with empty states."""
    roles: list[Role[Any]] = [Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()]
    return Replica(roles, only=only, on_illegal=on_illegal, on_false_header=on_false_header)


def replay_to_replica(records: Sequence[Record]) -> Replica:
    """Returns a replica of all roles after these events."""
    replica = new_replica()
    for record in records:
        replica.apply(record)
    return replica


def header(sender: str, recipient: str, epoch: int = 0, time: int = 0) -> Header:
    """Returns a header for events that a test creates."""
    return Header(
        event_id=f"{sender}/{recipient}/{time}",
        time=time,
        sender=sender,
        sender_epoch=epoch,
        recipient=recipient,
    )
