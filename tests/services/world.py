"""A cluster of processes that see the log at different times: what `simulation` leaves out.

Each process folds the log at its own pace into its own replica, decides only when its own last append has come back,
as `services.host.Host` does, and may die between any two events: also with only some of what it owed appended. A
jobmanager that was deposed goes on talking until it reads so. Shells are simulated: what they have to say is kept in
`unsaid` until a step says it, and dies with the process, as running tasks do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tailrace.schemas import dispatcher, job_master, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.states import EXECUTION_ENDS, JOB_ENDS
from tailrace.schemas.types import EntryPoint, ExecutionState, Header, Origin
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.dispatcher.state import Phase
from tailrace.services.job_master.instructions import CreateChannels, DeleteChannels
from tailrace.services.job_master.slot_pool import OWING
from tailrace.services.job_master.state import JobMasterState, Progress, SlotStep
from tailrace.services.replica import Replica
from tailrace.services.resource_manager.slot_manager import SlotManager, SlotState
from tailrace.services.roles import IllegalEvent, Instruction, Owed, kind_of, seal
from tailrace.services.task_executor.instructions import RunTasks, StopTask
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from .simulation import HARDWARE, PROFILE, SECOND, graph, new_replica

MASTER_ROLES = ("dispatcher", "resource_manager", "job_master")


class World:
    """The log, the clock, and the processes that are alive. `truth` has folded all of the log."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.now = 1_000 * SECOND
        self.master: Process | None = None
        self.deposed: list[Process] = []
        self.workers: dict[str, Process] = {}
        self.illegal: list[str] = []
        self.truth = new_replica(on_illegal=lambda error, _: self.illegal.append(str(error)))
        self.submitted = 0
        self.sessions = 0

    def append(self, events: list[Event]) -> None:
        """At the end of the log."""
        for event in events:
            record = Record(len(self.log), event.header, event.body)
            self.log.append(record)
            self.truth.apply(record)

    def processes(self) -> list[Process]:
        """All that are alive, deposed ones included."""
        masters = [self.master] if self.master else []
        return [*masters, *self.deposed, *self.workers.values()]

    def start_master(self) -> None:
        """Another jobmanager; one that is alive does not know yet that it was deposed."""
        if self.master is not None:
            self.deposed.append(self.master)
        self.master = Process(self, MASTER_ROLES)

    def kill_master(self) -> None:
        self.master = None

    def start_worker(self, resource_id: str, slots: int) -> None:
        """A TaskExecutor process, the first or the next under its resource id; an older one is dead."""
        self.workers[resource_id] = Process(self, (f"task_executor/{resource_id}",), slots=slots)

    def stop_worker(self, resource_id: str) -> None:
        """SIGTERM: it says that it leaves. Its tasks end with it."""
        process = self.workers.pop(resource_id)
        if process.registered:
            body = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason="asked to stop")
            process.say(f"task_executor/{resource_id}", Owed("resource_manager", body, None))

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
        self.append([Event(header, body)] * admitted)
        return offset

    def turn(self) -> None:
        """Every process that is alive goes once through its loop."""
        for process in self.processes():
            process.fold()
            process.decide()
            process.speak()

    def settle(self, limit: int = 2_000) -> None:
        """Every process that is alive goes on until nobody has anything to do. Raises AssertionError."""
        for _ in range(limit):
            before = len(self.log)
            self.turn()
            busy = any(process.position < len(self.log) or process.unsaid for process in self.processes())
            if len(self.log) == before and not busy:
                return
        raise AssertionError("the roles talk without end:\n" + "\n".join(lines(self.log[-30:])))

    def tick(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


@dataclass
class Process:
    """One process: what it leads, how far it has read, what runs in it."""

    world: World
    leads: tuple[str, ...]
    slots: int = 0
    replica: Replica = field(init=False)
    position: int = 0
    appended_to: int = -1
    said: int = 0
    registered: bool = False
    session: str = ""
    epochs: dict[str, int] = field(default_factory=dict)
    begun: set[tuple[str, str]] = field(default_factory=set)
    unsaid: list[tuple[str, Owed]] = field(default_factory=list)
    running: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """Execution -> (job, vertex, subtask)."""
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        only = None if kind_of(self.leads[0]) != "task_executor" else self.leads[0]
        served = (lambda each: each == only) if only else (lambda each: kind_of(each) != "task_executor")
        self.replica = new_replica(only=served, on_illegal=lambda *_: None)
        self.world.sessions += 1
        self.session = f"session {self.world.sessions}"
        self.fold()
        for role in self.leads:
            self.epochs[role] = self.replica.leadership.epoch(role) + 1
            body = LeaderElected(role=role, epoch=self.epochs[role], address="sim", session=self.session)
            self.say(role, Owed(EVERYONE, body, None))
        self.fold()

    def fold(self, count: int | None = None) -> None:
        """Reads on, one event at a time; a deposed process ends where it reads of it."""
        end = len(self.world.log) if count is None else min(len(self.world.log), self.position + count)
        while self.position < end:
            record = self.world.log[self.position]
            self.position += 1
            self.replica.apply(record)
            body = record.body
            if isinstance(body, LeaderElected) and body.epoch > self.epochs.get(body.role, body.epoch):
                self.end()
                return

    def end(self) -> None:
        """The process is gone."""
        if self in self.world.deposed:
            self.world.deposed.remove(self)
        elif self.world.master is self:
            self.world.master = None
        for resource_id, process in list(self.world.workers.items()):
            if process is self:
                del self.world.workers[resource_id]

    def owed(self) -> list[tuple[str, Owed]]:
        """What its roles owe at its position."""
        return [
            (address, each)
            for address, state in self.replica.states.items()
            for each in self.replica.role(address).decide(state, self.world.now)
        ]

    def decide(self, only: int | None = None) -> None:
        """One turn of the host's loop. With `only`, the process dies after appending so many events."""
        if self not in self.world.processes() or self.position <= self.appended_to:
            return
        owed = self.owed()
        decided_at = self.position - 1
        self._append(owed if only is None else owed[:only], decided_at)
        if only is not None:
            self.end()
            return
        for address, state in list(self.replica.states.items()):
            for instruction in self.replica.role(address).instructions(state):
                if (address, instruction.key) not in self.begun and self._ready():
                    self.begun.add((address, instruction.key))
                    self._obey(address, instruction)
        if self.leads[0] in self.replica.states and not self.registered:
            self._register()
        state = self.replica.states.get(self.leads[0])
        if isinstance(state, TaskExecutorState) and state.left:
            self.end()

    def speak(self, count: int | None = None) -> None:
        """The shells say what they have to say."""
        if self in self.world.processes():
            now, self.unsaid = self.unsaid[:count], [] if count is None else self.unsaid[count:]
            self._append(now, self.position - 1, reads_back=False)

    def say(self, address: str, owed: Owed) -> None:
        self._append([(address, owed)], self.position - 1, reads_back=False)

    def report(self, attempt: str, state: ExecutionState, failure: str | None = None) -> None:
        """A task that runs here changes its state."""
        job_id, _, _ = self.running[attempt]
        if state in EXECUTION_ENDS:
            del self.running[attempt]
            self.ended.add(attempt)
        self._report(job_id, attempt, state, failure)

    def _report(self, job_id: str, attempt: str, state: ExecutionState, failure: str | None = None) -> None:
        body = job_master.UpdateTaskExecutionState(
            job_id=job_id, execution_attempt_id=attempt, execution_state=state, failure=failure
        )
        self.unsaid.append((self.leads[0], Owed(f"job_master/{job_id}", body, None)))

    def _append(self, owed: list[tuple[str, Owed]], decided_at: int, *, reads_back: bool = True) -> None:
        for address, each in owed:
            epoch = self.epochs[address if address in self.epochs else kind_of(address)]
            self.world.append(
                seal(
                    [each],
                    cluster="sim",
                    sender=address,
                    epoch=epoch,
                    decided_at=decided_at,
                    now=self.world.now,
                    count=self.said,
                )
            )
            self.said += 1
            if reads_back:
                self.appended_to = len(self.world.log) - 1

    def _ready(self) -> bool:
        return self.registered or self.slots == 0

    def _register(self) -> None:
        if self.slots == 0:
            return
        self.registered = True
        resource_id = self.leads[0].partition("/")[2]
        body = resource_manager.RegisterTaskExecutor(
            address="sim",
            resource_id=resource_id,
            data_port=0,
            hardware=HARDWARE,
            number_of_slots=self.slots,
            default_slot_profile=PROFILE,
        )
        self.unsaid.append((self.leads[0], Owed("resource_manager", body, None)))

    def _obey(self, address: str, instruction: Instruction) -> None:
        match instruction:
            case CreateChannels(job_id=job_id):
                self._outcome(address, job_master.ChannelsCreated(job_id=job_id))
            case DeleteChannels(job_id=job_id):
                self._outcome(address, job_master.ChannelsDeleted(job_id=job_id))
            case BuildJobGraph(job_id=job_id, entry_point=EntryPoint(target="fails")):
                self._outcome(address, dispatcher.JobGraphFailed(job_id=job_id, reason="it raised"))
            case BuildJobGraph(job_id=job_id, parallelism=parallelism):
                built = dispatcher.JobGraphBuilt(job_id=job_id, job_graph=graph(parallelism or 1))
                self._outcome(address, built)
            case RunTasks(job_id=job_id, tasks=tasks):
                for task in tasks:
                    attempt = task.execution_attempt_id
                    if attempt in self.running or attempt in self.ended:
                        raise AssertionError(f"{address} is told to run {attempt} twice")
                    self.running[attempt] = (job_id, task.vertex_id, task.subtask_index)
                    self.report(attempt, ExecutionState.RUNNING)
            case StopTask(execution_attempt_id=attempt, job_id=job_id):
                if attempt not in self.ended:
                    self.running.pop(attempt, None)
                    self.ended.add(attempt)
                    self._report(job_id, attempt, ExecutionState.CANCELED)
            case _:
                raise AssertionError(f"the simulation does not know {instruction}")

    def _outcome(self, address: str, body: Body) -> None:
        self.unsaid.append((address, Owed(address, body, None)))


def lines(records: list[Record]) -> list[str]:
    """For the message of a failed test."""
    return [
        f"{record.offset:>4} {record.header.sender}@{record.header.sender_epoch} -> {record.header.recipient}: "
        f"{record.body.AVRO_NAME.rpartition('.')[2]} (cause {record.header.cause}, at {record.header.decided_at})"
        for record in records
    ]


def check_always(world: World) -> None:
    """What holds after every event. Raises AssertionError."""
    check_indexes(world.truth)
    running = Counter(task for process in world.processes() for task in process.running.values())
    assert not [task for task, count in running.items() if count > 1], f"{running} run more than once"
    active = Counter(
        slot.allocation_id
        for state in _states(world.truth, TaskExecutorState)
        for slot in state.slots.slots.values()
        if slot.state is TaskSlotState.ACTIVE
    )
    assert not [each for each, count in active.items() if count > 1], "an allocation holds two slots"
    for process in world.workers.values():
        for attempt in process.running:
            task = process.replica.states[process.leads[0]].tasks[attempt]
            slot = process.replica.states[process.leads[0]].slots.by_allocation(task.allocation_id)
            assert slot is not None, f"{attempt} runs in no slot"
            assert slot.job_id == task.job_id, f"{attempt} runs in another job's slot"


def check_settled(world: World) -> None:
    """What holds when nobody has anything to do any more. Raises AssertionError."""
    for address, owed in _owed(world):
        raise AssertionError(f"{address} owes {owed.body} still")
    for process in world.processes():
        for address, state in process.replica.states.items():
            assert state == world.truth.states[address], f"{address} differs from its replay"
    if world.master is None:
        return
    for state in _states(world.truth, JobMasterState):
        if state.status in JOB_ENDS and state.terminal is Progress.SAID:
            instructions = world.truth.role(f"job_master/{state.job_id}").instructions(state)
            assert not instructions, f"job {state.job_id} has ended, but demands {instructions}"
    jobs = world.truth.states["dispatcher"].jobs.values()
    assert not [job for job in jobs if job.phase in (Phase.BUILDING, Phase.ADMITTED, Phase.ACCEPTED)]
    assert not world.truth.states["dispatcher"].refusals


def check_idle(world: World) -> None:
    """What holds when all jobs have ended and all TaskExecutors are up: nothing is held. Raises AssertionError."""
    for job in world.truth.states["dispatcher"].jobs.values():
        assert job.phase is Phase.ENDED, f"{job.job_id} has not ended but is {job.phase}"
    slots: SlotManager = world.truth.states["resource_manager"].slots
    registered = {resource_id for resource_id, _ in slots.slots}
    for key, slot in slots.slots.items():
        assert slot.state is SlotState.FREE, f"the ResourceManager holds {key}: {slot}"
    assert not slots.requests, f"requests are left over: {slots.requests}"
    for state in _states(world.truth, TaskExecutorState):
        for slot in state.slots.slots.values():
            if state.resource_id in world.workers:
                assert slot.state is TaskSlotState.FREE, f"{state.resource_id} holds {slot}"
        if state.resource_id in world.workers:
            assert state.resource_id in registered, f"{state.resource_id} is not registered"
            assert not state.jobs, f"{state.resource_id} is connected to {list(state.jobs)}"
            assert not state.tasks, f"{state.resource_id} remembers {list(state.tasks)}"
    for process in world.processes():
        assert not process.running, f"{process.leads} still runs {process.running}"


def check_indexes(replica: Replica) -> None:
    """Whatever is kept twice agrees. Raises AssertionError."""
    for state in _states(replica, TaskExecutorState):
        table = state.slots
        held = {slot.allocation_id: number for number, slot in table.slots.items() if slot.allocation_id}
        assert dict(table.allocated) == held
        for job_id, allocations in table.per_job.items():
            assert allocations == {
                slot.allocation_id for slot in table.slots.values() if slot.job_id == job_id
            }
        for slot in table.slots.values():
            assert (slot.state is TaskSlotState.FREE) == (slot.allocation_id is None)
            assert slot.allocation_id is not None or not slot.tasks
            for attempt in slot.tasks:
                assert state.tasks[attempt].state not in EXECUTION_ENDS
    for state in _states(replica, JobMasterState):
        assert state.unfinished == sum(each.state not in EXECUTION_ENDS for each in state.executions.values())
        owing = {each.allocation_id for each in state.slots.values() if each.step in OWING}
        assert set(state.slots_owing) == owing
        if state.status not in JOB_ENDS and state.status.value in ("CREATED", "RUNNING"):
            missing = sum(each.step is not SlotStep.ALLOCATED for each in state.slots.values())
            assert state.missing_slots == missing
    manager = replica.states.get("resource_manager")
    if manager is not None:
        slots: SlotManager = manager.slots
        free: dict[str, set[int]] = {}
        for (resource_id, number), slot in slots.slots.items():
            if slot.state is SlotState.FREE:
                free.setdefault(resource_id, set()).add(number)
        assert {each: set(numbers) for each, numbers in slots.free.items()} == free
        assert Counter(slots.unfulfilled.values()) == dict(slots.times)
        assert set(slots.waiting) == {
            each.allocation_id for each in slots.requests.values() if each.slot is None
        }


def _states(replica: Replica, kind: type[Any]) -> Iterator[Any]:
    return (state for state in list(replica.states.values()) if isinstance(state, kind))


def _owed(world: World) -> Iterator[tuple[str, Owed]]:
    for process in world.processes():
        yield from process.owed()
        for address, state in process.replica.states.items():
            deadline = process.replica.role(address).deadline(state)
            assert deadline is None or deadline > world.now, f"{address} has missed a deadline"


__all__ = ["IllegalEvent", "Process", "World", "check_always", "check_idle", "check_settled", "lines"]
