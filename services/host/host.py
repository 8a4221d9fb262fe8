"""The loop that runs roles in a process: a thread and a log around a HostCore.

In each iteration it reads a batch of the log, lets the core decide, gives the instructions to the shells, and appends
the events. A standby does the same; its core decides nothing. A takeover therefore costs one append and its read-back.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...infra.logging_setup import logger
from ...schemas.event import Event, Record
from ..core.replica import Replica, tune_gc_for_replay
from ..core.role import STANDBY, Clock, OutgoingEvent, Shell, Time, address, kind_of, with_headers
from ..election.leader_election import LeaderElection
from ..log import EventLog, Tail
from ..log.event_log import AddressFilter, OnUnreadable
from ..log.newer_release import UnreadableRecords
from .event_appender import EventAppender
from .event_emitter import EventEmitter
from .host_core import HostCore, HostIdentity, Ready

_LONGEST_WAIT_S = 0.1
_CURRENT_S = 2.0
_log = logger(__name__)


def wall_clock() -> Time:
    """Returns microseconds since the epoch."""
    return time.time_ns() // 1000


class Host:
    """Runs the roles of one process over one log.

    `leads` are the roles that the process is a candidate for; with the Dispatcher come the JobMasters. `election`
    grants leadership to the process; None grants it at once, and then the process ends when it is deposed. `endpoints`
    are the servers of the process by name, as in LeaderElected. `concerns` are the addresses whose events it reads,
    None for all. `abandons_election`: it takes the leadership without an election even if the last leader was elected,
    and the cluster goes on.
    """

    def __init__(
        self,
        log: EventLog,
        replica: Replica,
        *,
        cluster: str,
        leads: Iterable[str],
        process_address: str,
        session: str,
        election: LeaderElection | None = None,
        endpoints: Mapping[str, str] | None = None,
        clock: Clock = wall_clock,
        on_unreadable: OnUnreadable | None = None,
        concerns: Iterable[str] | None = None,
        abandons_election: bool = False,
    ) -> None:
        self._log = log
        self._replica = replica
        self._identity = HostIdentity(cluster, tuple(leads), process_address, session, endpoints or {})
        self._election = election
        self._core = HostCore(replica, self._identity, election)
        self._clock = clock
        self._unreadable = UnreadableRecords(lambda: replica.leadership, on_unreadable)
        self._concerns = AddressFilter(frozenset(concerns)) if concerns is not None else None
        self._abandons_election = abandons_election
        self._shells: Mapping[str, Shell] = {}
        self._failure: Exception | None = None
        self._appender = EventAppender(
            log, lambda role_address, error: self._core.events_of_failure(role_address, error, clock())
        )
        self._emitter = EventEmitter(self._appender.append_all, self.fail)
        self._standby_numbers = itertools.count()
        self._iterated_at = time.monotonic()
        self._read: Tail | None = None
        self.leading = threading.Event()
        """Set while every role of `leads` is led."""

    def run(
        self,
        stop: threading.Event,
        shells: Mapping[str, Shell],
        finished: Callable[[Replica], bool] = lambda _: False,
        leaves: Callable[[Replica], bool] = lambda _: False,
    ) -> None:
        """Replays the log, then leads and follows until `stop` is set or `finished` returns True for the replica.

        If `finished` is True after the replay already, a leader starts a new run of the cluster. If `leaves` is True
        then, this process leads nothing and ends. `shells` are by kind of role. Raises Deposed, ElectedLeaderExists,
        StaleElectionEpoch, EpochOutOfReach, NewerRelease, LogTruncated and LogUnavailable.
        """
        self._shells = shells
        tune_gc_for_replay()
        tail = self._read = self._tail()
        try:
            self._replay(tail, self._log.end(), stop)
            followed = self._replica.leadership
            self._log.follow(followed)
            if leaves(self._replica):
                return
            is_old = finished(self._replica)
            self._core.start(self._clock(), abandons_election=self._abandons_election or is_old)
            wait_until: Time | None = 0
            while not stop.is_set():
                self._iterated_at = time.monotonic()
                batch = tail.poll(self._poll_timeout_s(wait_until))
                self._core.fold(self._unreadable.filter(batch), self._clock())
                is_finished = finished(self._replica)
                if is_finished and not is_old and not self._core.is_leading:
                    # Its claim would start the cluster again.
                    return
                ready = self._core.step((), self._clock())
                if self._replica.leadership is not followed:
                    followed = self._replica.leadership
                    self._log.follow(followed)
                self._perform(ready)
                offsets, left = self._appender.append_some(ready.append)
                self._core.advance(ready, offsets, left, tail.position - 1)
                wait_until = ready.wait_until
                if self._failure is not None:
                    raise self._failure
                if not is_finished:
                    is_old = False
                elif not is_old:
                    return
        finally:
            self.leading.clear()
            tail.close()

    def emit(self, role_address: str, owed: OutgoingEvent) -> None:
        """Appends an event of a shell for a role that this process leads. Thread-safe; returns at once.

        Drops the event if the process does not lead the role (any more). If the event cannot be appended, `run` ends:
        the instruction stays in the state and is performed again after a restart.
        """
        for event in self.with_headers(role_address, [owed]):
            self._emitter.emit(event)

    def emit_as_standby(self, owed: OutgoingEvent) -> None:
        """Appends an event of a master that leads nothing. Thread-safe; returns at once. Drops the event before the log
        has been read, and in a process without an election."""
        if self._election is not None and self.position >= 0 and not self._election.is_suspended:
            sender = address(STANDBY, self.session)
            for event in with_headers(
                [owed],
                cluster=self._identity.cluster,
                sender=sender,
                epoch=0,
                decided_at=self.position,
                now=self._clock(),
                numbers=self._standby_numbers,
            ):
                self._emitter.emit(event)

    def with_headers(self, role_address: str, owed: Sequence[OutgoingEvent]) -> list[Event]:
        """Returns the events of a role with their headers, to be sent outside the log; none if the process does not
        lead the role (any more). Thread-safe."""
        return self._core.with_headers(role_address, owed, self._clock())

    @property
    def session(self) -> str:
        """The unique id of this process, as in LeaderElected."""
        return self._identity.session

    @property
    def position(self) -> int:
        """The log is folded up to this offset, and the shells have seen the resulting states; -1 before that."""
        return self._core.position

    @property
    def idle_s(self) -> float:
        """Seconds since the last iteration of the loop; large if the loop hangs or waits for Kafka. Thread-safe."""
        return time.monotonic() - self._iterated_at

    @property
    def silent_s(self) -> float:
        """As `idle_s`, but 0 before the loop starts. Thread-safe."""
        return 0.0 if self._read is None else self.idle_s

    @property
    def is_current(self) -> bool:
        """Whether the answer of `leads` is reliable: the election is not suspended, and the loop ran a short time ago.
        A process that was stopped may have been deposed since. Thread-safe."""
        is_suspended = self._election is not None and self._election.is_suspended
        return not is_suspended and self.idle_s < _CURRENT_S

    @property
    def bytes_read(self) -> int:
        """The bytes of the log read since `run` started."""
        return 0 if self._read is None else self._read.bytes_read

    def state(self, role_address: str) -> object:
        """Returns the last folded state of an address, whichever process leads it; None before the first.
        Thread-safe."""
        return self._replica.states.get(role_address)

    def leads(self, role_address: str) -> bool:
        """Returns whether the process leads an address now. Thread-safe."""
        return self._core.term_for(role_address) is not None

    def accepts_heartbeat(self, record: Record) -> bool:
        """Returns whether a heartbeat is from the process that leads its sender, as far as the log is folded.
        Thread-safe."""
        return self._replica.leadership.accepts_heartbeat(record)

    def fail(self, error: Exception) -> None:
        """Ends `run` with an error of another thread of the process."""
        self._failure = self._failure or error

    def close(self, timeout_s: float | None = None) -> None:
        """Waits until all emitted events are in the log, at most `timeout_s` seconds."""
        if not self._emitter.close(timeout_s):
            _log.warning("the last events may be missing in the log", log=self._log.topic, waited_s=timeout_s)

    def _tail(self) -> Tail:
        # The replica may have been restored from a snapshot.
        start = self._replica.offset + 1
        return self._log.tail(start, concerns=self._concerns, on_unreadable=self._unreadable)

    def _replay(self, tail: Tail, end: int, stop: threading.Event) -> None:
        """Folds the old log before the process leads or joins anything: the core need not look at changed states."""
        self._replica.telling = False
        apply = self._replica.apply
        while tail.position < end and not stop.is_set():
            self._iterated_at = time.monotonic()
            for record in self._unreadable.filter(tail.poll(_LONGEST_WAIT_S)):
                apply(record)
            if self._failure is not None:
                raise self._failure
        self._replica.telling = True

    def _perform(self, ready: Ready) -> None:
        if self._core.is_leading:
            self.leading.set()
        else:
            self.leading.clear()
        for role_address in ready.retire:
            shell = self._shells.get(kind_of(role_address))
            if shell is not None:
                shell.retire(role_address)
        for role_address, instructions, state in ready.perform:
            shell = self._shells.get(kind_of(role_address))
            if shell is not None:
                shell.perform(role_address, instructions, state)

    def _poll_timeout_s(self, wait_until: Time | None) -> float:
        if wait_until is None:
            return _LONGEST_WAIT_S
        return min(_LONGEST_WAIT_S, max(0.0, (wait_until - self._clock()) / 1e6))
