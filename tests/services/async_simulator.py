"""A cluster of processes that read the log at different times, each with a HostCore.

A process may die between any two events, also after it has appended only some of its own. A deposed process continues
until it reads that. Shells are simulated: their events wait in `pending` until a step appends them, and are lost with
the process, as its tasks are.

A state is a function of the log, so it is folded once, when an event is appended, and every process has the states at
its own position. That folding again gives the same states is a law of its own, checked at the end of a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.schemas import resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import ClusterTerminated, ConfigurationChanged, LeaderElected
from tailrace.schemas.types import ExecutionState, Header, JobGraph, Origin, ResourceProfile
from tailrace.services.core.feature_level import FEATURE_LEVEL, UnknownFeatureLevel
from tailrace.services.core.instruction_tracker import InstructionTracker
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import Clock, IllegalEvent, Instruction, OutgoingEvent, Time, kind_of
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.election.leader_election import LeaderElection
from tailrace.services.host.host_core import Deposed, HostCore, HostIdentity
from tailrace.services.job_master.instructions import MeasureTasks
from tailrace.services.resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from tailrace.services.resource_manager.worker_pool import WorkerState
from tailrace.services.simulation.checkpoint_storage import CHECKPOINT_INSTRUCTIONS
from tailrace.services.simulation.simulated_effects import MASTER_INSTRUCTIONS, perform
from tailrace.services.simulation.simulated_tasks import SimulatedTasks
from tailrace.services.simulation.task_behavior import Subtask, TaskEnd
from tailrace.services.simulation.task_events import register_event

from .simulated_cluster.checkpoints import RECORDS, FaultyTaskBehavior, SharedTaskState
from .simulated_cluster.cluster import PROFILE, SECOND, graph, new_replica

LIVE_WORKER_STATES = (WorkerState.STARTED, WorkerState.REGISTERED, WorkerState.RELEASING)
MASTER_ROLES = ("dispatcher", "resource_manager")
MASTER_KINDS = (*MASTER_ROLES, "job_master")


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
        self.create_clock: Callable[[], Clock] = lambda: self._true_time
        """Returns the clock of a process that starts."""
        self.largest_error: Time = 0
        """By how much the clock of a process may be wrong."""
        self.draw = draw
        """With it, tasks and drivers fail by themselves, with the probabilities below."""
        self.task_failures = 0.0
        self.driver_failures = 0.0
        self.task_state = SharedTaskState()
        self.single: SimulatedProcess | None = None
        """The newest master."""
        self.deposed: list[SimulatedProcess] = []
        self.leaderships: list[LeadershipState] = []
        """By offset: the leaders after the event."""
        self.admitted: list[bool] = []
        """By offset: whether the event is not fenced."""
        self.workers: dict[str, SimulatedProcess] = {}
        self.ever_started: set[str] = set()
        self.started_by_driver: set[str] = set()
        self.illegal: list[str] = []
        self.truth = new_replica(on_illegal=lambda error, _: self.illegal.append(str(error)))
        self.submitted = 0
        self.sessions = 0
        self.known_level = FEATURE_LEVEL
        """The highest feature level that processes which start now know."""
        self.outdated: list[SimulatedProcess] = []
        """The processes that have ended at a level that they do not know."""
        self.by_shells: set[int] = set()
        """Offsets of the events that no role decided."""

    def append(self, events: list[Event], *, by_shell: bool = False) -> None:
        """Appends events to the log."""
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

    def accepted(self, last: int = 0) -> list[Record]:
        """Returns the events that are not ignored, among the `last` ones of the log; 0: among all."""
        start = max(0, len(self.log) - last) if last else 0
        return [record for record in self.log[start:] if self.admitted[record.offset]]

    def processes(self) -> list[SimulatedProcess]:
        """Returns all processes that live, deposed ones included."""
        masters = [self.single] if self.single else []
        return [*masters, *self.deposed, *self.workers.values()]

    @property
    def master(self) -> SimulatedProcess | None:
        """The process that leads the Dispatcher, if it lives."""
        return self.leader("dispatcher")

    def leader(self, role: str) -> SimulatedProcess | None:
        """Returns the process that leads a role of masters, if it lives."""
        return self.single

    def is_alive(self, process: SimulatedProcess) -> bool:
        """Returns whether the process lives."""
        return process is self.single or process in self.workers.values() or process in self.deposed

    def start_master(self) -> None:
        """Starts another jobmanager; one that lives has not read yet that it was deposed."""
        if self.single is not None:
            self.deposed.append(self.single)
        self.single = SimulatedProcess(self, MASTER_ROLES)
        self.single.configure()
        self.single.look_for_survivors()

    def kill_master(self) -> None:
        """SIGKILL."""
        self.single = None

    def heal(self) -> None:
        """All processes continue."""
        for process in self.processes():
            process.stalled = process.reads_nothing = False

    def start_worker(
        self, resource_id: str, slots: int, profile: ResourceProfile = PROFILE, *, zombie: bool = False
    ) -> None:
        """A TaskExecutor process, the first or the next under its resource id.

        An older one is dead, or lives on as a `zombie`.
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
        """SIGTERM: the TaskExecutor deregisters, and its tasks end."""
        process = self.workers.pop(resource_id)
        if process.registered:
            body = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason="asked to stop")
            process.append_now(f"task_executor/{resource_id}", OutgoingEvent("resource_manager", body, None))

    def request(
        self, body: Body, *, admitted: int = 1, tenant: str = "", requester: str = "client/test"
    ) -> int:
        """Appends a client's request several times, admitted from the topic of a tenant; returns the first offset."""
        offset = len(self.log)
        origin = Origin(topic="submissions", partition=0, offset=self.submitted, tenant=tenant)
        self.submitted += 1
        header = Header(
            event_id=f"request {self.submitted}",
            # The leader that admits a request gives it a time.
            time=self.now if self.master is None else self.master.now,
            sender=requester,
            sender_epoch=0,
            recipient="dispatcher",
            origin=origin,
        )
        self.append([Event(header, body)] * admitted, by_shell=True)
        return offset

    def turn(self) -> None:
        """Every process that is not stalled goes once through its loop."""
        for process in self.processes():
            if not process.stalled:
                process.fold()
                process.decide()
                process.receive_barriers()
                process.run_delayed()
                process.append_pending()

    def settle(self, limit: int = 2_000) -> None:
        """Runs all processes until none has anything to do. Raises AssertionError."""
        self.heal()
        for _ in range(limit):
            before = len(self.log)
            self.turn()
            if len(self.log) == before and not any(process.is_busy() for process in self.processes()):
                return
        raise AssertionError("the roles send events without end:\n" + "\n".join(lines(self.log[-40:])))

    def tick(self, seconds: float) -> None:
        """Moves the clock."""
        self.now += int(seconds * SECOND)

    def _true_time(self) -> Time:
        return self.now

    def total(self, job_id: str) -> dict[str, float]:
        """Returns what the subtasks of a job have counted and committed."""
        counts = self.task_state.counted.items()
        counted = sum(count for (job, _, _), count in counts if job == job_id)
        return {RECORDS: counted} if counted else {}

    def instance_of(self, resource_id: str, position: int) -> str | None:
        """Returns the InstanceID of the last registration of a TaskExecutor below a position."""
        for record in reversed(self.log[:position]):
            if (
                self.admitted[record.offset]
                and record.body.AVRO_NAME.endswith("TaskExecutorRegistrationSuccess")
                and record.header.recipient == f"task_executor/{resource_id}"
            ):
                instance_id: str = record.body.instance_id  # type: ignore[attr-defined]
                return instance_id
        return None


class SharedReplica(Replica):
    """The states of the addresses that a process serves, as `truth` has folded them, up to the position of the
    process. Stops like a release that knows no higher level than `known_level`."""

    def __init__(self, world: AsyncSimulator, only: Callable[[str], bool], known_level: int) -> None:
        super().__init__([])
        self._world = world
        self._known_level = known_level
        self._serves = only
        self.offset = len(world.log) - 1
        self.leadership = world.truth.leadership
        self._check_level()
        for address, state in world.truth.states.items():
            if only(address):
                self._note(address, state)

    def role(self, role_address: str, level: int | None = None) -> Any:
        return self._world.truth.role(role_address, level)

    def apply(self, record: Record) -> list[str]:
        self.offset = record.offset
        self.leadership = self._world.leaderships[record.offset]
        self._check_level()
        changed = [pair for pair in self._world.changed[record.offset] if self._serves(pair[0])]
        for address, state in changed:
            self._note(address, state)
        return [address for address, _ in changed]

    def _check_level(self) -> None:
        leadership = self.leadership
        if leadership.feature_level > self._known_level:
            raise UnknownFeatureLevel(self.offset, leadership.feature_level, leadership.level_release)

    def _note(self, address: str, state: Any) -> None:
        self.states[address] = state
        if self.role(address).is_quiescent(state):
            self._awake.pop(address, None)
        else:
            self._awake[address] = None


@dataclass(eq=False)
class SimulatedProcess:
    """One process. It is the TaskEnvironment of its tasks."""

    world: AsyncSimulator
    leads: tuple[str, ...]
    slots: int = 0
    profile: ResourceProfile = PROFILE
    position: int = 0
    """How far it has read: the offset of the next event."""
    stalled: bool = False
    """Whether it does nothing for now (SIGSTOP, a long pause)."""
    reads_nothing: bool = False
    """Whether it reads nothing for now, and does everything else."""
    registered: bool = False
    session: str = ""
    instructions: InstructionTracker = field(default_factory=InstructionTracker)
    pending: list[Event] = field(default_factory=list)
    delayed: list[Callable[[], None]] = field(default_factory=list)
    """What its tasks do later."""
    measurements: dict[str, MeasureTasks] = field(default_factory=dict)
    """By address: the last measurement that was demanded."""
    tasks: SimulatedTasks = field(init=False)
    behavior: FaultyTaskBehavior = field(init=False)
    election: LeaderElection | None = None
    """None: it leads the roles that it was started for."""
    known_level: int = field(init=False)
    clock: Clock = field(init=False)
    core: HostCore = field(init=False)
    states: Mapping[str, Any] = field(init=False)
    """By address, as they are at `position`."""

    def __post_init__(self) -> None:
        world = self.world
        shared = world.task_state
        self.behavior = FaultyTaskBehavior(self)
        self.tasks = SimulatedTasks(self, self.behavior, shared.storage, channels=shared.channels)
        world.sessions += 1
        self.session = f"session {world.sessions}"
        self.clock = world.create_clock()
        self.position = len(world.log)
        self.known_level = world.known_level
        replica = SharedReplica(world, self.serves, self.known_level)
        self.states = replica.states
        identity = HostIdentity("sim", self.leads, "sim", self.session, feature_level=self.known_level)
        self.core = HostCore(replica, identity, self.election)
        self.core.start(self.now)
        if self.election is None:
            # It claims its roles, and reads its claims before others append events.
            self._step()
            self.core.fold(self.read(), self.now)

    def serves(self, address: str) -> bool:
        """Returns whether it folds the states of an address."""
        if self.slots:
            return address == self.leads[0]
        return kind_of(address) in MASTER_KINDS

    def is_alive(self) -> bool:
        """Returns whether the process lives."""
        return self.world.is_alive(self)

    def leads_address(self, address: str) -> bool:
        """Returns whether it decides for an address."""
        return self.core.term_for(address) is not None

    def is_busy(self) -> bool:
        """Returns whether it has something to read, to decide, or to append."""
        unread = self.position < len(self.world.log) and not self.reads_nothing
        return bool(
            unread or self.pending or self.delayed or not self.core.is_idle or self.tasks.waiting_barriers()
        )

    def configure(self) -> None:
        """The leader announces its configuration if it differs from the last one in the log."""
        last = next(
            (
                record.body
                for record in reversed(self.world.accepted())
                if isinstance(record.body, ConfigurationChanged)
            ),
            None,
        )
        configuration = self.world.configuration
        if last is None or last.configuration != configuration:
            body = ConfigurationChanged(configuration=configuration)
            self.append_now("dispatcher", OutgoingEvent(EVERYONE, body, self._claim("dispatcher")))

    def look_for_survivors(self) -> None:
        """The worker driver of a new leader looks for the workers of its predecessor, as the shell does."""
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
        """Reads the next events."""
        end = len(self.world.log) if count is None else min(len(self.world.log), self.position + count)
        records = self.world.log[self.position : end]
        self.position = end
        return records

    def fold(self, count: int | None = None) -> None:
        """Reads and folds; the process ends if it was deposed, or at a level that it does not know, or if the cluster
        has ended."""
        if self.reads_nothing or not self.is_alive():
            return
        records = self.read(count)
        try:
            self.core.fold(records, self.now)
        except Deposed:
            self.end()
        except UnknownFeatureLevel:
            self.world.outdated.append(self)
            if self.election is not None:
                self.election.close()
            self.end()
            return
        if any(self._ends_with(record) for record in records):
            if self.election is not None:
                self.election.close()
            self.end()

    def _ends_with(self, record: Record) -> bool:
        return (
            isinstance(record.body, ClusterTerminated)
            and not self.slots
            and self.world.admitted[record.offset]
        )

    def end(self) -> None:
        """The process ends."""
        world = self.world
        if self in world.deposed:
            world.deposed.remove(self)
        elif world.single is self:
            world.single = None
        for resource_id, process in list(world.workers.items()):
            if process is self:
                del world.workers[resource_id]

    def decide(self, only: int | None = None) -> None:
        """One step of the core. With `only`, the process dies after appending so many events."""
        if self.is_alive():
            self._step(only)

    def _step(self, only: int | None = None) -> None:
        ready = self.core.step((), self.now)
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
        """The shells perform the new instructions."""
        if self.slots and not self.registered:
            self._register()
        for instruction in self.instructions.take_new(address, instructions):
            self._perform(address, instruction)

    def retire(self, address: str) -> None:
        """The shell starts from scratch in a new term."""
        self.instructions.reset(address)

    def append_pending(self, count: int | None = None) -> None:
        """Appends the pending events of the shells."""
        if self.pending and self.is_alive():
            now, self.pending = self.pending[:count], [] if count is None else self.pending[count:]
            self.world.append(now, by_shell=True)

    def append_now(self, address: str, owed: OutgoingEvent) -> None:
        """A shell appends an event at once."""
        self.world.append(self.core.with_headers(address, [owed], self.now), by_shell=True)

    def emit(self, address: str, owed: OutgoingEvent) -> None:
        """A shell emits an event: it is pending until a step appends it, or the process dies."""
        self.pending += self.core.with_headers(address, [owed], self.now)

    @property
    def now(self) -> Time:
        """The time that the clock of the process shows."""
        return self.clock()

    def schedule_after(self, delay: Time, role_address: str, action: Callable[[], None]) -> None:
        """Runs the action at once, or in some later turn: in this world only steps take time."""
        if delay == 0:
            action()
        else:
            self.delayed.append(action)

    def run_delayed(self) -> None:
        """Runs the delayed actions, or some later."""
        if self.delayed and (self.world.draw is None or self.happens(0.5)):
            delayed, self.delayed = self.delayed, []
            for action in delayed:
                action()

    def append_from_shell(self, role_address: str, owed: OutgoingEvent) -> None:
        """A task emits an event."""
        self.emit(role_address, owed)

    @property
    def running(self) -> Mapping[str, Subtask]:
        """The running attempts, and their subtasks."""
        return self.tasks.running()

    def receive_barriers(self) -> None:
        """Tasks receive the barriers in their channels, in order, some of them late."""
        self.tasks.receive_barriers(lambda: self.happens(self.world.task_state.faults.late))

    def report(
        self, attempt: str, state: ExecutionState, failure: str | None = None, *, progress_lost: bool = False
    ) -> None:
        """Ends a running task, which commits a record before."""
        counts = self.behavior.last_counts(attempt)
        assert self.tasks.end(attempt, TaskEnd(0, state, failure, counts, progress_lost))

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
            process_address=f"host-{int(resource_id.rpartition('-')[2]) % 2}:1",
            cause=self._claim(own),
        )
        self.emit(own, owed)

    def _perform(self, address: str, instruction: Instruction) -> None:
        match instruction:
            case _ if isinstance(instruction, MASTER_INSTRUCTIONS):
                shared = self.world.task_state
                fails = isinstance(instruction, CHECKPOINT_INSTRUCTIONS) and self.happens(
                    shared.faults.metadata
                )
                owed = perform(address, instruction, shared.storage, _build_job_graph, storage_fails=fails)
                self.emit(address, owed)
            case MeasureTasks():
                # A step of a test reports what the tasks did.
                self.measurements[address] = instruction
            case StartWorkerProcess():
                self._start_worker(address, instruction)
            case StopWorkerProcess(resource_id=resource_id, cause=cause):
                self.world.workers.pop(resource_id, None)
                self._lost(address, resource_id, "stopped", cause)
            case _:
                self.tasks.perform(address, instruction, self.states[address])

    def _start_worker(self, address: str, instruction: StartWorkerProcess) -> None:
        resource_id, world = instruction.resource_id, self.world
        if self.happens(world.driver_failures):
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

    def happens(self, probability: float) -> bool:
        """Draws whether a fault of this probability happens."""
        draw = self.world.draw
        return draw is not None and probability > 0 and draw.random() < probability

    def _outcome(self, address: str, body: Body, cause: int | None) -> None:
        self.emit(address, OutgoingEvent(address, body, cause))


def _build_job_graph(instruction: BuildJobGraph) -> JobGraph | str:
    if instruction.entry_point.target == "fails":
        return "it raised"
    return graph(instruction.parallelism or 1)


def lines(records: list[Record]) -> list[str]:
    """Returns lines for the message of a failed test."""
    return [
        f"{record.offset:>4} {record.header.sender}@{record.header.sender_epoch} -> {record.header.recipient}: "
        f"{record.body.AVRO_NAME.rpartition('.')[2]} (cause {record.header.cause}, at {record.header.decided_at})"
        for record in records
    ]


def find_owed_events(world: AsyncSimulator) -> Iterator[tuple[str, OutgoingEvent]]:
    """Yields what the roles of all processes require, whether they are due or not."""
    for process in world.processes():
        for address, state in process.states.items():
            for event in world.truth.role(address).decide(state, world.now - world.largest_error):
                yield address, event


__all__ = ["IllegalEvent", "SimulatedProcess", "AsyncSimulator", "lines", "find_owed_events"]
