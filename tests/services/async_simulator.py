"""A cluster of processes that see the log at different times: what `simulation` leaves out.

Each process reads the log at its own pace, decides only when its own last append has come back, looks only at what
changed since, as `services.host.host.Host` does, and may die between any two events: also with only some of what it
owed appended. A process that was deposed goes on talking until it reads so. Shells are simulated: what they have to say
is kept in `unsaid` until a step says it, and dies with the process, as running tasks do.

A state is a function of the log, so it is folded once, when an event is appended, and every process looks at the states
as they were at its own position. That folding anew gives the same is a law of its own, checked at the end of a run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.schemas import resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import ClusterTerminated, ConfigurationChanged, LeaderElected
from tailrace.schemas.states import EXECUTION_ENDS
from tailrace.schemas.types import ExecutionState, Header, JobGraph, Origin, ResourceProfile
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import IllegalEvent, Instruction, OutgoingEvent, Time, kind_of
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.election.leader_election import LeaderElection
from tailrace.services.host.host_core import Deposed, HostCore, HostIdentity
from tailrace.services.resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from tailrace.services.resource_manager.worker_pool import WorkerState
from tailrace.services.simulation.checkpoint_storage import CHECKPOINT_INSTRUCTIONS
from tailrace.services.simulation.simulated_effects import MASTER_INSTRUCTIONS, perform
from tailrace.services.simulation.task_events import register_event, state_change_event
from tailrace.services.task_executor.instructions import (
    AbortTasks,
    ConfirmTasks,
    RunTasks,
    StopTask,
    TriggerTasks,
)
from tailrace.services.task_executor.state import Task, TaskExecutorState

from .simulated_cluster.checkpoints import RECORDS, Barriers, TaskCheckpoints
from .simulated_cluster.cluster import PROFILE, SECOND, graph, new_replica

LIVE_WORKER_STATES = (WorkerState.STARTED, WorkerState.REGISTERED, WorkerState.RELEASING)
MASTER_ROLES = ("dispatcher", "resource_manager")
MASTER_KINDS = (*MASTER_ROLES, "job_master")
Subtask = tuple[str, str, int]
"""(job, vertex, index)."""
RUNNING, CANCELED, FAILED = ExecutionState.RUNNING, ExecutionState.CANCELED, ExecutionState.FAILED


class AsyncSimulator:
    """The log, the clock, and the processes that are alive. `truth` has folded all of the log."""

    def __init__(
        self, configuration: dict[str, str] | None = None, draw: random.Random | None = None
    ) -> None:
        self.log: list[Record] = []
        self.changed: list[list[tuple[str, Any]]] = []
        """By offset: the states that the event changed, by address."""
        self.now: Time = 1_000 * SECOND
        self.configuration = configuration or {}
        self.draw = draw
        """Where it is given, tasks and channels and workers may fail by themselves, as `task_failures` says."""
        self.task_failures = 0.0
        self.driver_failures = 0.0
        self.barriers = Barriers()
        self.single: SimulatedProcess | None = None
        """The newest master."""
        self.deposed: list[SimulatedProcess] = []
        self.leaderships: list[LeadershipState] = []
        """By offset: who leads behind the event."""
        self.admitted: list[bool] = []
        """By offset: whether readers take notice of the event."""
        self.workers: dict[str, SimulatedProcess] = {}
        self.ever_started: set[str] = set()
        self.started_by_driver: set[str] = set()
        self.illegal: list[str] = []
        self.truth = new_replica(on_illegal=lambda error, _: self.illegal.append(str(error)))
        self.submitted = 0
        self.sessions = 0
        self.by_shells: set[int] = set()
        """Offsets of what was not decided by a role."""
        self.counted: Counter[Subtask] = Counter()
        """What each subtask has counted and committed: it outlives processes and attempts."""
        self.writers: dict[Subtask, tuple[int, SimulatedProcess]] = {}
        """The attempt, by its number and process, that may commit: the last one that was started fences the others."""

    def append(self, events: list[Event], *, by_shell: bool = False) -> None:
        """At the end of the log."""
        truth = self.truth
        for event in events:
            offset = len(self.log)
            record = Record(offset, event.header, event.body)
            self.log.append(record)
            if by_shell:
                self.by_shells.add(offset)
            self.admitted.append(truth.leadership.accepts(record))
            self.changed.append([(address, truth.states[address]) for address in truth.apply(record)])
            self.leaderships.append(truth.leadership)

    def processes(self) -> list[SimulatedProcess]:
        """All that are alive, deposed ones included."""
        masters = [self.single] if self.single else []
        return [*masters, *self.deposed, *self.workers.values()]

    @property
    def master(self) -> SimulatedProcess | None:
        """Who leads the Dispatcher, if it is alive."""
        return self.leader("dispatcher")

    def leader(self, role: str) -> SimulatedProcess | None:
        """Who leads a role of masters, as the log has it, if it is alive."""
        return self.single

    def is_alive(self, process: SimulatedProcess) -> bool:
        """Whether it has not ended."""
        return process is self.single or process in self.workers.values() or process in self.deposed

    def start_master(self) -> None:
        """Another jobmanager; one that is alive does not know yet that it was deposed."""
        if self.single is not None:
            self.deposed.append(self.single)
        self.single = SimulatedProcess(self, MASTER_ROLES)
        self.single.configure()
        self.single.look_for_survivors()

    def kill_master(self) -> None:
        """SIGKILL."""
        self.single = None

    def heal(self) -> None:
        """Every process that is alive can go on."""
        for process in self.processes():
            process.stalled = process.deaf = False

    def start_worker(
        self, resource_id: str, slots: int, profile: ResourceProfile = PROFILE, *, zombie: bool = False
    ) -> None:
        """A TaskExecutor process, the first or the next under its resource id.

        An older one is dead, or, as a `zombie`, does not know yet.
        """
        self.ever_started.add(resource_id)
        older = self.workers.get(resource_id)
        if older is not None and zombie:
            self.deposed.append(older)
        self.workers[resource_id] = SimulatedProcess(self, (f"task_executor/{resource_id}",), slots, profile)

    def kill_worker(self, resource_id: str) -> None:
        """SIGKILL."""
        del self.workers[resource_id]

    def stop_worker(self, resource_id: str) -> None:
        """SIGTERM: it says that it leaves. Its tasks end with it."""
        process = self.workers.pop(resource_id)
        if process.registered:
            body = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason="asked to stop")
            process.say(f"task_executor/{resource_id}", OutgoingEvent("resource_manager", body, None))

    def request(self, body: Body, *, admitted: int = 1) -> int:
        """What a client asks for, admitted as often as leaders changed meanwhile; returns the first offset."""
        offset = len(self.log)
        origin = Origin(topic="submissions", partition=0, offset=self.submitted)
        self.submitted += 1
        header = Header(
            event_id=f"request {self.submitted}",
            time=self.now,
            sender="client/test",
            sender_epoch=0,
            recipient="dispatcher",
            origin=origin,
        )
        self.append([Event(header, body)] * admitted, by_shell=True)
        return offset

    def turn(self) -> None:
        """Every process that is alive and goes on goes once through its loop."""
        for process in self.processes():
            if not process.stalled:
                process.fold()
                process.decide()
                process.checkpoints.go_on()
                process.speak()

    def settle(self, limit: int = 2_000) -> None:
        """Every process that is alive goes on until nobody has anything to do. Raises AssertionError."""
        self.heal()
        for _ in range(limit):
            before = len(self.log)
            self.turn()
            if len(self.log) == before and not any(process.is_busy() for process in self.processes()):
                return
        raise AssertionError("the roles talk without end:\n" + "\n".join(lines(self.log[-40:])))

    def tick(self, seconds: float) -> None:
        """Time passes."""
        self.now += int(seconds * SECOND)

    def total(self, job_id: str) -> dict[str, float]:
        """What the subtasks of a job have counted and committed."""
        counted = sum(count for (job, _, _), count in self.counted.items() if job == job_id)
        return {RECORDS: counted} if counted else {}

    def instance_of(self, resource_id: str, position: int) -> str | None:
        """The InstanceID of a TaskExecutor's last registration below a position."""
        for record in reversed(self.log[:position]):
            if (
                record.body.AVRO_NAME.endswith("TaskExecutorRegistrationSuccess")
                and record.header.recipient == f"task_executor/{resource_id}"
            ):
                instance_id: str = record.body.instance_id  # type: ignore[attr-defined]
                return instance_id
        return None


class SharedReplica(Replica):
    """The states of the addresses that a process serves, as `truth` has folded them, up to the position of the
    process."""

    def __init__(self, world: AsyncSimulator, only: Callable[[str], bool]) -> None:
        super().__init__([])
        self._world = world
        self._serves = only
        self.offset = len(world.log) - 1
        self.leadership = world.truth.leadership
        for address, state in world.truth.states.items():
            if only(address):
                self._note(address, state)

    def role(self, role_address: str, level: int | None = None) -> Any:
        return self._world.truth.role(role_address, level)

    def apply(self, record: Record) -> list[str]:
        self.offset = record.offset
        self.leadership = self._world.leaderships[record.offset]
        changed = [pair for pair in self._world.changed[record.offset] if self._serves(pair[0])]
        for address, state in changed:
            self._note(address, state)
        return [address for address, _ in changed]

    def _note(self, address: str, state: Any) -> None:
        self.states[address] = state
        if self.role(address).is_quiescent(state):
            self._awake.pop(address, None)
        else:
            self._awake[address] = None


@dataclass(eq=False)
class SimulatedProcess:
    """One process: what it leads, how far it has read, what runs in it."""

    world: AsyncSimulator
    leads: tuple[str, ...]
    slots: int = 0
    profile: ResourceProfile = PROFILE
    position: int = 0
    """How far it has read: the offset of the next event."""
    stalled: bool = False
    """Whether it does nothing for now (SIGSTOP, a long pause): it goes on where it was."""
    deaf: bool = False
    """Whether it reads nothing for now, and does all else: its consumer is given nothing."""
    registered: bool = False
    session: str = ""
    begun: set[tuple[str, str]] = field(default_factory=set)
    unsaid: list[Event] = field(default_factory=list)
    running: dict[str, Subtask] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    checkpoints: TaskCheckpoints = field(init=False)
    election: LeaderElection | None = None
    """None: it leads whatever it was started for."""
    core: HostCore = field(init=False)
    states: Mapping[str, Any] = field(init=False)
    """By address, as they are at `position`."""

    def __post_init__(self) -> None:
        world = self.world
        self.checkpoints = TaskCheckpoints(self)
        world.sessions += 1
        self.session = f"session {world.sessions}"
        self.position = len(world.log)
        replica = SharedReplica(world, self.serves)
        self.states = replica.states
        self.core = HostCore(replica, HostIdentity("sim", self.leads, "sim", self.session), self.election)
        self.core.start(world.now)
        if self.election is None:
            # It claims whatever it was started for, and reads its claims before anybody says anything.
            self._step()
            self.core.fold(self.read(), world.now)

    def serves(self, address: str) -> bool:
        """Whether it folds the states of an address."""
        if self.slots:
            return address == self.leads[0]
        return kind_of(address) in MASTER_KINDS

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.world.is_alive(self)

    def leads_address(self, address: str) -> bool:
        """Whether it decides for an address."""
        return self.core.term_for(address) is not None

    def is_busy(self) -> bool:
        """Whether it has something to read, to look at, or to say."""
        unread = self.position < len(self.world.log) and not self.deaf
        return bool(unread or self.unsaid or not self.core.is_idle or self.checkpoints.is_behind())

    def configure(self) -> None:
        """The leader says by which configuration it goes, if the log's last one is another."""
        last = next(
            (each.body for each in reversed(self.world.log) if isinstance(each.body, ConfigurationChanged)),
            None,
        )
        configuration = self.world.configuration
        if last is None or last.configuration != configuration:
            body = ConfigurationChanged(configuration=configuration)
            self.say("dispatcher", OutgoingEvent(EVERYONE, body, self._claim("dispatcher")))

    def look_for_survivors(self) -> None:
        """A new leader's worker driver finds what its predecessor's has started, as the shell does."""
        world, manager = self.world, self.states.get("resource_manager")
        if manager is None:
            return
        pool = manager.pool.workers
        survivors = world.started_by_driver & world.workers.keys()
        for resource_id in sorted(survivors.difference(pool.keys())):
            world.kill_worker(resource_id)
        for resource_id, worker in sorted(pool.items()):
            if worker.driven and worker.state in LIVE_WORKER_STATES and resource_id not in survivors:
                self._lost("resource_manager", resource_id, "it has not survived")

    def read(self, count: int | None = None) -> list[Record]:
        """The next events."""
        end = len(self.world.log) if count is None else min(len(self.world.log), self.position + count)
        records = self.world.log[self.position : end]
        self.position = end
        return records

    def fold(self, count: int | None = None) -> None:
        """Reads on; the process ends where it reads that it is deposed, or that its cluster has ended."""
        if self.deaf or not self.is_alive():
            return
        records = self.read(count)
        try:
            self.core.fold(records, self.world.now)
        except Deposed:
            self.end()
        if any(self._ends_with(record) for record in records):
            self.end()

    def _ends_with(self, record: Record) -> bool:
        return (
            isinstance(record.body, ClusterTerminated)
            and not self.slots
            and self.world.admitted[record.offset]
        )

    def end(self) -> None:
        """The process is gone."""
        world = self.world
        if self in world.deposed:
            world.deposed.remove(self)
        elif world.single is self:
            world.single = None
        for resource_id, process in list(world.workers.items()):
            if process is self:
                del world.workers[resource_id]

    def decide(self, only: int | None = None) -> None:
        """One turn of the host's loop. With `only`, the process dies after appending so many events."""
        if self.is_alive():
            self._step(only)

    def _step(self, only: int | None = None) -> None:
        ready = self.core.step((), self.world.now)
        for address in ready.retire:
            self.retire(address)
        if only is None:
            for address, instructions, _ in ready.perform:
                self.perform(address, instructions)
        first = len(self.world.log)
        for event in ready.append[:only]:
            self.world.append([event], by_shell=isinstance(event.body, LeaderElected))
        if only is not None:
            self.end()
            return
        self.core.advance(ready, range(first, len(self.world.log)), (), self.position - 1)
        if self.slots and self.leads[0] in self.states and self.states[self.leads[0]].left:
            self.end()

    def perform(self, address: str, instructions: Sequence[Instruction]) -> None:
        """What a shell does: each instruction once."""
        if self.slots and not self.registered:
            self._register()
        for instruction in instructions:
            if (address, instruction.key) not in self.begun:
                self.begun.add((address, instruction.key))
                self._perform(address, instruction)

    def retire(self, address: str) -> None:
        """It begins afresh if it is led again."""
        self.begun = {pair for pair in self.begun if pair[0] != address}

    def speak(self, count: int | None = None) -> None:
        """The shells say what they have to say."""
        if self.unsaid and self.is_alive():
            now, self.unsaid = self.unsaid[:count], [] if count is None else self.unsaid[count:]
            self.world.append(now, by_shell=True)

    def say(self, address: str, owed: OutgoingEvent) -> None:
        """A shell says something that is in the log at once."""
        self.world.append(self.core.with_headers(address, [owed], self.world.now), by_shell=True)

    def mean_to_say(self, address: str, owed: OutgoingEvent) -> None:
        """A shell says something that will be in the log sooner or later, unless the process dies before."""
        self.unsaid += self.core.with_headers(address, [owed], self.world.now)

    def report(
        self,
        attempt: str,
        state: ExecutionState,
        failure: str | None = None,
        *,
        progress_lost: bool = False,
        empty: bool = False,
        cause: int | None = None,
    ) -> None:
        """A task that runs here changes its state; it works, and commits, before it does, unless it has nothing to."""
        task = self.running[attempt]
        if state in EXECUTION_ENDS:
            del self.running[attempt]
            self.ended.add(attempt)
        counts = {} if empty or self.checkpoints.stands_still(attempt) else self.commit(task)
        counts = counts if state in EXECUTION_ENDS else {}
        self._report(task[0], attempt, state, failure, counts, progress_lost=progress_lost, cause=cause)

    def commit(self, task: Subtask) -> dict[str, float]:
        """One more record; what the subtask has counted in all, if this process may still write."""
        world = self.world
        _, writer = world.writers[task]
        if writer is not self:
            return {}
        world.counted[task] += 1
        return {RECORDS: float(world.counted[task])}

    def _report(
        self,
        job_id: str,
        attempt: str,
        state: ExecutionState,
        failure: str | None = None,
        counts: dict[str, float] | None = None,
        *,
        progress_lost: bool = False,
        cause: int | None = None,
    ) -> None:
        if cause is None:
            cause = self.submission_of(attempt)
        owed = state_change_event(
            job_id, attempt, state, failure, counts, progress_lost=progress_lost, cause=cause
        )
        self.mean_to_say(self.leads[0], owed)

    def submission_of(self, attempt: str) -> int | None:
        """The offset of the SubmitTask that an Execution runs by here; None where it is not known (any more)."""
        state = self.states.get(self.leads[0])
        task = state.tasks.get(attempt) if isinstance(state, TaskExecutorState) else None
        return None if task is None else task.cause

    def _claim(self, role: str) -> int | None:
        claim = self.world.truth.leadership.leader(role)
        return None if claim is None or claim.offset >= self.position else claim.offset

    def _register(self) -> None:
        self.registered = True
        resource_id = self.leads[0].partition("/")[2]
        own = self.leads[0]
        owed = register_event(
            resource_id,
            self.slots,
            self.profile,
            configuration=self.world.configuration,
            process_address="sim",
            cause=self._claim(own),
        )
        self.mean_to_say(own, owed)

    def _perform(self, address: str, instruction: Instruction) -> None:
        match instruction:
            case _ if isinstance(instruction, MASTER_INSTRUCTIONS):
                barriers = self.world.barriers
                fails = isinstance(instruction, CHECKPOINT_INSTRUCTIONS) and self._happens(
                    barriers.trouble.metadata
                )
                owed = perform(address, instruction, barriers.storage, _build_job_graph, storage_fails=fails)
                self.mean_to_say(address, owed)
            case RunTasks(tasks=tasks):
                for task in tasks:
                    self._run(task)
            case StopTask(execution_attempt_id=attempt, job_id=job_id, cause=cause):
                if attempt in self.running:
                    self.report(attempt, CANCELED, cause=cause)
                elif attempt not in self.ended:
                    self.ended.add(attempt)
                    self._report(job_id, attempt, CANCELED, cause=cause)
            case TriggerTasks() | ConfirmTasks() | AbortTasks():
                self.checkpoints.perform(instruction)
            case StartWorkerProcess():
                self._start_worker(address, instruction)
            case StopWorkerProcess(resource_id=resource_id, cause=cause):
                self.world.workers.pop(resource_id, None)
                self._lost(address, resource_id, "stopped", cause)
            case _:
                raise AssertionError(f"the simulation does not know {instruction}")

    def _run(self, task: Task) -> None:
        attempt, subtask = task.execution_attempt_id, (task.job_id, task.vertex_id, task.subtask_index)
        if attempt in self.running or attempt in self.ended:
            raise AssertionError(f"{self.leads[0]} is told to run {attempt} twice")
        self.running[attempt] = subtask
        last, _ = self.world.writers.get(subtask, (-1, None))
        if task.attempt_number >= last:
            self.world.writers[subtask] = task.attempt_number, self
        fault = self.checkpoints.begin(task)
        if fault is not None:
            self.report(attempt, FAILED, fault, progress_lost=True, empty=True)
            return
        if self._happens(self.world.task_failures):
            self.report(attempt, FAILED, "it can't be started", empty=task.finished)
            return
        if self._happens(0.3):
            self.report(attempt, ExecutionState.INITIALIZING, empty=task.finished)
        self.report(attempt, RUNNING, empty=task.finished)
        if task.finished:
            self.report(attempt, ExecutionState.FINISHED, empty=True)

    def _start_worker(self, address: str, instruction: StartWorkerProcess) -> None:
        resource_id, world = instruction.resource_id, self.world
        if self._happens(world.driver_failures):
            self._lost(address, resource_id, "it could not be started", instruction.cause)
            return
        if resource_id not in world.workers:
            world.start_worker(resource_id, instruction.number_of_slots)
        world.started_by_driver.add(resource_id)
        body = resource_manager.WorkerStarted(resource_id=resource_id, address="sim")
        self._outcome(address, body, instruction.cause)

    def _lost(self, address: str, resource_id: str, reason: str, cause: int | None = None) -> None:
        instance_id = self.world.instance_of(resource_id, self.position)
        body = resource_manager.WorkerLost(
            resource_id=resource_id, instance_id=instance_id, exited=True, reason=reason
        )
        self._outcome(address, body, cause)

    def _happens(self, probability: float) -> bool:
        draw = self.world.draw
        return draw is not None and draw.random() < probability

    def _outcome(self, address: str, body: Body, cause: int | None) -> None:
        self.mean_to_say(address, OutgoingEvent(address, body, cause))


def _build_job_graph(instruction: BuildJobGraph) -> JobGraph | str:
    if instruction.entry_point.target == "fails":
        return "it raised"
    return graph(instruction.parallelism or 1)


def lines(records: list[Record]) -> list[str]:
    """For the message of a failed test."""
    return [
        f"{record.offset:>4} {record.header.sender}@{record.header.sender_epoch} -> {record.header.recipient}: "
        f"{record.body.AVRO_NAME.rpartition('.')[2]} (cause {record.header.cause}, at {record.header.decided_at})"
        for record in records
    ]


def find_owed_events(world: AsyncSimulator) -> Iterator[tuple[str, OutgoingEvent]]:
    """What any process that is alive owes, looked at afresh."""
    for process in world.processes():
        for address, state in process.states.items():
            for each in world.truth.role(address).decide(state, world.now):
                yield address, each


__all__ = ["IllegalEvent", "SimulatedProcess", "AsyncSimulator", "lines", "find_owed_events"]
