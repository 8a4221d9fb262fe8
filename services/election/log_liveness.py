"""Detects whether Kafka answers this process. A master that is elected by ZooKeeper must know that.

Two kinds of requests are timed: appends, while one is in flight, and the request for the log's end, all the time. The
second lets an idle leader keep its leadership while Kafka answers, and detect when it does not. Either kind can fail
alone: large requests may be lost where small ones pass. For each kind the timer runs from the first unanswered request;
any answer of that kind resets it, since appends queue.

Kafka may answer both and still deliver nothing. So the process also measures how long its reader has stood still below
the log's end.

Only time in which the process was running counts: a process that was stopped, or had no processor, has answers waiting
that it has not read yet.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from ...infra.logging_setup import logger
from ...schemas.event import Event, Record
from ..log import EventLog, Tail
from ..log.event_log import Concerns, OnUnreadable

_log = logger(__name__)


class ProbeableLog(EventLog, Protocol):
    """An EventLog that can be asked without waiting."""

    def probe_end(self, timeout: float) -> Future[int]:
        """`end` of the log, once it is known; an error where it is not within `timeout` seconds."""
        ...


class UnansweredTimer:
    """`seconds` for which something has been asked and nothing answered."""

    def __init__(self, now: float, longest_step: float) -> None:
        """A step between two looks counts for no more than `longest_step` seconds."""
        self._longest = longest_step
        self._looked = now
        self._answers = 0
        self.seconds = 0.0

    def check(self, now: float, *, waiting: bool, answers: int) -> None:
        """`waiting`: whether an answer is owed; `answers`: how many there have been so far."""
        step, self._looked = min(now - self._looked, self._longest), now
        if waiting and answers == self._answers:
            self.seconds += step
        else:
            self.seconds = 0.0
        self._answers = answers


class LivenessTrackingLog:
    """An EventLog that knows how long Kafka has not answered it."""

    def __init__(self, log: ProbeableLog) -> None:
        self._log = log
        self._counting = threading.Lock()
        self._under_way = 0
        self._appended = 0
        self._asked: Future[int] | None = None
        self._told = 0
        self._end = 0
        """The end that was told last."""
        self._tail: _ReadTail | None = None
        self._silences: tuple[UnansweredTimer, UnansweredTimer, UnansweredTimer] | None = None

    def unanswered_timer(self, now: float, step: float, *, reads: bool = True) -> float:
        """Seconds; to be asked every `step` seconds, on one thread. Asks Kafka anew where it has answered.

        `reads`: whether the process is to read the log by now.
        """
        if self._silences is None:
            self._silences = (
                UnansweredTimer(now, 2 * step),
                UnansweredTimer(now, 2 * step),
                UnansweredTimer(now, 2 * step),
            )
        of_appends, of_questions, of_reading = self._silences
        with self._counting:
            of_appends.check(now, waiting=self._under_way > 0, answers=self._appended)
        asked = self._asked
        if asked is not None and asked.done():
            self._asked = None
            error = asked.exception()
            if error is None:
                self._told += 1
                self._end = asked.result()
            else:
                _log.debug("Kafka did not tell where the log ends", reason=str(error))
        of_questions.check(now, waiting=True, answers=self._told)
        position = 0 if self._tail is None else self._tail.position
        of_reading.check(now, waiting=reads and position < self._end, answers=position)
        if self._asked is None:
            # One at a time; longer than that it need not wait for.
            self._asked = self._log.probe_end(max(1.0, 6 * step))
        return max(of_appends.seconds, of_questions.seconds, of_reading.seconds)

    @property
    def topic(self) -> str:
        return self._log.topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        with self._counting:
            self._under_way += 1
        answered = False
        try:
            offsets = self._log.append(events, most_bytes)
            answered = True
            return offsets
        finally:
            with self._counting:
                self._under_way -= 1
                self._appended += answered

    def end(self) -> int:
        return self._log.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """The last one that was asked for is the one that the process reads the log by."""
        self._tail = _ReadTail(self._log.tail(start, concerns=concerns, on_unreadable=on_unreadable))
        return self._tail

    def close(self) -> None:
        self._log.close()


class _ReadTail:
    """A Tail whose position may be asked for from any thread, also when it is closed."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self.position = tail.position

    @property
    def bytes_read(self) -> int:
        return self._tail.bytes_read

    def poll(self, timeout: float) -> list[Record]:
        records = self._tail.poll(timeout)
        self.position = self._tail.position
        return records

    def close(self) -> None:
        self._tail.close()
