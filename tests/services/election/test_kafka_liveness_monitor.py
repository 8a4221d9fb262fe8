"""KafkaLivenessMonitor reports that Kafka does not answer, and not that there is only nothing to read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polling import TIMEOUT_S
from services.simulated_cluster.cluster import header

from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import LeaderElected
from tailrace.services.election.kafka_liveness_monitor import KafkaLivenessMonitor, KafkaState
from tailrace.services.election.log_liveness import LivenessTrackingLog, UnansweredTimer
from tailrace.services.log import LogUnavailable
from tailrace.services.log.memory import MemoryEventLog

KAFKA_TIMEOUT_S = 12.0
LOOK_S = 1.0
"""It is looked twelve times within the timeout."""
WORD = Event(
    header("dispatcher", EVERYONE), LeaderElected(role="dispatcher", epoch=1, address="a", session="a")
)


class FarLog(MemoryEventLog):
    """A log that a test makes unreachable: requests then wait."""

    def __init__(self) -> None:
        super().__init__()
        self.answers_questions = True
        self.takes = threading.Event()
        self.takes.set()
        self.asked = threading.Semaphore(0)
        self._waiting: list[Future[int]] = []

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        self.asked.release()
        assert self.takes.wait(TIMEOUT_S)
        return super().append(events)

    def probe_end(self, timeout_s: float) -> Future[int]:
        future: Future[int] = Future()
        if self.answers_questions:
            future.set_result(self.end())
        else:
            self._waiting.append(future)
        return future

    def give_up(self) -> None:
        """Fails the waiting requests, as the client does after its timeout."""
        while self._waiting:
            self._waiting.pop().set_exception(LogUnavailable("no answer"))

    def answer(self) -> None:
        self.answers_questions = True
        while self._waiting:
            self._waiting.pop().set_result(self.end())


class Leader:
    """A master that checks its log when the test tells it to. `states` are the reported ones."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = FarLog()
        self.received = LivenessTrackingLog(self.log)
        self.tail = self.received.tail(0)
        self.reads = True
        self.states = [KafkaState.ANSWERS]
        self.monitor = KafkaLivenessMonitor(
            self.received, self.states.append, timeout_s=KAFKA_TIMEOUT_S, clock=lambda: self.now
        )
        self.looks(2)

    def looks(self, times: int, every: float = LOOK_S) -> None:
        for _ in range(times):
            self.now += every
            if self.reads:
                self.tail.poll(0)
            self.monitor.check()

    @property
    def holds(self) -> bool:
        return self.states[-1] is not KafkaState.SILENT


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def append(leader: Leader) -> Iterator[Callable[[], None]]:
    """Starts an append in a thread of its own."""
    threads: list[threading.Thread] = []

    def begin() -> None:
        threads.append(threading.Thread(target=leader.received.append, args=([WORD],)))
        threads[-1].start()
        assert leader.log.asked.acquire(timeout=TIMEOUT_S)

    yield begin
    leader.log.takes.set()
    for thread in threads:
        thread.join(TIMEOUT_S)


def test_idle_leader_gets_answers(leader: Leader) -> None:
    leader.looks(1000)
    assert leader.states == [KafkaState.ANSWERS]


def test_silence_is_reported_within_session_timeout_and_ends_with_next_answer(leader: Leader) -> None:
    leader.log.answers_questions = False
    leader.looks(6)
    assert leader.states[-1] is KafkaState.ANSWERS
    leader.looks(2)
    assert leader.states[-1] is KafkaState.DOUBTFUL, "what it would say would only wait"
    leader.looks(4)
    assert leader.states[-1] is KafkaState.SILENT
    leader.looks(100)
    leader.log.answer()
    leader.looks(2)
    assert leader.states == [
        KafkaState.ANSWERS,
        KafkaState.DOUBTFUL,
        KafkaState.SILENT,
        KafkaState.ANSWERS,
    ]


def test_reader_that_receives_no_records_is_silence_although_kafka_answers(leader: Leader) -> None:
    leader.log.append([WORD])
    leader.looks(100)
    assert leader.holds, "all was read"
    leader.reads = False
    leader.looks(100)
    assert leader.holds, "there is nothing more to read"
    leader.log.append([WORD])
    leader.looks(2)
    assert leader.holds, "it may be read in time"
    leader.looks(12)
    assert not leader.holds
    leader.looks(100)
    assert not leader.holds
    leader.reads = True
    leader.looks(2)
    assert leader.holds


def test_process_that_does_not_read_yet_gets_answers() -> None:
    now, log, states = 0.0, FarLog(), list[KafkaState]()
    log.append([WORD])
    tracked = LivenessTrackingLog(log)
    monitor = KafkaLivenessMonitor(tracked, states.append, timeout_s=KAFKA_TIMEOUT_S, clock=lambda: now)
    for _ in range(40):
        now += LOOK_S
        monitor.check()
    assert states == []
    tracked.tail(0)
    for _ in range(20):
        now += LOOK_S
        monitor.check()
    assert states[-1] is KafkaState.SILENT


def test_slow_reader_is_no_silence(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    entries_from = leader.log.entries_from
    monkeypatch.setattr(leader.log, "entries_from", lambda *where: entries_from(*where)[:1])
    for _ in range(100):
        leader.log.append([WORD, WORD])
        leader.looks(1)
    assert leader.tail.position < leader.log.end()
    assert leader.holds


def test_error_is_no_answer(leader: Leader) -> None:
    leader.log.answers_questions = False
    for _ in range(12):
        leader.looks(1)
        leader.log.give_up()
    assert not leader.holds


def test_waiting_append_is_silence_until_it_ends(leader: Leader, append: Callable[[], None]) -> None:
    leader.log.takes.clear()
    append()
    leader.looks(12)
    assert not leader.holds
    leader.looks(100)
    assert not leader.holds
    leader.log.takes.set()
    while not leader.holds:
        leader.looks(1)
    assert leader.log.end() == 1


def test_append_may_wait_while_other_appends_end(leader: Leader, append: Callable[[], None]) -> None:
    leader.log.takes.clear()
    append()
    for _ in range(10):
        leader.looks(8)
        leader.log.takes.set()
        append()
        leader.log.takes.clear()
    assert leader.holds


def test_resumed_process_checks_for_answers_first(leader: Leader) -> None:
    leader.log.answers_questions = False
    leader.looks(2)
    leader.looks(1, every=1000.0)
    assert leader.holds
    leader.log.answer()
    leader.looks(1)
    assert leader.holds


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans(), st.booleans())))
def test_silence_is_never_longer_than_time_since_last_answer(
    looks: list[tuple[float, bool, bool]],
) -> None:
    silence, now, answers, since = UnansweredTimer(0.0, 2.0), 0.0, 0, 0.0
    for step, waiting, answered in looks:
        now += step
        answers += answered
        silence.check(now, waiting=waiting, answers=answers)
        since = 0.0 if answered or not waiting else since + min(step, 2.0)
        assert silence.seconds == pytest.approx(since)
        assert silence.seconds == 0.0 or (waiting and not answered)
