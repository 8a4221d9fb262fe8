"""A cluster without threads, Kafka or Spark: real roles, a list as the log, a clock that tests move, tasks that
perform.

`settle` lets every role decide, in a fixed order, until nobody owes anything; each decision is folded before the
next. Shells are simulated: channels exist at once, and tasks do what `TaskScript` says.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from tailrace.services.core.replica import OnIllegal, Replica
from tailrace.services.core.role import Instruction, OutgoingEvent, Role, kind_of, with_headers
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.job_master import JobMaster
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from tailrace.services.simulation.checkpoint_storage import SimulatedStorage, StatePart, part_name
from tailrace.services.simulation.simulated_effects import MASTER_INSTRUCTIONS, perform
from tailrace.services.simulation.task_events import HARDWARE as HARDWARE
from tailrace.services.simulation.task_events import PROFILE as PROFILE
from tailrace.services.simulation.task_events import (
    acknowledge_checkpoint_event,
    register_event,
    state_change_event,
)
from tailrace.services.task_executor import TaskExecutor
from tailrace.services.task_executor.instructions import (
    AbortTasks,
    ConfirmTasks,
    RunTasks,
    StopTask,
    TriggerTasks,
)
from tailrace.services.task_executor.state import Task

SECOND = 1_000_000


@functools.cache
def graph(parallelism: int = 1) -> JobGraph:
    """WindowWordCount: needs as many slots as its parallelism."""
    return build("tailrace.pipelines.examples.window_word_count:main", ["--port", "9999"], parallelism)


@dataclass
class Cluster:
    """Everything in one place; `log` is the conversation."""

    log: list[Record] = field(default_factory=list)
    now: int = 1_000 * SECOND
    on_run: Callable[[Cluster, str, RunTasks], None] | None = None
    replica: Replica = field(init=False)
    obeyed: set[tuple[str, str]] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    """Addresses of TaskExecutors whose processes have ended."""
    storage: SimulatedStorage = field(default_factory=SimulatedStorage)
    answers: bool = True
    """Whether tasks acknowledge checkpoints by themselves, all as soon as one is told."""
    stops: set[tuple[str, int]] = field(default_factory=set)
    """Savepoints that their jobs end with: (job, checkpoint)."""

    def __post_init__(self) -> None:
        self.replica = new_replica()

    def lead(self, *roles: str) -> None:
        """A new leader of each role."""
        for role in roles:
            epoch = self.replica.leadership.epoch(role) + 1
            self.say(
                role,
                "*",
                LeaderElected(role=role, epoch=epoch, address="sim", session=f"{role}/{epoch}"),
                epoch=epoch,
            )

    def start_master(self) -> None:
        """A jobmanager process takes the lead; what an earlier one's shells began has to begin again."""
        claimed = [each for each in self.replica.active_addresses if self.replica.leadership.is_claimed(each)]
        jobs = [each for each in claimed if kind_of(each) == "job_master"]
        self.lead("dispatcher", "resource_manager", *jobs)
        if self.configuration and not self.said("ConfigurationChanged"):
            claim = self.replica.leadership.leaders["dispatcher"].offset
            changed = ConfigurationChanged(configuration=self.configuration)
            self.say("dispatcher", EVERYONE, changed, cause=claim)
        self.obeyed = {pair for pair in self.obeyed if kind_of(pair[0]) == "task_executor"}

    def start_task_executor(self, resource_id: str, slots: int = 1) -> None:
        """A TaskExecutor process starts and registers."""
        address = f"task_executor/{resource_id}"
        self.lead(address)
        self.dead.discard(address)
        self.obeyed = {pair for pair in self.obeyed if pair[0] != address}
        claim = self.replica.leadership.leaders[address].offset
        self._say(address, register_event(resource_id, slots, process_address="sim", cause=claim))

    def kill(self, resource_id: str) -> None:
        """SIGKILL of a TaskExecutor's process."""
        self.dead.add(f"task_executor/{resource_id}")

    def lose(self, resource_id: str, reason: str, *, exited: bool = True, cause: int | None = None) -> None:
        """The ResourceManager's shell finds out that a worker is gone."""
        registered = [
            each.body.instance_id  # type: ignore[attr-defined]
            for each in self.said("TaskExecutorRegistrationSuccess")
            if each.header.recipient == f"task_executor/{resource_id}"
        ]
        body = resource_manager.WorkerLost(
            resource_id=resource_id,
            instance_id=registered[-1] if registered else None,
            exited=exited,
            reason=reason,
        )
        self.say("resource_manager", "resource_manager", body, cause=cause)

    def submit(
        self,
        job_id: str,
        job_graph: JobGraph | None = None,
        client: str = "client/test",
        savepoint_path: str | None = None,
    ) -> int:
        """A client's SubmitJob, admitted."""
        body = dispatcher.SubmitJob(
            job_id=job_id, job_graph=job_graph or graph(), savepoint_path=savepoint_path
        )
        return self.say(client, "dispatcher", body)

    def say(
        self,
        sender: str,
        recipient: str,
        body: Body,
        *,
        cause: int | None = None,
        epoch: int | None = None,
        decided_at: int | None = None,
    ) -> int:
        """Appends one event and folds it; returns its offset. `decided_at` is given for what `decide` owed there."""
        if epoch is None:
            epoch = self.replica.leadership.epoch(sender) if kind_of(sender) != "client" else 0
        count = self.counts[sender] = self.counts.get(sender, 0) + 1
        event = with_headers(
            [OutgoingEvent(recipient, body, cause)],
            cluster="sim",
            sender=sender,
            epoch=epoch,
            decided_at=self.replica.offset if decided_at is None else decided_at,
            now=self.now,
            numbers=itertools.count(count),
            decided=decided_at is not None,
        )[0]
        record = Record(len(self.log), event.header, event.body)
        self.log.append(record)
        self.replica.apply(record)
        return record.offset

    def _say(self, sender: str, owed: OutgoingEvent) -> None:
        self.say(sender, owed.recipient, owed.body, cause=owed.cause)

    def settle(self, limit: int = 10_000) -> None:
        """Until nobody owes anything and every instruction has been obeyed."""
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError("the roles talk without end: " + ", ".join(self.transcript()[-20:]))

    def tick(self, seconds: float) -> None:
        """Moves the clock, then settles."""
        self.now += int(seconds * SECOND)
        self.settle()

    def led(self, role_address: str) -> bool:
        """Whether somebody leads the role."""
        return self.replica.leadership.epoch(role_address) > 0

    def owed(self, role_address: str) -> list[OutgoingEvent]:
        """What a role would say now."""
        return self.replica.role(role_address).decide(self.replica.states[role_address], self.now)

    def step(self, but: str | None = None) -> bool:
        """One role, `but` that one, says what it owes, or one instruction is obeyed; whether there was any."""
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
        """A process says all that it owes; whether it owed anything. A JobMaster runs where the Dispatcher does."""
        leadership, at = self.replica.leadership, self.replica.offset
        leader = leadership.leader(role_address)
        together = [
            each
            for each in self.replica.active_addresses
            if each != but and leadership.leader(each) == leader
        ]
        owed = [(each, what) for each in together for what in self.owed(each)]
        for each, what in owed:
            self.say(each, what.recipient, what.body, cause=what.cause, decided_at=at)
        return bool(owed)

    def _perform(self, role_address: str, instruction: Instruction) -> None:
        match instruction:
            case _ if isinstance(instruction, MASTER_INSTRUCTIONS):
                self._say(role_address, perform(role_address, instruction, self.storage, lambda _: graph()))
            case RunTasks():
                if self.on_run is not None:
                    self.on_run(self, role_address, instruction)
                else:
                    for task in instruction.tasks:
                        self.report(role_address, task.execution_attempt_id, ExecutionState.RUNNING)
            case StopTask(execution_attempt_id=attempt, cause=cause):
                self.report(role_address, attempt, ExecutionState.CANCELED, cause=cause)
            case StartWorkerProcess(resource_id=resource_id, number_of_slots=slots, cause=cause):
                started = resource_manager.WorkerStarted(resource_id=resource_id, address="sim")
                self.say(role_address, role_address, started, cause=cause)
                self.start_task_executor(resource_id, slots)
            case StopWorkerProcess(resource_id=resource_id, cause=cause):
                self.kill(resource_id)
                self.lose(resource_id, "it was stopped", cause=cause)
            case TriggerTasks():
                self._take_checkpoint(instruction)
            case ConfirmTasks(job_id=job_id, checkpoint_id=checkpoint_id, attempts=attempts):
                for attempt in attempts if (job_id, checkpoint_id) in self.stops else ():
                    self.report(role_address, attempt, ExecutionState.FINISHED)
            case AbortTasks():
                pass
            case _:
                raise AssertionError(f"the simulation does not know {instruction}")

    def _take_checkpoint(self, told: TriggerTasks) -> None:
        if told.options.stops:
            self.stops.add((told.job_id, told.checkpoint_id))
        for role_address, state in list(self.replica.states.items()):
            if kind_of(role_address) != "task_executor" or not self.answers:
                continue
            tasks = sorted(state.tasks.values(), key=lambda task: task.cause)
            for task in tasks:
                if task.job_id != told.job_id or task.state is not ExecutionState.RUNNING:
                    continue
                attempt = task.execution_attempt_id
                name = part_name(task.vertex_id, task.subtask_index)
                self.storage.write(told.options.directory, name, StatePart(attempt, 0))
                owed = acknowledge_checkpoint_event(
                    told.job_id, attempt, told.checkpoint_id, cause=told.cause
                )
                self._say(role_address, owed)

    def report(
        self,
        role_address: str,
        attempt: str,
        state: ExecutionState,
        failure: str | None = None,
        accumulators: Mapping[str, float] | None = None,
        *,
        progress_lost: bool = False,
        cause: int | None = None,
    ) -> None:
        """A task changes its state; `cause`: what it was stopped by, or else what it runs by."""
        task = self.task(role_address, attempt)
        owed = state_change_event(
            task.job_id,
            attempt,
            state,
            failure,
            accumulators,
            progress_lost=progress_lost,
            cause=task.cause if cause is None else cause,
        )
        self._say(role_address, owed)

    def task(self, role_address: str, attempt: str) -> Task:
        """A task as its TaskExecutor knows it."""
        found = self.replica.states[role_address].tasks[attempt]
        assert isinstance(found, Task)
        return found

    def finish_all(self, state: ExecutionState = ExecutionState.FINISHED, failure: str | None = None) -> None:
        """Every running task ends."""
        for role_address, role_state in list(self.replica.states.items()):
            if kind_of(role_address) == "task_executor" and role_address not in self.dead:
                for attempt, task in sorted(role_state.tasks.items()):
                    if task.state is ExecutionState.RUNNING:
                        self.report(role_address, attempt, state, failure)

    def said(self, name: str) -> list[Record]:
        """Every event of a name, such as JobFinished."""
        return [record for record in self.log if record.body.AVRO_NAME.endswith(f".{name}")]

    def transcript(self) -> list[str]:
        """The conversation, a line an event."""
        return [
            f"{record.offset:>3} {record.header.sender} -> {record.header.recipient}: "
            f"{record.body.AVRO_NAME.rpartition('.')[2]}"
            for record in self.log
        ]


def new_replica(*, only: Callable[[str], bool] | None = None, on_illegal: OnIllegal | None = None) -> Replica:
    """All roles, nothing folded yet."""
    roles: list[Role[Any]] = [Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()]
    return Replica(roles, only=only, on_illegal=on_illegal)


def replay_to_replica(records: Sequence[Record]) -> Replica:
    """All roles after these events."""
    replica = new_replica()
    for record in records:
        replica.apply(record)
    return replica


def header(sender: str, recipient: str, epoch: int = 0, time: int = 0) -> Header:
    """A header for events that tests make up."""
    return Header(
        event_id=f"{sender}/{recipient}/{time}",
        time=time,
        sender=sender,
        sender_epoch=epoch,
        recipient=recipient,
    )
