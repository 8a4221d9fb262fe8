"""The host: who leads, when it decides, how it stops. `integration/test_host.py` says the same of it on Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.schemas import client, resource_manager, task_executor
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import ConfigurationChanged, LeaderElected, StateHash
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.election.leader_election import StandaloneLeaderElection
from tailrace.services.host.election_participant import ElectedLeaderExists
from tailrace.services.host.host import Host
from tailrace.services.host.host_core import Deposed
from tailrace.services.log import EventLog, LogUnavailable, Tail
from tailrace.services.log.event_log import Concerns, OnUnreadable, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.task_executor import TaskExecutor

from ..simulated_cluster.cluster import HARDWARE, PROFILE, header

LEADS = ("dispatcher", "resource_manager", "rest_server")
NewLog = Callable[[], EventLog]


@pytest.fixture
def new_log() -> NewLog:
    """Another connection to the one log of the test."""
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
    """Starts hosts, and stops those that still run when the test is over."""
    started: list[Running] = []

    def run(
        log: EventLog,
        name: str,
        leads: Sequence[str] = LEADS,
        finished: Callable[[Replica], bool] = lambda _: False,
        **more: object,
    ) -> Running:
        kinds = [TaskExecutor()] if leads[0].startswith("task_executor") else [ResourceManager()]
        replica = Replica(kinds, only=lambda each: each in leads)  # type: ignore[arg-type]
        options = {"concerns": None, **more}
        host = Host(log, replica, cluster="c", leads=leads, process_address=name, session=name, **options)  # type: ignore[arg-type]
        stop = threading.Event()
        running = Running(host, threading.Thread(target=lambda: go(running, finished)), stop)
        started.append(running)
        running.thread.start()
        return running

    def go(running: Running, finished: Callable[[Replica], bool]) -> None:
        try:
            running.host.run(running.stop, {}, finished)
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
    """The first `count` such events. Raises AssertionError when they don't come."""
    tail, found = log.tail(0), []
    until = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < until:
        found += [record for record in tail.poll(0.1) if wanted(record)]
    tail.close()
    assert len(found) >= count, [record.body for record in everything(log)]
    return found[:count]


def registers(log: EventLog) -> int:
    """A TaskExecutor that nobody leads asks for its registration."""
    return log.append([Event(header(WORKER, "resource_manager"), REGISTRATION)])[0]


def is_answer(record: Record) -> bool:
    return isinstance(record.body, task_executor.TaskExecutorRegistrationSuccess)


def claims(log: EventLog, role: str = "resource_manager") -> list[tuple[int, str]]:
    bodies = [record.body for record in everything(log)]
    return [
        (body.epoch, body.session) for body in bodies if isinstance(body, LeaderElected) and body.role == role
    ]


def test_it_takes_the_lead_of_all_its_roles_then_decides(
    new_log: NewLog, start: Callable[..., Running]
) -> None:
    log = new_log()
    asked = registers(log)
    running = start(new_log(), "a")
    assert running.host.leading.wait(TIMEOUT_S)
    (answer,) = wait_for(log, is_answer)
    records = everything(log)
    elected = [record.offset for record in records if isinstance(record.body, LeaderElected)]
    assert [record.body.role for record in records if isinstance(record.body, LeaderElected)] == list(LEADS)
    assert answer.offset > max(elected)
    assert (answer.header.sender, answer.header.sender_epoch, answer.header.cause) == (
        "resource_manager",
        1,
        asked,
    )
    assert max(elected) <= (answer.header.decided_at or 0) < answer.offset


def test_it_answers_once_and_stops_when_it_is_told_to(new_log: NewLog, start: Callable[..., Running]) -> None:
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


def test_a_successor_takes_the_next_epoch_and_deposes_the_one_before(
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
    """Claims of a master that was elected."""
    return [
        Event(
            header(role, EVERYONE, epoch=epoch),
            LeaderElected(role=role, epoch=epoch, address="there", session="e", elected_by="zookeeper"),
        )
        for role in LEADS
    ]


def test_whom_nobody_elects_does_not_take_the_lead_from_the_elected(
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
def test_it_takes_the_lead_from_the_elected_where(
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


def test_a_successor_says_what_its_predecessor_still_owed(
    new_log: NewLog, start: Callable[..., Running]
) -> None:
    log = new_log()
    first = start(new_log(), "a")
    assert first.host.leading.wait(TIMEOUT_S)
    first.stop.set()
    first.join()
    asked = registers(log)
    start(new_log(), "b")
    (answer,) = wait_for(log, is_answer)
    assert (answer.header.sender_epoch, answer.header.cause) == (2, asked)


@pytest.mark.parametrize("attempt", range(3))
def test_of_hosts_that_race_exactly_one_leads_in_the_end(
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
    said = [record for record in everything(log) if is_answer(record)]
    epochs = [record.header.sender_epoch for record in said if not _fenced(log, record)]
    assert epochs == sorted(epochs)


def _effective(all_claims: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Those that came with a higher epoch than any before."""
    effective: list[tuple[int, str]] = []
    for claim in all_claims:
        if not effective or claim[0] > effective[-1][0]:
            effective.append(claim)
    return effective


def _fenced(log: EventLog, record: Record) -> bool:
    epoch = 0
    for each in everything(log):
        if each.offset >= record.offset:
            break
        if isinstance(each.body, LeaderElected) and each.body.role == record.header.sender:
            epoch = max(epoch, each.body.epoch)
    return record.header.sender_epoch != epoch


def test_it_says_nothing_before_its_own_words_have_come_back(start: Callable[..., Running]) -> None:
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


def test_a_deadline_wakes_it_up(new_log: NewLog, start: Callable[..., Running]) -> None:
    log = new_log()
    running = start(new_log(), "a")
    assert running.host.leading.wait(TIMEOUT_S)
    request = resource_manager.RequestSlot(job_id="j", allocation_id="x", resource_profile=None)
    now = time.time_ns() // 1000
    sealed = header("job_master/j", "resource_manager", epoch=1, time=now)
    log.append([Event(header("client/x", EVERYONE, time=now), AT_ONCE), Event(sealed, request)])
    (failed,) = wait_for(log, lambda record: record.body.AVRO_NAME.endswith("SlotAllocationFailed"))
    assert failed.header.time >= now + TIMEOUT_MS * 1000
    assert "the job wants 1, 0 are free" in failed.body.reason  # type: ignore[attr-defined]


def test_people_are_told_of_an_illegal_event_when_it_is_new(new_log: NewLog) -> None:
    log, told = new_log(), list[str]()

    def say_nonsense(name: str) -> None:
        log.append(
            [Event(header(f"client/{name}", "resource_manager"), client.JobAccepted(job_id=name, name=name))]
        )

    say_nonsense("old")
    replica = Replica(
        [ResourceManager()], on_illegal=lambda error, _: told.append(error.record.header.sender)
    )
    host = Host(log, replica, cluster="c", leads=LEADS, process_address="a", session="a")
    stop = threading.Event()
    thread = threading.Thread(target=host.run, args=(stop, {}))
    thread.start()
    try:
        assert host.leading.wait(TIMEOUT_S)
        say_nonsense("new")
        wait_until(lambda: told, "word of what is illegal")
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
    assert told == ["client/new"]


def test_what_fails_in_another_thread_ends_it(new_log: NewLog, start: Callable[..., Running]) -> None:
    running = start(new_log(), "a")
    assert running.host.leading.wait(TIMEOUT_S)
    running.host.fail(RuntimeError("the reader is gone"))
    (error,) = running.join()
    assert str(error) == "the reader is gone"


def test_what_a_shell_cannot_say_ends_it(start: Callable[..., Running]) -> None:
    log = MemoryEventLog()
    running = start(log, "a")
    assert running.host.leading.wait(TIMEOUT_S)
    log.close()
    running.host.emit("resource_manager", OutgoingEvent("resource_manager", REGISTRATION, None))
    (error,) = running.join()
    assert isinstance(error, LogUnavailable)


def test_what_a_shell_says_is_said_under_the_epoch_of_its_role(start: Callable[..., Running]) -> None:
    log = MemoryEventLog()
    running = start(log, WORKER, (WORKER,), concerns=(WORKER,))
    assert running.host.leading.wait(TIMEOUT_S)
    running.host.emit(WORKER, OutgoingEvent("resource_manager", REGISTRATION, None))
    (said,) = wait_for(log, lambda record: record.body == REGISTRATION)
    assert (said.header.sender, said.header.sender_epoch) == (WORKER, 1)


class Racing:
    """A log whose readers learn its end together, so that all claim the same epoch."""

    def __init__(self, log: EventLog, together: threading.Barrier) -> None:
        self._log, self._together = log, together
        self.topic = log.topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        if isinstance(events[0].body, LeaderElected) and events[0].body.epoch == 1:
            self._together.wait(TIMEOUT_S)
        return self._log.append(events, most_bytes)

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

    def end(self) -> int:
        return self._log.end()

    def polled_again(self) -> bool:
        """Whether the reader went round once more."""
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

    def poll(self, timeout: float) -> list[Record]:
        self._held.polled.set()
        end = self._held.back_to
        tail = self._log.tail(self.position)
        records = [each for each in tail.poll(min(timeout, 0.02)) if end is None or each.offset < end]
        if records:
            self.position = records[-1].offset + 1
        return records

    def close(self) -> None:
        pass


class NotElected(StandaloneLeaderElection):
    """Mandates of a process that is never elected."""

    elected_by = "zookeeper"

    def grants(self) -> Mapping[str, int | None]:
        return _NOTHING


_NOTHING: Mapping[str, int | None] = {}


def test_a_standby_tells_what_its_states_come_to_and_leads_nothing_by_it(
    new_log: NewLog, start: Callable[..., Running]
) -> None:
    log = new_log()
    registers(log)
    standby = start(log, "b", election=NotElected())
    assert wait_until(lambda: standby.host.position >= 0, "it has read the log")
    body = StateHash(offset=0, hashes={"dispatcher": "1"}, code_fingerprint="2")
    standby.host.emit_as_standby(OutgoingEvent(EVERYONE, body, None))
    (said,) = wait_for(log, lambda record: record.body == body)
    assert (said.header.sender, said.header.sender_epoch) == ("standby/b", 0)
    assert not standby.host.leads_any()
    told: list[Record] = []

    class Watching:
        def on_position(self, offset: int) -> int:
            return 1 << 60

        def on_event(self, record: Record) -> None:
            told.append(record)

    replica = Replica([ResourceManager()])
    replica.watch(Watching())
    for record in everything(log):
        replica.apply(record)
    assert [each.body for each in told] == [body]


class Lease(StandaloneLeaderElection):
    """Mandates that a test suspends."""

    suspended = False


def test_who_has_lost_its_lease_is_not_current(new_log: NewLog) -> None:
    lease = Lease()
    replica = Replica([ResourceManager()])
    host = Host(new_log(), replica, cluster="c", leads=(), process_address="p", session="s", election=lease)
    assert host.is_current
    lease.suspended = True
    assert not host.is_current
    lease.suspended = False
    host._iterated_at -= 60
    assert not host.is_current
    host.close()
