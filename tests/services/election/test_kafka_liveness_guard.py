"""Who holds mandates, and is not answered by Kafka, gives them back; who has only nothing to say keeps them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polling import TIMEOUT_S
from services.scripted_election import GivenMandates
from services.simulated_cluster.cluster import header

from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import LeaderElected
from tailrace.services.election.kafka_liveness_guard import KafkaLivenessGuard
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
    """A log that a test takes out of reach: what it is asked then waits."""

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

    def probe_end(self, timeout: float) -> Future[int]:
        told: Future[int] = Future()
        if self.answers_questions:
            told.set_result(self.end())
        else:
            self._waiting.append(told)
        return told

    def give_up(self) -> None:
        """What was asked gets an error, as it does in the end."""
        while self._waiting:
            self._waiting.pop().set_exception(LogUnavailable("no answer"))

    def answer(self) -> None:
        self.answers_questions = True
        while self._waiting:
            self._waiting.pop().set_result(self.end())


class Leader:
    """A master that was given a mandate, and looks when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = FarLog()
        self.heard = LivenessTrackingLog(self.log)
        self.tail = self.heard.tail(0)
        self.reads = True
        self.given = GivenMandates()
        self.mandates = KafkaLivenessGuard(
            self.given, self.heard, timeout_s=KAFKA_TIMEOUT_S, clock=lambda: self.now
        )
        self.mandates.join("dispatcher")
        self.given.give("dispatcher", epoch=1)
        self.looks(2)

    def looks(self, times: int, every: float = LOOK_S) -> None:
        for _ in range(times):
            self.now += every
            if self.reads:
                self.tail.poll(0)
            self.mandates.check()

    @property
    def holds(self) -> bool:
        assert ("dispatcher" in self.mandates.grants()) == ("dispatcher" in self.given.stands)
        return "dispatcher" in self.mandates.grants()


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def append(leader: Leader) -> Iterator[Callable[[], None]]:
    """Begins to append something, in a thread of its own."""
    threads: list[threading.Thread] = []

    def begin() -> None:
        threads.append(threading.Thread(target=leader.heard.append, args=([WORD],)))
        threads[-1].start()
        assert leader.log.asked.acquire(timeout=TIMEOUT_S)

    yield begin
    leader.log.takes.set()
    for each in threads:
        each.join(TIMEOUT_S)


def test_who_has_nothing_to_say_keeps_its_mandates(leader: Leader) -> None:
    leader.looks(1000)
    assert leader.holds
    assert not leader.mandates.suspended


def test_within_a_session_timeout_of_silence_they_are_given_back_and_had_again_when_it_ends(
    leader: Leader,
) -> None:
    leader.log.answers_questions = False
    leader.looks(6)
    assert leader.holds
    assert not leader.mandates.suspended
    leader.looks(2)
    assert leader.mandates.suspended, "what it would say would only wait"
    assert leader.holds
    leader.looks(4)
    assert not leader.holds
    leader.looks(100)
    assert leader.given.stands == {}
    leader.log.answer()
    leader.looks(2)
    assert leader.given.stands == {"dispatcher": 2}
    assert leader.mandates.grants() == {}
    leader.given.give("dispatcher", epoch=2)
    assert leader.holds
    assert not leader.mandates.suspended


def test_who_is_given_nothing_to_read_gives_them_back_though_kafka_answers(leader: Leader) -> None:
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
    assert leader.given.stands == {}
    leader.reads = True
    leader.looks(2)
    assert leader.given.stands == {"dispatcher": 2}


def test_who_has_never_begun_to_read_gives_them_back() -> None:
    now, log = 0.0, FarLog()
    log.append([WORD])
    given = GivenMandates()
    mandates = KafkaLivenessGuard(
        given, LivenessTrackingLog(log), timeout_s=KAFKA_TIMEOUT_S, clock=lambda: now
    )
    mandates.join("dispatcher")
    for _ in range(20):
        now += LOOK_S
        mandates.check()
    assert given.stands == {}


def test_who_reads_slowly_keeps_its_mandates(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    values_from = leader.log.values_from
    monkeypatch.setattr(leader.log, "values_from", lambda *where: values_from(*where)[:1])
    for _ in range(100):
        leader.log.append([WORD, WORD])
        leader.looks(1)
    assert leader.tail.position < leader.log.end()
    assert leader.holds


def test_an_error_is_no_answer(leader: Leader) -> None:
    leader.log.answers_questions = False
    for _ in range(12):
        leader.looks(1)
        leader.log.give_up()
    assert not leader.holds


def test_an_append_that_waits_is_enough_and_has_to_end_first(
    leader: Leader, append: Callable[[], None]
) -> None:
    leader.log.takes.clear()
    append()
    leader.looks(12)
    assert not leader.holds
    leader.looks(100)
    assert leader.given.stands == {}
    leader.log.takes.set()
    while not leader.given.stands:
        leader.looks(1)
    assert leader.log.end() == 1


def test_while_other_appends_end_one_may_wait_its_turn(leader: Leader, append: Callable[[], None]) -> None:
    leader.log.takes.clear()
    append()
    for _ in range(10):
        leader.looks(8)
        leader.log.takes.set()
        append()
        leader.log.takes.clear()
    assert leader.holds


def test_who_was_stopped_looks_for_answers_first(leader: Leader) -> None:
    leader.log.answers_questions = False
    leader.looks(2)
    leader.looks(1, every=1000.0)
    assert leader.holds
    leader.log.answer()
    leader.looks(1)
    assert leader.holds


def test_what_is_wanted_meanwhile_is_stood_for_afterwards(leader: Leader) -> None:
    leader.log.answers_questions = False
    leader.looks(12)
    leader.mandates.join("job_master/j1")
    leader.mandates.leave("dispatcher")
    leader.mandates.leave("job_master/j2", for_ever=True)
    assert leader.given.stands == {}
    assert leader.given.for_ever == ["job_master/j2"]
    leader.log.answer()
    leader.looks(2)
    assert leader.given.stands == {"job_master/j1": 1}


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans(), st.booleans())))
def test_silence_is_never_longer_than_the_time_since_the_last_answer(
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
