"""The host: leadership, decisions, shutdown. `integration/test_host.py` checks the same on Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from polling import TIMEOUT_S, wait_until

from tailrace.schemas import resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import ClusterTerminated, ConfigurationChanged, LeaderElected, StateHash
from tailrace.services.core.leadership import LARGEST_STEP, LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.election.leader_election import Grant, StandaloneLeaderElection
from tailrace.services.host.grant_check import ElectedLeaderExists
from tailrace.services.host.host import Host
from tailrace.services.host.host_core import Deposed, HostCore, HostIdentity
from tailrace.services.log import EventLog, LogUnavailable, Tail
from tailrace.services.log.event_log import Concerns, OnUnreadable, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.resource_manager.message_limits import LONGEST
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.task_executor import TaskExecutor

from ..simulated_cluster.cluster import HARDWARE, PROFILE, header

LEADS = ("dispatcher", "resource_manager", "rest_server")
NewLog = Callable[[], EventLog]


@pytest.fixture
def new_log() -> NewLog:
    """Returns another connection to the log of the test."""
    log = MemoryEventLog()
    return lambda: log


@dataclass
class Running:
    """A host in a thread of its own."""

    host: Host
    thread: threading.Thread
    stop: threading.Event
    errors: list[Exception] = field(default_factory=list)

    def join(self) -> list[Exception]:
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive(), "the host does not stop"
        return self.errors


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts hosts, and stops at the end of the test those that still run."""
    started: list[Running] = []

    def run(
        log: EventLog,
        name: str,
        leads: Sequence[str] = LEADS,
        finished: Callable[[Replica], bool] = lambda _: False,
        leaves: Callable[[Replica], bool] = lambda _: False,
        **more: object,
    ) -> Running:
        kinds = [TaskExecutor()] if leads[0].startswith("task_executor") else [ResourceManager()]
        replica = Replica(kinds, only=lambda item: item in leads)  # type: ignore[arg-type]
        options = {"concerns": None, **more}
        host = Host(log, replica, cluster="c", leads=leads, process_address=name, session=name, **options)  # type: ignore[arg-type]
        stop = threading.Event()
        running = Running(host, threading.Thread(target=lambda: go(running, finished, leaves)), stop)
        started.append(running)
        running.thread.start()
        return running

    def go(running: Running, finished: Callable[[Replica], bool], leaves: Callable[[Replica], bool]) -> None:
        try:
            running.host.run(running.stop, {}, finished, leaves)
        except Exception as error:
            running.errors.append(error)

    yield run
    for running in started:
        running.stop.set()
    for running in started:
        running.join()


TIMEOUT_MS = 200
AT_ONCE = ConfigurationChanged(
    configuration={
        "slot.request.timeout": f"{TIMEOUT_MS} ms",
    }
)
REGISTRATION = resource_manager.RegisterTaskExecutor(
    address="here",
    resource_id="te-1",
    data_port=0,
    hardware=HARDWARE,
    number_of_slots=1,
    default_slot_profile=PROFILE,
)
WORKER = "task_executor/te-1"


def everything(log: EventLog) -> list[Record]:
    return [record for batch in read_to_end(log) for record in batch]


def wait_for(log: EventLog, wanted: Callable[[Record], bool], count: int = 1) -> list[Record]:
    """Returns the first `count` such events. Raises AssertionError after a timeout."""
    tail, records = log.tail(0), []
    until = time.monotonic() + TIMEOUT_S
    while len(records) < count and time.monotonic() < until:
        records += [record for record in tail.poll(0.1) if wanted(record)]
    tail.close()
    assert len(records) >= count, [record.body for record in everything(log)]
    return records[:count]


def task_executor_sends(log: EventLog, body: Body, recipient: str, sender: str = WORKER) -> int:
    """Appends the claim and an event of a new process of a TaskExecutor; returns the offset of the event."""
    epoch = len(claims(log, sender)) + 1
    claim = LeaderElected(role=sender, epoch=epoch, address="here", session=str(epoch))
    events = [(EVERYONE, claim), (recipient, body)]
    return log.append([Event(header(sender, to, epoch), body) for to, body in events])[-1]


def registers(log: EventLog) -> int:
    """Appends the registration of a TaskExecutor; returns its offset."""
    return task_executor_sends(log, REGISTRATION, "resource_manager")


def is_answer(record: Record) -> bool:
    return isinstance(record.body, task_executor.TaskExecutorRegistrationSuccess)


def claims(log: EventLog, role: str = "resource_manager") -> list[tuple[int, str]]:
    bodies = [record.body for record in everything(log)]
    return [
        (body.epoch, body.session) for body in bodies if isinstance(body, LeaderElected) and body.role == role
    ]


def test_host_claims_all_its_roles_then_decides(new_log: NewLog, start: Callable[..., Running]) -> None:
    log = new_log()
    request = registers(log)
    running = start(new_log(), "a")
    assert running.host.leading.wait(TIMEOUT_S)
    (answer,) = wait_for(log, is_answer)
    records = everything(log)
    elected = {
        record.offset: record.body.role
        for record in records
        if isinstance(record.body, LeaderElected) and record.header.sender != WORKER
    }
    assert list(elected.values()) == list(LEADS)
    assert answer.offset > max(elected)
    assert (answer.header.sender, answer.header.sender_epoch, answer.header.cause) == (
        "resource_manager",
        1,
        request,
    )
    assert max(elected) <= (answer.header.decided_at or 0) < answer.offset


def test_host_answers_once_and_stops_on_request(new_log: NewLog, start: Callable[..., Running]) -> None:
    log = new_log()
    running = start(new_log(), "a")
    assert running.host.leading.wait(TIMEOUT_S)
    registers(log)
    wait_for(log, is_answer)
    registers(log)
    wait_for(log, is_answer, 2)
    running.stop.set()
    assert running.join() == []
    assert not running.host.leading.is_set()
    assert len([record for record in everything(log) if is_answer(record)]) == 2


def test_successor_takes_next_epoch_and_deposes_predecessor(
    new_log: NewLog, start: Callable[..., Running]
) -> None:
    log = new_log()
    first = start(new_log(), "a")
    assert first.host.leading.wait(TIMEOUT_S)
    registers(log)
    wait_for(log, is_answer)
    second = start(new_log(), "b")
    assert second.host.leading.wait(TIMEOUT_S)
    (error,) = first.join()
    assert isinstance(error, Deposed)
    assert "b leads dispatcher of c since epoch 2" in str(error)
    assert claims(log) == [(1, "a"), (2, "b")]
    registers(log)
    answers = wait_for(log, is_answer, 2)
    assert [answer.header.sender_epoch for answer in answers] == [1, 2]
    assert second.thread.is_alive()


def elected(epoch: int) -> list[Event]:
    """Returns the claims of an elected master."""
    return [
        Event(
            header(role, EVERYONE, epoch=epoch),
            LeaderElected(role=role, epoch=epoch, address="there", session="e", elected_by="zookeeper"),
        )
        for role in LEADS
    ]


def test_master_without_election_does_not_depose_elected_leader(
    new_log: NewLog, start: Callable[..., Running]
) -> None:
    log = new_log()
    log.append(elected(7))
    refused = start(new_log(), "a")
    (error,) = refused.join()
    assert isinstance(error, ElectedLeaderExists)
    assert "there, elected by zookeeper, was the last to lead dispatcher" in str(error)
    assert "\n" not in str(error)
    assert claims(log) == [(7, "e")]
    # Who has a role of its own is not concerned.
    assert start(new_log(), WORKER, (WORKER,), concerns=(WORKER,)).host.leading.wait(TIMEOUT_S)


@pytest.mark.parametrize("how", ["it is told to", "the cluster has ended"])
def test_master_without_election_deposes_elected_leader_if(
    how: str, new_log: NewLog, start: Callable[..., Running]
) -> None:
    log = new_log()
    log.append(elected(7))
    if how == "it is told to":
        after = start(new_log(), "a", abandons_election=True)
    else:
        after = start(new_log(), "a", finished=lambda _: True)
    assert after.host.leading.wait(TIMEOUT_S)
    assert claims(log) == [(7, "e"), (8, "a")]
    # Nor is anybody else who is not elected refused then.
    after.stop.set()
    after.join()
    assert start(new_log(), "b").host.leading.wait(TIMEOUT_S)


def test_successor_sends_events_that_predecessor_owed(new_log: NewLog, start: Callable[..., Running]) -> None:
    log = new_log()
    first = start(new_log(), "a")
    assert first.host.leading.wait(TIMEOUT_S)
    first.stop.set()
    first.join()
    request = registers(log)
    start(new_log(), "b")
    (answer,) = wait_for(log, is_answer)
    assert (answer.header.sender_epoch, answer.header.cause) == (2, request)


@pytest.mark.parametrize("attempt", range(3))
def test_exactly_one_of_racing_hosts_leads(
    new_log: NewLog, start: Callable[..., Running], attempt: int
) -> None:
    log = new_log()
    together = threading.Barrier(3)
    hosts = [start(Racing(new_log(), together), name) for name in "abc"]
    until = time.monotonic() + TIMEOUT_S
    while sum(host.thread.is_alive() for host in hosts) > 1 and time.monotonic() < until:
        registers(log)
        time.sleep(0.01)
    (leader,) = [host for host in hosts if host.thread.is_alive()]
    assert leader.host.leading.wait(TIMEOUT_S)
    for loser in hosts:
        if loser is not leader:
            (error,) = loser.join()
            assert isinstance(error, Deposed)
    for role in LEADS:
        assert _effective(claims(log, role))[-1][1] == leader.host.session
    records = [record for record in everything(log) if is_answer(record)]
    epochs = [record.header.sender_epoch for record in records if not _fenced(log, record)]
    assert epochs == sorted(epochs)


@given(st.permutations([0] * len(LEADS) + [1] * len(LEADS)))
def test_interleaved_claims_leave_one_leader(order: list[int]) -> None:
    """Kafka may put an append of one process between the claims of another one."""
    records: list[Record] = []
    cores = [HostCore(Replica([ResourceManager()]), HostIdentity("c", LEADS, name, name)) for name in "ab"]
    for core in cores:
        core.start(0)
    positions, deposed = [0, 0], list[int]()
    for now in range(1, 10):
        claims: dict[int, list[Event]] = {}
        ready = {}
        for index, core in enumerate(cores):
            batch, positions[index] = records[positions[index] :], len(records)
            if index in deposed:
                continue
            try:
                ready[index] = core.step(batch, now)
            except Deposed:
                deposed.append(index)
            else:
                claims[index] = list(ready[index].append)
        appended: dict[int, list[int]] = {0: [], 1: []}
        # The first claims race; later ones come one after the other.
        for index in order if now == 1 else sorted(order):
            if claims.get(index):
                event = claims[index].pop(0)
                appended[index].append(len(records))
                records.append(Record(len(records), event.header, event.body))
        for index, done in ready.items():
            cores[index].advance(done, appended[index])
    leading = [index for index, core in enumerate(cores) if index not in deposed and core.is_leading]
    assert len(leading) == len(deposed) == 1


def _effective(all_claims: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Returns the claims with a higher epoch than all before."""
    effective: list[tuple[int, str]] = []
    for claim in all_claims:
        if not effective or claim[0] > effective[-1][0]:
            effective.append(claim)
    return effective


def _fenced(log: EventLog, record: Record) -> bool:
    epoch = 0
    for entry in everything(log):
        if entry.offset >= record.offset:
            break
        if isinstance(entry.body, LeaderElected) and entry.body.role == record.header.sender:
            epoch = max(epoch, entry.body.epoch)
    return record.header.sender_epoch != epoch


def test_host_decides_nothing_before_its_claims_are_read_back(start: Callable[..., Running]) -> None:
    log = MemoryEventLog()
    held = Held(log)
    running = start(held, "a")
    assert running.host.leading.wait(TIMEOUT_S)
    held.back_to = log.end()
    registers(log)
    held.back_to = log.end()
    wait_for(log, is_answer)
    # Its answer lies in the log, but it is not shown it, nor what others say behind it.
    registers(log)
    held.polled.clear()
    assert held.polled.wait(TIMEOUT_S)
    assert held.polled_again()
    assert len([record for record in everything(log) if is_answer(record)]) == 1
    held.back_to = None
    wait_for(log, is_answer, 2)


def test_deadline_wakes_host(new_log: NewLog, start: Callable[..., Running]) -> None:
    log = new_log()
    running = start(new_log(), "a")
    assert running.host.leading.wait(TIMEOUT_S)
    request = resource_manager.RequestSlot(job_id="j", allocation_id="x", resource_profile=None)
    now = time.time_ns() // 1000
    sealed = header("job_master/j", "resource_manager", epoch=1, time=now)
    log.append([Event(header("dispatcher", EVERYONE, epoch=1, time=now), AT_ONCE), Event(sealed, request)])
    (failed,) = wait_for(log, lambda record: record.body.AVRO_NAME.endswith("SlotAllocationFailed"))
    assert failed.header.time >= now + TIMEOUT_MS * 1000
    assert "the job wants 1, 0 are free" in failed.body.reason  # type: ignore[attr-defined]


def test_new_illegal_event_is_logged(new_log: NewLog) -> None:
    log, reports = new_log(), list[str]()

    def register_with_endless_address(name: str) -> None:
        endless = replace(REGISTRATION, resource_id=name, address="x" * (LONGEST + 1))
        task_executor_sends(log, endless, "resource_manager", f"task_executor/{name}")

    register_with_endless_address("old")
    replica = Replica(
        [ResourceManager()], on_illegal=lambda error, _: reports.append(error.record.header.sender)
    )
    host = Host(log, replica, cluster="c", leads=LEADS, process_address="a", session="a")
    stop = threading.Event()
    thread = threading.Thread(target=host.run, args=(stop, {}))
    thread.start()
    try:
        assert host.leading.wait(TIMEOUT_S)
        register_with_endless_address("new")
        wait_until(lambda: reports, "word of what is illegal")
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
    assert reports == ["task_executor/new"]


def test_error_in_other_thread_ends_host(new_log: NewLog, start: Callable[..., Running]) -> None:
    running = start(new_log(), "a")
    assert running.host.leading.wait(TIMEOUT_S)
    running.host.fail(RuntimeError("the reader is gone"))
    (error,) = running.join()
    assert str(error) == "the reader is gone"


def test_unwritable_event_of_shell_ends_host(start: Callable[..., Running]) -> None:
    log = MemoryEventLog()
    running = start(log, "a")
    assert running.host.leading.wait(TIMEOUT_S)
    log.close()
    running.host.emit("resource_manager", OutgoingEvent("resource_manager", REGISTRATION, None))
    (error,) = running.join()
    assert isinstance(error, LogUnavailable)


def test_event_of_shell_has_epoch_of_its_role(start: Callable[..., Running]) -> None:
    log = MemoryEventLog()
    running = start(log, WORKER, (WORKER,), concerns=(WORKER,))
    assert running.host.leading.wait(TIMEOUT_S)
    running.host.emit(WORKER, OutgoingEvent("resource_manager", REGISTRATION, None))
    (entry,) = wait_for(log, lambda record: record.body == REGISTRATION)
    assert (entry.header.sender, entry.header.sender_epoch) == (WORKER, 1)


class Racing:
    """A log whose readers learn its end together, so that all claim the same epoch."""

    def __init__(self, log: EventLog, together: threading.Barrier) -> None:
        self._log, self._together = log, together
        self.topic = log.topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        if isinstance(events[0].body, LeaderElected) and events[0].body.epoch == 1:
            self._together.wait(TIMEOUT_S)
        return self._log.append(events, most_bytes)

    def follow(self, leadership: LeadershipState) -> None:
        self._log.follow(leadership)

    def end(self) -> int:
        return self._log.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        return self._log.tail(start, concerns=concerns, on_unreadable=on_unreadable)

    def close(self) -> None:
        self._log.close()


class Held:
    """A log that shows its readers nothing from `back_to` on."""

    def __init__(self, log: MemoryEventLog) -> None:
        self._log = log
        self.topic = log.topic
        self.back_to: int | None = None
        self.polled = threading.Event()

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        return self._log.append(events, most_bytes)

    def follow(self, leadership: LeadershipState) -> None:
        self._log.follow(leadership)

    def end(self) -> int:
        return self._log.end()

    def polled_again(self) -> bool:
        """Returns whether the reader has polled once more."""
        self.polled.clear()
        return self.polled.wait(TIMEOUT_S)

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        return HeldTail(self, self._log, start)

    def close(self) -> None:
        self._log.close()


class HeldTail:
    def __init__(self, held: Held, log: MemoryEventLog, start: int) -> None:
        self._held, self._log, self.position = held, log, start

    def poll(self, timeout_s: float) -> list[Record]:
        self._held.polled.set()
        end = self._held.back_to
        tail = self._log.tail(self.position)
        records = [record for record in tail.poll(min(timeout_s, 0.02)) if end is None or record.offset < end]
        if records:
            self.position = records[-1].offset + 1
        return records

    def close(self) -> None:
        pass


class NotElected(StandaloneLeaderElection):
    """The LeaderElection of a process that is never elected."""

    elected_by = "zookeeper"

    def join(self) -> None:
        pass


def test_standby_reports_states_and_leads_nothing(new_log: NewLog, start: Callable[..., Running]) -> None:
    log = new_log()
    registers(log)
    standby = start(log, "b", election=NotElected())
    assert wait_until(lambda: standby.host.position >= 0, "it has read the log")
    body = StateHash(offset=0, hashes={"dispatcher": "1"}, code_fingerprint="2")
    standby.host.emit_as_standby(OutgoingEvent(EVERYONE, body, None))
    (entry,) = wait_for(log, lambda record: record.body == body)
    assert (entry.header.sender, entry.header.sender_epoch) == ("standby/b", 0)
    assert not standby.host.leading.is_set()
    records: list[Record] = []

    class Watching:
        def on_position(self, offset: int) -> int:
            return 1 << 60

        def on_event(self, record: Record) -> None:
            records.append(record)

    replica = Replica([ResourceManager()])
    replica.watch(Watching())
    for record in everything(log):
        replica.apply(record)
    assert [record.body for record in records] == [body]


class ElectedAt(StandaloneLeaderElection):
    """The LeaderElection of a standby that is elected when its host has folded the log up to an offset."""

    elected_by = "zookeeper"

    def __init__(self, offset: int) -> None:
        super().__init__()
        self._offset = offset
        self.host: Host | None = None

    @property
    def grant(self) -> Grant | None:
        has_read = self.host is not None and self.host._replica.offset >= self._offset
        return Grant(LARGEST_STEP) if has_read else None


def has_ended(replica: Replica) -> bool:
    state = replica.states.get("resource_manager")
    return isinstance(state, ResourceManagerState) and state.ending is not None and state.ending.is_over


@pytest.mark.parametrize("when", ["before it reads the end", "when it reads the end"])
def test_standby_that_is_elected_at_end_of_cluster_does_not_start_it_again(
    when: str, start: Callable[..., Running]
) -> None:
    log = MemoryEventLog()
    log.append(elected(1))
    held = Held(log)
    first = held.back_to = log.end()
    election = ElectedAt(first if when == "before it reads the end" else first + 1)
    standby = start(held, "b", finished=has_ended, election=election)
    election.host = standby.host
    assert wait_until(lambda: standby.host.position >= 0, "it has read the log")
    request, end = resource_manager.ShutDownCluster(reason="r"), ClusterTerminated(reason="r")
    log.append(
        [
            Event(header("dispatcher", "resource_manager", epoch=1), request),
            Event(header("resource_manager", EVERYONE, epoch=1), end),
        ]
    )
    if when == "before it reads the end":
        held.back_to = first + 1
        wait_for(log, lambda record: isinstance(record.body, LeaderElected) and record.body.session == "b")
    held.back_to = None
    assert standby.join() == []
    replica = Replica([ResourceManager()])
    for record in everything(log):
        replica.apply(record)
    assert has_ended(replica)
    assert start(log, "c", finished=has_ended).host.leading.wait(TIMEOUT_S)


def test_process_that_only_leaves_claims_nothing(start: Callable[..., Running]) -> None:
    log = MemoryEventLog()
    log.append(elected(1))
    assert start(log, "b", finished=has_ended, leaves=lambda _: True).join() == []
    assert len(everything(log)) == len(elected(1))


class Lease(StandaloneLeaderElection):
    """A LeaderElection that a test suspends."""

    is_suspended = False


def test_host_without_lease_is_not_current(new_log: NewLog) -> None:
    lease = Lease()
    replica = Replica([ResourceManager()])
    host = Host(new_log(), replica, cluster="c", leads=(), process_address="p", session="s", election=lease)
    assert host.is_current
    lease.is_suspended = True
    assert not host.is_current
    lease.is_suspended = False
    host._iterated_at -= 60
    assert not host.is_current
    host.close()
