"""The loop that runs roles in a process.

It reads a batch of the log and evolves the states. For the addresses that it leads, once its own last append has been
read back, it decides, appends, and lets the shells perform the instructions. Standbys do everything except decide, so a
takeover costs them one append and its read-back. The host never decides on events that it only sent: it reads them back
from the log first. The last events of a fenced leader therefore have no effect.

The set of led roles changes at run time. The election grants and revokes leadership (services/election). The host
claims a granted role in the log, and leads it once it has read its claim back unfenced. It steps down when a grant is
revoked or when it reads another process's claim. While the election is suspended it decides nothing and keeps its
state. Without an election (`high-availability.type: none`) the newest process leads everything, and the deposed one
ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE, Event, Record
from ...schemas.everyone import LeaderElected
from ..core.deadline_heap import DeadlineHeap
from ..core.decision import decide_role
from ..core.replica import Replica, tune_gc_for_replay
from ..core.role import (
    DISPATCHER,
    JOB_MASTER,
    STANDBY,
    Clock,
    OutgoingEvent,
    Shell,
    Time,
    address,
    kind_of,
    with_headers,
)
from ..election.leader_election import LeaderElection, StandaloneLeaderElection
from ..log import EventLog, Tail
from ..log.event_log import OnUnreadable
from ..log.newer_release import UnreadableRecords
from .election_participant import ElectedLeaderExists, ElectionParticipant
from .event_appender import EventAppender
from .event_emitter import EventEmitter
from .held_terms import HeldTerms, LeaderTerm

_LONGEST_WAIT_S = 0.1
_CURRENT_S = 2.0
_log = logger(__name__)


class Deposed(Exception):
    """Another process leads a role that this process led. This process must end; its tasks keep running."""


def wall_clock() -> Time:
    """Returns microseconds since the epoch."""
    return time.time_ns() // 1000


class Host:
    """Runs the roles of one process over one log.

    `leads` are the roles that the process is a candidate for; with the Dispatcher come the JobMasters. `mandates` is
    the
    election that grants roles to the process; None grants all, and then the process ends when it is deposed.
    `endpoints` are
    the servers of the process by name, as in LeaderElected. `concerns` are the addresses whose events it reads, None
    for
    all. `abandons_election`: it takes the leadership without an election even if the last leader was elected, and the
    cluster goes on. `run` raises Deposed, ElectedLeaderExists, StaleElectionEpoch, EpochOutOfReach, NewerRelease,
    LogTruncated and LogUnavailable.
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
        mandates: LeaderElection | None = None,
        endpoints: Mapping[str, str] | None = None,
        clock: Clock = wall_clock,
        on_unreadable: OnUnreadable | None = None,
        concerns: Iterable[str] | None = None,
        abandons_election: bool = False,
    ) -> None:
        self._log = log
        self._replica = replica
        self._cluster = cluster
        self._leads = tuple(leads)
        self._process_address = process_address
        self._session = session
        self._stands_by = mandates is not None
        self._mandates: LeaderElection = mandates or StandaloneLeaderElection()
        self._endpoints = endpoints or {}
        self._shells: Mapping[str, Shell] = {}
        self._clock = clock
        self._unread = UnreadableRecords(lambda: replica.leadership, on_unreadable)
        self._concerns = frozenset(concerns) if concerns is not None else None
        self._terms = HeldTerms(lambda: replica.leadership)
        self._abandons_election = abandons_election
        self._participant = ElectionParticipant(
            self._mandates, replica, self._leads, session=session, opposed=self._stands_by, clock=clock
        )
        self._granted: Mapping[str, int | None] | None = None
        """The grants that were processed last; None: process them again."""
        self._claimed: dict[str, int] = {}
        """Claims that were appended and not yet read back: role -> epoch."""
        self._failure: Exception | None = None
        self._said = 0
        self._counting = threading.Lock()
        self._appender = EventAppender(log, self.with_headers, self.state)
        self._emitter = EventEmitter(self._appender.append_all, self.fail)
        self._appended_to = -1
        self._dirty: dict[str, None] = {}
        self._deadlines = DeadlineHeap()
        self._position = -1
        self._turned_at = time.monotonic()
        self._read: Tail | None = None
        self.leading = threading.Event()
        """Set while every role of `leads` is led."""

    def run(
        self,
        stop: threading.Event,
        shells: Mapping[str, Shell],
        finished: Callable[[Replica], bool] = lambda _: False,
    ) -> None:
        """Replays the log, then leads and follows until `stop` is set or `finished` returns True for the replica. If
        `finished` is True after the replay already, a leader starts a new run of the cluster. `shells` are by kind of
        role."""
        self._shells = shells
        tune_gc_for_replay()
        tail = self._read = self._tail()
        try:
            self._replica.telling = False
            self._replay(tail, self._log.end(), stop)
            self._replica.telling = True
            self._position = self._replica.offset
            is_old = finished(self._replica)
            if not (self._stands_by or self._abandons_election or is_old):
                self._refuse_where_others_are_elected()
            self._participant.start()
            while not stop.is_set():
                self._turned_at = time.monotonic()
                self._follow_elections(tail, stop)
                if not finished(self._replica):
                    is_old = False
                elif not is_old:
                    return
                self._fold(tail.poll(self._poll_timeout()))
                if self._failure is not None:
                    raise self._failure
                self._participant.tick()
                if self._replica.offset >= self._appended_to and not self._mandates.suspended:
                    self._decide()
                    self._position = tail.position - 1
        finally:
            self.leading.clear()
            tail.close()

    def emit(self, role_address: str, owed: OutgoingEvent) -> None:
        """Appends an event of a shell for a role that this process leads. Thread-safe; returns at once.

        Drops the event if the process does not lead the role (any more). If the event cannot be appended, `run` ends:
        the
        instruction stays in the state and is performed again after a restart.
        """
        for event in self.with_headers(role_address, [owed]):
            self._emitter.emit(event)

    def emit_as_standby(self, owed: OutgoingEvent) -> None:
        """Appends an event of a master that leads nothing. Thread-safe; returns at once. Drops the event before the log
        has been read, and in a process without an election."""
        if self._stands_by and self._position >= 0 and not self._mandates.suspended:
            sender = address(STANDBY, self._session)
            for event in self._with_headers(sender, [owed], 0, self._clock(), self._position):
                self._emitter.emit(event)

    def with_headers(self, role_address: str, owed: Sequence[OutgoingEvent]) -> list[Event]:
        """Returns the events of a role with their headers, to be sent outside the log; none if the process does not
        lead the role (any more). Thread-safe."""
        term = self._terms.term_for(role_address)
        if term is None:
            names = [event.body.AVRO_NAME for event in owed]
            _log.debug("dropped events: this process does not lead the role", role=role_address, events=names)
            return []
        # Shells have seen the states up to this offset only, not what was folded since.
        causes = [event.cause for event in owed if event.cause is not None]
        return self._with_headers(
            role_address, owed, term.epoch, self._clock(), max([self._position, term.since, *causes])
        )

    @property
    def session(self) -> str:
        """The unique id of this process, as in LeaderElected."""
        return self._session

    @property
    def position(self) -> int:
        """The log is folded up to this offset, and the shells have seen the resulting states; -1 before that."""
        return self._position

    @property
    def idle_s(self) -> float:
        """Seconds since the last iteration of the loop; large if the loop hangs or waits for Kafka. Thread-safe."""
        return time.monotonic() - self._turned_at

    @property
    def is_current(self) -> bool:
        """Whether the answer of `leads` is reliable: the election is not suspended, and the loop ran a short time ago.
        A process that was stopped may have been deposed since. Thread-safe."""
        return not self._mandates.suspended and self.idle_s < _CURRENT_S

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
        return self._terms.term_for(role_address) is not None

    def leads_any(self) -> bool:
        """Returns whether the process leads anything now. Thread-safe."""
        return bool(self._terms)

    def fail(self, error: Exception) -> None:
        """Ends `run` with an error of another thread of the process."""
        self._failure = self._failure or error

    def close(self, timeout_s: float | None = None) -> None:
        """Waits until all emitted events are in the log, at most `timeout_s` seconds."""
        if not self._emitter.close(timeout_s):
            _log.warning("the last events may be missing in the log", log=self._log.topic, waited_s=timeout_s)

    def _tail(self) -> Tail:
        # The replica may have been restored from a snapshot.
        wanted, start = self._concerns, self._replica.offset + 1
        if wanted is None:
            return self._log.tail(start, on_unreadable=self._unread)
        return self._log.tail(
            start,
            concerns=lambda sender, recipient: (
                recipient in wanted or sender in wanted or recipient == EVERYONE
            ),
            on_unreadable=self._unread,
        )

    def _refuse_where_others_are_elected(self) -> None:
        for role in self._leads:
            leader = self._replica.leadership.leader(role)
            if leader is not None and leader.elected_by:
                raise ElectedLeaderExists(role, leader)

    def _replay(self, tail: Tail, end: int, stop: threading.Event) -> None:
        """As `_catch_up`, before the process leads or joins anything: changed states need no further processing."""
        apply = self._replica.apply
        while tail.position < end and not stop.is_set():
            self._turned_at = time.monotonic()
            for record in self._unread.filter(tail.poll(_LONGEST_WAIT_S)):
                apply(record)
            if self._failure is not None:
                raise self._failure

    def _catch_up(self, tail: Tail, end: int, stop: threading.Event) -> None:
        while tail.position < end and not stop.is_set():
            self._turned_at = time.monotonic()
            self._fold(tail.poll(_LONGEST_WAIT_S))
            if self._failure is not None:
                raise self._failure

    def _follow_elections(self, tail: Tail, stop: threading.Event) -> None:
        """Steps down from roles that are no longer granted, and claims granted roles until none is left."""
        while (granted := self._mandates.grants()) is not self._granted and not stop.is_set():
            for role in self._terms.roles():
                if role not in granted:
                    self._step_down(role, "the leadership grant was revoked")
            if self._mandates.suspended:
                return
            # There may be many jobs, and every grant makes a new mapping: skip the grants that were processed before.
            known, self._granted = self._granted or {}, granted
            wanted = [
                role
                for role, epoch in granted.items()
                if (epoch is None or known.get(role) != epoch) and self._should_claim(role, epoch)
            ]
            if wanted:
                self._claim(wanted, granted, tail, stop)

    def _should_claim(self, role: str, granted: int | None) -> bool:
        term = self._terms.term_for(role)
        if term is not None:
            # For example a job that is led in the Dispatcher's term.
            self._mandates.confirm_leadership(role, term.epoch)
            return False
        if kind_of(role) == JOB_MASTER and not self._replica.is_active(role):
            return False
        return self._participant.is_valid(role, granted)

    def _claim(
        self, roles: Sequence[str], granted: Mapping[str, int | None], tail: Tail, stop: threading.Event
    ) -> None:
        now, known = self._clock(), self._replica.offset
        claims: list[Event] = []
        for role in roles:
            epoch = granted[role]
            if epoch is None:
                epoch = self._replica.leadership.epoch(role) + 1
            body = LeaderElected(
                role=role,
                epoch=epoch,
                address=self._process_address,
                session=self._session,
                endpoints=self._endpoints if role in self._leads else {},
                elected_by=self._mandates.elected_by,
            )
            self._claimed[role] = epoch
            claims += self._with_headers(role, [OutgoingEvent(EVERYONE, body, None)], epoch, now, known)
        self._appended_to = self._log.append(claims)[-1]
        self._catch_up(tail, self._appended_to + 1, stop)
        self._claimed.clear()
        if any(self._terms.term_for(role) is None for role in roles):
            # Another process's claim was appended first, and every reader accepts that one: process the grants again.
            self._granted = None

    def _fold(self, batch: Iterable[Record]) -> None:
        apply, dirty, led = self._replica.apply, self._dirty, self._terms.term_for
        look_at = self._participant.on_state_changed
        for record in self._unread.filter(batch):
            before = self._replica.leadership
            changed = apply(record)
            if self._replica.leadership is not before and isinstance(record.body, LeaderElected):
                self._on_leader_elected(record, record.body)
            for role_address in changed:
                if led(role_address) is not None:
                    dirty[role_address] = None
                if look_at(role_address):
                    self._is_quiescent(role_address)

    def _on_leader_elected(self, record: Record, body: LeaderElected) -> None:
        role = body.role
        if body.session == self._session:
            if self._claimed.get(role) == body.epoch:
                self._start_term(role, LeaderTerm(body.epoch, record.offset))
        elif role in self._terms:
            self._on_deposed(body)
        else:
            if kind_of(role) == JOB_MASTER and self._terms.term_for(DISPATCHER) is not None:
                self._release(role)
            if self._granted and role in self._granted:
                # The process has a grant for this role and has skipped it: process the grants again.
                self._granted = None
        self._participant.granted_epochs(role)

    def _start_term(self, role: str, term: LeaderTerm) -> None:
        # There may be thousands of jobs.
        tell = _log.debug if kind_of(role) == JOB_MASTER else _log.info
        tell("leads", role=role, cluster=self._cluster, epoch=term.epoch)
        self._terms.begin(role, term)
        self._mandates.confirm_leadership(role, term.epoch)
        for role_address in self._in_the_term_of(role):
            self._dirty[role_address] = None
        if all(led in self._terms for led in self._leads):
            self.leading.set()

    def _on_deposed(self, body: LeaderElected) -> None:
        why = f"{body.address} leads {body.role} of {self._cluster} since epoch {body.epoch}"
        if self.leading.is_set() and not self._stands_by:
            term = self._terms.term_for(body.role)
            raise Deposed(
                f"{why}: this process stops leading epoch {term.epoch if term else 0}; running tasks are not touched"
            )
        given = (self._granted or {}).get(body.role)
        self._step_down(body.role, why)
        self._participant.rejoin(body.role, given)

    def _step_down(self, role: str, why: str) -> None:
        tell = _log.debug if kind_of(role) == JOB_MASTER else _log.warning
        tell("steps down", role=role, cluster=self._cluster, why=why)
        affected = self._in_the_term_of(role)
        self._terms.end(role)
        self.leading.clear()
        for role_address in affected:
            self._release(role_address)
        # The election may grant the same role again at once.
        self._granted = None

    def _release(self, role_address: str) -> None:
        """Emits nothing more for the address and gives its shell no more instructions."""
        self._dirty.pop(role_address, None)
        self._deadlines.set(role_address, None)
        shell = self._shells.get(kind_of(role_address))
        if shell is not None:
            shell.retire(role_address)

    def _is_quiescent(self, job: str) -> None:
        """Ends the term of a quiescent job. If the job becomes active again, the process that claims it then leads
        it."""
        if job in self._terms:
            self._terms.end(job)
            self._release(job)

    def _in_the_term_of(self, role: str) -> list[str]:
        """The addresses that are led in the term of a role and whose states are not quiescent."""
        jobs = []
        if role == DISPATCHER:
            claimed = self._replica.leadership.is_claimed
            jobs = [
                job
                for job in self._replica.active_addresses
                if kind_of(job) == JOB_MASTER and not claimed(job)
            ]
        return [role, *jobs] if self._replica.is_active(role) else jobs

    def _poll_timeout(self) -> float:
        if self._mandates.suspended:
            return _LONGEST_WAIT_S
        if self._dirty and self._replica.offset >= self._appended_to:
            return 0.0
        earliest = [
            deadline
            for deadline in (self._deadlines.earliest(), self._participant.next_deadline())
            if deadline is not None
        ]
        if not earliest:
            return _LONGEST_WAIT_S
        return min(_LONGEST_WAIT_S, max(0.0, (min(earliest) - self._clock()) / 1e6))

    def _decide(self) -> None:
        now = self._clock()
        dirty, self._dirty = self._dirty, {}
        for role_address in self._deadlines.pop_expired(now):
            dirty[role_address] = None
        events: list[Event] = []
        for role_address in dirty:
            term = self._terms.term_for(role_address)
            if term is None:
                continue
            role, state = self._replica.role(role_address), self._replica.states[role_address]
            decision = decide_role(role, state, now)
            if decision.error is not None:
                events += self._appender.failure_of(role_address, decision.error)
            elif decision.events:
                events += self._with_headers(
                    role_address, decision.events, term.epoch, now, self._replica.offset, decided=True
                )
            self._deadlines.set(role_address, decision.deadline)
            shell = self._shells.get(kind_of(role_address))
            if shell is not None:
                shell.perform(role_address, decision.instructions, state)
        offsets, left = self._appender.append_some(events)
        if offsets:
            self._appended_to = offsets[-1]
        # The next iteration starts when these events have been read back.
        self._dirty.update(dict.fromkeys(left))

    def _with_headers(
        self,
        sender: str,
        owed: Sequence[OutgoingEvent],
        epoch: int,
        now: Time,
        decided_at: int,
        *,
        decided: bool = False,
    ) -> list[Event]:
        with self._counting:
            count = self._said
            self._said += len(owed)
        return with_headers(
            owed,
            cluster=self._cluster,
            sender=sender,
            epoch=epoch,
            decided_at=decided_at,
            now=now,
            count=count,
            decided=decided,
        )
