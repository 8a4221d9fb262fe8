"""The heartbeats of one process: a thread sends them, receives those of others, and detects timeouts.

The heartbeat senders define the content and the meaning of heartbeats, one for each kind of role in the process. Their
shells publish states on the host's thread without waiting; everything else runs on the thread here. No failure here
ends the process: while the topic is unreachable nobody can be heard, so nobody times out.

Only heartbeats of present leaders count, as the log names them: one of an earlier process of the same name, or under an
epoch that nobody has claimed, keeps nobody alive, and its reports are ignored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from ...infra import threads
from ...infra.config.option_types import SECOND, Duration
from ...infra.logging_setup import logger
from ...schemas.event import Event, Record
from ..core.role import OutgoingEvent
from ..log import LogUnavailable
from .monitor import HeartbeatMonitor
from .topic import HeartbeatTopic

_LONGEST_WAIT_S = 0.25
_PAUSE_S = 1.0
_SHORTEST_STALL = SECOND
"""Shorter pauses are normal for a thread."""
_log = logger(__name__)

Target = Hashable
Monitor = HeartbeatMonitor[Any]
AddHeaders = Callable[[str, Sequence[OutgoingEvent]], list[Event]]
"""(address, events) -> the events with headers, not appended anywhere; none if this process does not lead the
address."""
AcceptsHeartbeat = Callable[[Record], bool]
"""Whether a heartbeat is from the process that leads its sender now."""
MonotonicClock = Callable[[], int]
"""Microseconds of a monotonic clock."""


def monotonic_us() -> int:
    """Returns the time of the system's monotonic clock."""
    return time.monotonic_ns() // 1000


class HeartbeatSender(Protocol):
    """The heartbeats of one kind of role. All methods are called on one thread."""

    def update(self, monitor: Monitor, now: int) -> None:
        """Updates the targets from the states that were published since."""
        ...

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        """Returns the heartbeats to send now, by sender address. `position`: the offset up to which the host has folded
        the log."""
        ...

    def on_heartbeat(self, record: Record) -> Target | None:
        """Processes a heartbeat; returns its target if it belongs to this sender and is up to date."""
        ...

    def owns(self, target: Target) -> bool:
        """Returns whether the target belongs to this sender."""
        ...

    def on_timeout(self, target: Target, silence: Duration) -> None:
        """Reports a target that has been silent for so long."""
        ...


class HeartbeatManager:
    """Runs the heartbeats of one process. `position` is called on the thread, before each round."""

    def __init__(
        self,
        connect: Callable[[], HeartbeatTopic],
        participants: Sequence[HeartbeatSender],
        *,
        interval: Duration,
        timeout: Duration,
        seal: AddHeaders,
        accepts: AcceptsHeartbeat,
        position: Callable[[], int],
        ready: Callable[[], bool] = lambda: True,
        idle_s: Callable[[], float] = lambda: 0.0,
        clock: MonotonicClock = monotonic_us,
    ) -> None:
        """`accepts`: heartbeats for which it returns False are ignored. `ready`: whether the process leads anything;
        otherwise it neither sends nor expects heartbeats. `idle_s`: seconds since the last iteration of its host; if
        they exceed an interval, no heartbeat is sent."""
        self._connect = connect
        self._participants = participants
        self._interval = interval
        self._seal = seal
        self._accepts = accepts
        self._position = position
        self._ready = ready
        self._idle_s = idle_s
        self._is_idle = False
        self._clock = clock
        self._monitor: Monitor = HeartbeatMonitor(timeout=timeout, stall=max(interval, _SHORTEST_STALL))
        self._due = 0
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="heartbeats")

    def start(self) -> None:
        """Starts the thread; call it once."""
        self._thread.start()

    def close(self) -> None:
        """Stops the thread. May be called without `start`, and twice."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._run_rounds()
            except LogUnavailable as error:
                _log.warning("the heartbeats topic is unavailable; retries", reason=str(error))
            except Exception:
                _log.exception("heartbeats are interrupted; continues")
            self._closed.wait(_PAUSE_S)

    def _run_rounds(self) -> None:
        while not self._ready():
            # Forget the targets of roles that this process no longer leads, before it leads them again.
            self._update(self._clock())
            if self._closed.wait(_LONGEST_WAIT_S / 5):
                return
        topic = self._connect()
        try:
            # Every earlier heartbeat is below the end offset at which reading starts.
            self._monitor.refresh(self._clock())
            while not self._closed.is_set() and self._ready():
                self._round(topic)
        finally:
            topic.close()

    def _round(self, topic: HeartbeatTopic) -> None:
        now = self._clock()
        self._monitor.tick(now)
        if topic.interrupted():
            self._monitor.refresh(now)
        self._update(now)
        if now >= self._due:
            self._due = now + self._interval
            self._send(topic)
        self._receive(topic.poll(self._poll_timeout(now)))
        deadline = self._monitor.deadline()
        if deadline is not None and deadline <= self._clock():
            self._check_timeouts(topic)

    def _update(self, now: int) -> None:
        for participant in self._participants:
            participant.update(self._monitor, now)

    def _poll_timeout(self, now: int) -> float:
        """Returns the seconds until something is due if no heartbeat arrives."""
        due = self._due
        deadline = self._monitor.deadline()
        if deadline is not None and deadline < due:
            due = deadline
        return min(_LONGEST_WAIT_S, max(0.0, (due - now) / 1e6))

    def _send(self, topic: HeartbeatTopic) -> None:
        # A heartbeat proves that the host makes progress, not only that this thread is alive.
        idle_s = self._idle_s()
        was_idle, self._is_idle = self._is_idle, idle_s * 1e6 > max(self._interval, _SHORTEST_STALL)
        if self._is_idle:
            if not was_idle:
                _log.warning(
                    "no heartbeats are sent: the process has stopped reading the log", for_s=round(idle_s)
                )
            return
        position = self._position()
        events: list[Event] = []
        for participant in self._participants:
            for role_address, owed in participant.heartbeats_to_send(position):
                events += self._seal(role_address, owed)
        topic.send(events)

    def _receive(self, records: Iterable[Record]) -> None:
        for record in filter(self._accepts, records):
            now = self._clock()
            for participant in self._participants:
                target = participant.on_heartbeat(record)
                if target is not None:
                    self._monitor.on_heartbeat(target, now)

    def _check_timeouts(self, topic: HeartbeatTopic) -> None:
        """Reads everything that was sent until now; targets that are still late have timed out."""
        try:
            asked = self._clock()
            end = topic.end()
            while topic.position < end and not self._closed.is_set():
                self._receive(topic.poll(_LONGEST_WAIT_S))
                if self._clock() - asked > self._interval:
                    raise LogUnavailable("the heartbeats topic was not read to its end in time")
        except LogUnavailable as error:
            _log.warning("cannot read heartbeats: all targets get a new timeout", reason=str(error))
            self._monitor.refresh(self._clock())
            return
        if self._closed.is_set() or topic.interrupted() or self._clock() - asked > self._interval:
            # A target that could not be heard has not timed out.
            self._monitor.refresh(self._clock())
            return
        for target in self._monitor.expired(asked):
            silence = self._monitor.silence(target, asked)
            self._monitor.watch(target, asked)
            for participant in self._participants:
                if participant.owns(target):
                    participant.on_timeout(target, silence)
