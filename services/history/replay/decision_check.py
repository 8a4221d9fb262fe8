"""Checks a log: makes all its decisions again, and compares. `decide(state at decided_at, time)` is a function.

A **turn** is one pass of a leader's loop (services/core/decision.py): all that the roles of one session decide at one
offset and one time. An event of a turn shows that there was one. Then each address that the session leads and that had
to decide in it decides again, on its state at `decided_at`. The events with `Header.decided` must be the result, in the
same order. So an address that had to send an event and did not is found as soon as its session has another turn.

Not compared are: fenced events; the events of shells, clients and elections; the rest of a turn that had appended as
much as one may, which the next turn decides again; what the JobMaster of a failed job could not send
(services/host/event_appender.py); and events that are missing at the end of a session (`cut_off`): its process was
deposed, or died between two appends, and its successor sends the rest.

A state hash in the log is compared as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from ....schemas.dispatcher import JobsForgotten
from ....schemas.event import EVERYONE, Event, Record
from ....schemas.everyone import LeaderElected, StateHash, TaskExecutorsForgotten
from ....schemas.job_master import JobMasterFailed
from ...core.decision import DecisionQueue
from ...core.leadership import LeadershipState
from ...core.reason_limits import truncate_reasons
from ...core.replica import Replica
from ...core.role import JOB_MASTER, AnyRole, OutgoingEvent, Time, kind_of
from ...host.event_appender import MAX_APPEND_BYTES
from ...log import Codec
from ...snapshots.builder import all_roles
from ...snapshots.fingerprint import code_fingerprint
from ...snapshots.state_hash import StateHasher
from .decision_difference import DecisionDifference, DifferenceKind, is_same_decision
from .recent_states import RecentStates

REMEMBERED_STATES = 100_000
"""The number of state changes that are stored: how far a leader may be behind the log to be checked."""

_HEADER_BYTES = 1 << 10
"""The maximum difference between the sizes of two headers."""


class ReplayCounts(msgspec.Struct):
    """The counts up to now."""

    events: int = 0
    fenced: int = 0
    """Events of deposed leaders."""
    turns: int = 0
    decisions: int = 0
    """How often a role decided."""
    decided: int = 0
    """Events that were compared."""
    cut_off: int = 0
    """Events that were missing at the end of a session."""
    too_old: int = 0
    """Events that were decided on a state that is no longer stored."""
    hashes: int = 0
    """State hashes that were compared."""
    differences: int = 0


class _Turn:
    """The events of one turn that the log must have yet, by address."""

    __slots__ = ("at", "expected", "recorded", "time")

    def __init__(self, at: int, time: Time) -> None:
        self.at = at
        self.time = time
        self.expected: dict[str, deque[OutgoingEvent]] = {}
        self.recorded: list[Record] = []


class _Session:
    """A process that leads roles: the addresses that it has to decide for, and its last turn."""

    __slots__ = ("queue", "turn")

    def __init__(self) -> None:
        self.queue = DecisionQueue()
        self.turn: _Turn | None = None


class DecisionCheck:
    """Folds a log from its start, or from where `replica` is, and checks it. For one thread."""

    def __init__(self, replica: Replica | None = None, *, remembered: int = REMEMBERED_STATES) -> None:
        self.replica = all_roles() if replica is None else replica
        self.counts = ReplayCounts()
        self._journal = RecentStates(remembered, self.replica.offset)
        self._sessions: dict[str, _Session] = {}
        self._led: dict[str, _Session] = {}
        """Address -> the session that leads it: a cache since the last LeaderElected."""
        self._leaderships: deque[tuple[int, LeadershipState]] = deque(
            [(self.replica.offset, self.replica.leadership)]
        )
        self._failed_job_masters: set[str] = set()
        """JobMasters of failed jobs: an event that they owe may be the one that cannot be sent."""
        self._code = code_fingerprint()
        for role_address, state in self.replica.states.items():
            self._journal.on_states_changed(role_address, self.replica.offset, state)
            self._mark(role_address, self.replica.offset)

    def check_record(self, record: Record) -> list[DecisionDifference]:
        """Folds the next event; returns the differences that it shows."""
        replica, counts = self.replica, self.counts
        header, body, offset = record.header, record.body, record.offset
        counts.events += 1
        if not replica.accepts(record):
            counts.fenced += 1
            replica.apply(record)
            return []
        before = replica.leadership
        found: list[DecisionDifference] = []
        if header.decided:
            found += self._on_decision(record)
        elif type(body) is JobMasterFailed or _is_sent_by_host(record):
            self._on_job_failed(header.sender)
        elif type(body) is StateHash:
            found += self._on_state_hash(record, body)
        changed = replica.apply(record)
        if replica.leadership is not before:
            self._on_leadership_changed(offset)
        for role_address in changed:
            self._journal.on_states_changed(role_address, offset, replica.states[role_address])
            self._mark(role_address, offset)
        if isinstance(body, TaskExecutorsForgotten):
            for role_address in before.forgotten_roles(record, body):
                self._journal.on_states_changed(role_address, offset, None)
        if isinstance(body, JobsForgotten):
            for role_address in (f"{JOB_MASTER}/{job_id}" for job_id in body.job_ids):
                if role_address not in replica.states:
                    self._journal.on_states_changed(role_address, offset, None)
        if type(body) is LeaderElected:
            self._on_elected(body, offset, before)
        counts.differences += len(found)
        return found

    def fold(self, record: Record) -> list[DecisionDifference]:
        """Folds the next event without a check."""
        self.counts.events += 1
        self.replica.apply(record)
        return []

    def check_all(self, records: Iterable[Record]) -> list[DecisionDifference]:
        """Like `check_record`, for several events."""
        return [difference for record in records for difference in self.check_record(record)]

    def finish(self) -> None:
        """The log ends here: the events that are missing were cut off."""
        for session in self._sessions.values():
            if session.turn is not None:
                self.counts.cut_off += sum(map(len, session.turn.expected.values()))
                session.turn = None

    def _session_of(self, role_address: str) -> _Session | None:
        """Returns the session that leads the address."""
        found = self._led.get(role_address)
        if found is None:
            leader = self.replica.leadership.leader(role_address)
            if leader is None:
                return None
            found = self._sessions.get(leader.session)
            if found is None:
                found = self._sessions[leader.session] = _Session()
            self._led[role_address] = found
        return found

    def _mark(self, role_address: str, offset: int) -> None:
        session = self._session_of(role_address)
        if session is not None:
            session.queue.mark(role_address, offset)

    def _on_leadership_changed(self, offset: int) -> None:
        self._led.clear()
        self._leaderships.append((offset, self.replica.leadership))
        while len(self._leaderships) > 1 and self._leaderships[1][0] <= self._journal.horizon:
            self._leaderships.popleft()

    def _on_elected(self, body: LeaderElected, offset: int, before: LeadershipState) -> None:
        """The new leader decides for all its addresses; its predecessor sends nothing more for them."""
        replica = self.replica
        for address in dict.fromkeys([body.role, *replica.addresses_in_term(body.role)]):
            predecessor = before.leader(address)
            session = None if predecessor is None else self._sessions.get(predecessor.session)
            if session is not None:
                session.queue.remove(address)
                if session.turn is not None:
                    self.counts.cut_off += len(session.turn.expected.pop(address, ()))
            if replica.is_active(address):
                self._mark(address, offset)

    def _on_decision(self, record: Record) -> list[DecisionDifference]:
        header = record.header
        sender, at = header.sender, header.decided_at
        session = self._session_of(sender)
        if session is None or at is None:
            self.counts.too_old += 1
            return []
        found: list[DecisionDifference] = []
        turn = session.turn
        if turn is None or turn.at != at or turn.time != header.time:
            if at < self._journal.horizon:
                self.counts.too_old += 1
                return []
            if turn is not None and turn.expected and _is_full(turn):
                # The rest was decided again in this turn.
                for role_address in turn.expected:
                    session.queue.mark(role_address, turn.at)
            else:
                found += self._missing(turn)
            turn = session.turn = self._start_turn(session, at, header.time)
        self.counts.decided += 1
        turn.recorded.append(record)
        expected = turn.expected.get(sender)
        if not expected:
            return [*found, self._difference(DifferenceKind.UNEXPECTED, sender, turn, record)]
        first = expected.popleft()
        if not expected:
            del turn.expected[sender]
        if not is_same_decision(record, first):
            found.append(self._difference(DifferenceKind.OTHER, sender, turn, record, first))
        return found

    def _on_job_failed(self, role_address: str) -> None:
        """The events of the address could not be sent."""
        self._failed_job_masters.add(role_address)
        session = self._session_of(role_address)
        if session is not None and session.turn is not None:
            session.turn.expected.pop(role_address, None)

    def _start_turn(self, session: _Session, at: int, time: Time) -> _Turn:
        """Returns the turn as the host takes it: the events that all addresses require which had to decide at `at`."""
        self.counts.turns += 1
        turn, journal, replica = _Turn(at, time), self._journal, self.replica
        level = self._leadership_behind(at).feature_level

        def find(role_address: str) -> tuple[AnyRole, Any] | None:
            state = journal.states_at(at, role_address)
            return None if state is None else (replica.role(role_address, level), state)

        for role_address, _, decision in session.queue.decide(time, find, at):
            self.counts.decisions += 1
            if decision.error is not None and kind_of(role_address) != JOB_MASTER:
                raise decision.error
            # The host fails the job of a JobMaster that cannot decide, and continues.
            if decision.events:
                turn.expected[role_address] = deque(decision.events)
            later = journal.first_change_behind(at, role_address)
            if later is not None:
                session.queue.mark(role_address, later)
        return turn

    def _missing(self, turn: _Turn | None) -> list[DecisionDifference]:
        if turn is None:
            return []
        return [
            self._difference(DifferenceKind.MISSING, sender, turn, None, event)
            for sender, expected in turn.expected.items()
            if sender not in self._failed_job_masters
            for event in expected
        ]

    def _difference(
        self,
        kind: DifferenceKind,
        sender: str,
        turn: _Turn,
        recorded: Record | None = None,
        expected: OutgoingEvent | None = None,
    ) -> DecisionDifference:
        return DecisionDifference(
            kind,
            sender,
            turn.at,
            turn.time,
            recorded,
            expected,
            self._journal.states_at(turn.at, sender),
            tuple(event for event in self.replica.recent_events(sender) if event.offset <= turn.at),
        )

    def _leadership_behind(self, offset: int) -> LeadershipState:
        return next(known for since, known in reversed(self._leaderships) if since <= offset)

    def _on_state_hash(self, record: Record, body: StateHash) -> list[DecisionDifference]:
        if body.code_fingerprint != self._code or body.offset < self._journal.horizon:
            return []
        self.counts.hashes += 1
        states = self._journal.all_states_at(body.offset)
        known = _KnownStates(body.offset, states, self._leadership_behind(body.offset))
        own = StateHasher(known).hashes()
        wrong = sorted(kind for kind in body.hashes if own.get(kind) != body.hashes[kind])
        if not wrong:
            return []
        detail = f"the hashed states of {', '.join(wrong)} differ from those of this release"
        return [
            DecisionDifference(
                DifferenceKind.STATE,
                record.header.sender,
                body.offset,
                record.header.time,
                record,
                detail=detail,
            )
        ]


def _is_sent_by_host(record: Record) -> bool:
    """Returns whether the host sent the event for a JobMaster whose `decide` failed: its shells send to itself only."""
    header = record.header
    return kind_of(header.sender) == JOB_MASTER and header.recipient not in (header.sender, EVERYONE)


def _is_full(turn: _Turn) -> bool:
    """Returns whether the turn appended as much as one may, so that the rest came later."""
    following = next(iter(turn.expected.values()))[0]
    next_one = Event(turn.recorded[-1].header, truncate_reasons(following.body)) if turn.recorded else None
    if next_one is None:
        return False
    codec = Codec("")
    size = sum(len(codec.encode(Event(record.header, record.body))) for record in turn.recorded)
    try:
        return size + len(codec.encode(next_one)) > MAX_APPEND_BYTES - _HEADER_BYTES
    except ValueError:
        return False


class _KnownStates(msgspec.Struct, frozen=True):
    """The states and leaders after an offset."""

    offset: int
    states: dict[str, Any]
    leadership: LeadershipState
