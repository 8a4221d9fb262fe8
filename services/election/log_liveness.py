"""Measures how long Kafka has not answered this process. A master with grants from ZooKeeper has to know it.

Two kinds of requests are measured: appends while one is in flight, and a continuous probe of the log's end. With the
probe an idle leader keeps its leadership and still notices an outage. Either kind may fail alone: large requests may be
lost where small ones pass. For each kind the timer counts the time without any answer; any answer of the same kind
resets it, since appends queue.

Kafka may also answer both and deliver no records; then the process does not even read its own events. The time for
which the tail has not moved although the log's end is ahead is therefore measured, too.

Only time in which the process was running counts: a process that was stopped, or had no CPU, has unread answers
waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from ...infra.logging_setup import logger
from ...schemas.event import Event, Record
from ..core.leadership import LeadershipState
from ..log import EventLog, Tail
from ..log.event_log import Concerns, OnUnreadable

_log = logger(__name__)


class ProbeableLog(EventLog, Protocol):
    """An EventLog that can be probed without blocking."""

    def probe_end(self, timeout_s: float) -> Future[int]:
        """Returns a future of the log's end; it fails after `timeout_s` seconds."""
        ...


class UnansweredTimer:
    """`seconds`: the time since a request was sent without any answer."""

    def __init__(self, now: float, longest_step: float) -> None:
        """The time between two checks counts as `longest_step` seconds at most."""
        self._longest = longest_step
        self._looked = now
        self._answers = 0
        self.seconds = 0.0

    def check(self, now: float, *, waiting: bool, answers: int) -> None:
        """`waiting`: whether a request is unanswered; `answers`: the number of answers so far."""
        step, self._looked = min(now - self._looked, self._longest), now
        if waiting and answers == self._answers:
            self.seconds += step
        else:
            self.seconds = 0.0
        self._answers = answers


class LivenessTrackingLog:
    """An EventLog that measures how long Kafka has not answered it."""

    def __init__(self, log: ProbeableLog) -> None:
        self._log = log
        self._counting = threading.Lock()
        self._under_way = 0
        self._appended = 0
        self._probe: Future[int] | None = None
        self._answer_count = 0
        self._end = 0
        """The last known end of the log."""
        self._tail: _ReadTail | None = None
        self._silences: tuple[UnansweredTimer, UnansweredTimer, UnansweredTimer] | None = None

    def unanswered_timer(self, now: float, step: float) -> float:
        """Returns the seconds without an answer, and sends a new probe if the last one was answered. Call it every
        `step` seconds on one thread.
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
        asked = self._probe
        if asked is not None and asked.done():
            self._probe = None
            error = asked.exception()
            if error is None:
                self._answer_count += 1
                self._end = asked.result()
            else:
                _log.debug("Kafka did not return the end of the log", reason=str(error))
        of_questions.check(now, waiting=True, answers=self._answer_count)
        # Without a tail the process may still restore a snapshot.
        position = self._end if self._tail is None else self._tail.position
        of_reading.check(now, waiting=position < self._end, answers=position)
        if self._probe is None:
            # One probe at a time. The timeout limits how long it blocks the next one.
            self._probe = self._log.probe_end(max(1.0, 6 * step))
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

    def follow(self, leadership: LeadershipState) -> None:
        self._log.follow(leadership)

    def end(self) -> int:
        return self._log.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """The process reads the log by the last tail that was created."""
        self._tail = _ReadTail(self._log.tail(start, concerns=concerns, on_unreadable=on_unreadable))
        return self._tail

    def close(self) -> None:
        self._log.close()


class _ReadTail:
    """A Tail whose position is readable from any thread, also after it is closed."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self.position = tail.position

    @property
    def bytes_read(self) -> int:
        return self._tail.bytes_read

    def poll(self, timeout_s: float) -> list[Record]:
        records = self._tail.poll(timeout_s)
        self.position = self._tail.position
        return records

    def close(self) -> None:
        self._tail.close()
