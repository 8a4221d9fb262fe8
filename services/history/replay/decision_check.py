"""Deciding again what was decided: `decide(state at decided_at, time)` is a function, so a log can be audited.

A **turn** is one pass of a leader's loop (services/host/host.py): all that the roles of one session owe at one offset
and one time. Whatever shows that there was a turn also says what had to be said in it: each address that the session
leads and whose state had changed since it was last looked at, or whose deadline had passed, is decided on once more,
with its state behind `decided_at`. What was said with `Header.decided` must be that, word for word, and in that order.

So an address that owed something and was passed over is found too, as soon as its session has another turn. What is not
held against anybody: what was fenced, what shells, clients and elections say, what a turn left to the next because it
had said as much as one may, what a job owed that failed because it could not be said (services/host/event_appender.py),
and words that are missing at the end of a session (`cut off`): its process was deposed, or died between two appends,
and its successor says the rest.

A state hash in the log is compared as well: what a leader's states were is a claim about how it had folded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from ....schemas.event import EVERYONE, Event, Record
from ....schemas.everyone import LeaderElected, StateHash
from ....schemas.job_master import JobMasterFailed
from ...core.deadline_heap import DeadlineHeap
from ...core.leadership import LeadershipState
from ...core.reason_limits import truncate_reasons
from ...core.replica import Replica
from ...core.role import JOB_MASTER, OutgoingEvent, Time, kind_of
from ...host.event_appender import MAX_APPEND_BYTES
from ...log import Codec
from ...snapshots.builder import all_roles
from ...snapshots.fingerprint import code_fingerprint
from ...snapshots.state_hash import StateHasher
from .decision_difference import DecisionDifference, DifferenceKind, is_same_decision
from .recent_states import RecentStates

REMEMBERED_STATES = 100_000
"""Changes of states: how far behind its own words a leader may have read the log, to be checked."""

_HEADER_BYTES = 1 << 10
"""By how much the headers of two events may differ in size."""


class ReplayCounts(msgspec.Struct):
    """What has been looked at so far."""

    events: int = 0
    fenced: int = 0
    """Events that no reader takes notice of."""
    turns: int = 0
    decisions: int = 0
    """How often a role was asked to decide."""
    decided: int = 0
    """Events that were held against what is owed."""
    cut_off: int = 0
    """Words that were owed at the end of a session, which did not get to say them."""
    too_old: int = 0
    """Events that were decided on a state from too long ago to be still known."""
    hashes: int = 0
    """State hashes that were compared."""
    differences: int = 0


class _Turn:
    """What is still to come of one turn, by address."""

    __slots__ = ("at", "owed", "said", "time")

    def __init__(self, at: int, time: Time) -> None:
        self.at = at
        self.time = time
        self.owed: dict[str, deque[OutgoingEvent]] = {}
        self.said: list[Record] = []


class _Session:
    """What a session leads that has to be looked at, as its host keeps it."""

    __slots__ = ("deadlines", "dirty", "turn")

    def __init__(self) -> None:
        self.dirty: dict[str, int] = {}
        """Address -> the first offset at which it changed since it was last decided on."""
        self.deadlines = DeadlineHeap()
        self.turn: _Turn | None = None


class DecisionCheck:
    """Folds a log from its beginning, or from where `replica` is, and checks what it tells. For one thread."""

    def __init__(self, replica: Replica | None = None, *, remembered: int = REMEMBERED_STATES) -> None:
        self.replica = all_roles() if replica is None else replica
        self.counts = ReplayCounts()
        self._journal = RecentStates(remembered)
        self._sessions: dict[str, _Session] = {}
        self._led: dict[str, _Session] = {}
        """Address -> the session that leads it, as far as it was asked for since the last LeaderElected."""
        self._leaderships: deque[tuple[int, LeadershipState]] = deque(
            [(self.replica.offset, self.replica.leadership)]
        )
        self._excused_roles: set[str] = set()
        """JobMasters that failed: what they still owe may be what can't be said."""
        self._code = code_fingerprint()
        for role_address, state in self.replica.states.items():
            self._journal.on_states_changed(role_address, self.replica.offset, state)
            self._touched(role_address, self.replica.offset)

    def check_record(self, record: Record) -> list[DecisionDifference]:
        """Folds the next event; returns the differences that it brings to light."""
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
        elif type(body) is JobMasterFailed or _is_spoken_for(record):
            self._excuse(header.sender)
        elif type(body) is StateHash:
            found += self._on_state_hash(record, body)
        changed = replica.apply(record)
        if replica.leadership is not before:
            self._governed(offset)
        for each in changed:
            self._journal.on_states_changed(each, offset, replica.states[each])
            self._touched(each, offset)
        if type(body) is LeaderElected:
            self._on_elected(body, offset, before)
        counts.differences += len(found)
        return found

    def fold(self, record: Record) -> list[DecisionDifference]:
        """Folds the next event, and checks nothing."""
        self.counts.events += 1
        self.replica.apply(record)
        return []

    def check_all(self, records: Iterable[Record]) -> list[DecisionDifference]:
        """As `tell`, of several events."""
        return [each for record in records for each in self.check_record(record)]

    def finish(self) -> None:
        """The log ends here: what was not said by now was cut off."""
        for session in self._sessions.values():
            if session.turn is not None:
                self.counts.cut_off += sum(map(len, session.turn.owed.values()))
                session.turn = None

    def _session_of(self, role_address: str) -> _Session | None:
        """Of whoever leads the address; looked up once until somebody else is elected."""
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

    def _touched(self, role_address: str, offset: int) -> None:
        session = self._session_of(role_address)
        if session is not None:
            session.dirty.setdefault(role_address, offset)

    def _governed(self, offset: int) -> None:
        self._led.clear()
        self._leaderships.append((offset, self.replica.leadership))
        while len(self._leaderships) > 1 and self._leaderships[1][0] <= self._journal.horizon:
            self._leaderships.popleft()

    def _on_elected(self, body: LeaderElected, offset: int, before: LeadershipState) -> None:
        """Whoever leads now looks at all that it leads; whoever did before says nothing more of it."""
        replica = self.replica
        for each in dict.fromkeys([body.role, *replica.addresses_in_term(body.role)]):
            predecessor = before.leader(each)
            session = None if predecessor is None else self._sessions.get(predecessor.session)
            if session is not None:
                session.dirty.pop(each, None)
                session.deadlines.set(each, None)
                if session.turn is not None:
                    self.counts.cut_off += len(session.turn.owed.pop(each, ()))
            if replica.is_active(each):
                self._touched(each, offset)

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
            if turn is not None and turn.owed and _is_full(turn):
                # The rest was decided again in this turn.
                for each in turn.owed:
                    session.dirty.setdefault(each, turn.at)
            else:
                found += self._missing(turn)
            turn = session.turn = self._begin(session, at, header.time)
        self.counts.decided += 1
        turn.said.append(record)
        owed = turn.owed.get(sender)
        if not owed:
            return [*found, self._difference(DifferenceKind.UNEXPECTED, sender, turn, record)]
        first = owed.popleft()
        if not owed:
            del turn.owed[sender]
        if not is_same_decision(record, first):
            found.append(self._difference(DifferenceKind.OTHER, sender, turn, record, first))
        return found

    def _excuse(self, role_address: str) -> None:
        """What it owed could not be said."""
        self._excused_roles.add(role_address)
        session = self._session_of(role_address)
        if session is not None and session.turn is not None:
            session.turn.owed.pop(role_address, None)

    def _begin(self, session: _Session, at: int, time: Time) -> _Turn:
        """The turn as the host takes it: what is owed behind offset `at` by all that had to be looked at then."""
        self.counts.turns += 1
        turn, journal, replica = _Turn(at, time), self._journal, self.replica
        level = self._leadership_behind(at).feature_level
        looked_at = {each: None for each, since in session.dirty.items() if since <= at}
        for each in (
            *looked_at,
            *(due for due in session.deadlines.pop_expired(time) if due not in looked_at),
        ):
            session.dirty.pop(each, None)
            state = journal.states_at(at, each)
            if state is not None:
                role = replica.role(each, level)
                self.counts.decisions += 1
                try:
                    owed, deadline = role.decide(state, time), role.deadline(state)
                except Exception:
                    if kind_of(each) != JOB_MASTER:
                        raise
                    # As for its host, which goes on without this one (services/host/event_appender.py).
                    owed, deadline = [], None
                if owed:
                    turn.owed[each] = deque(owed)
                session.deadlines.set(each, deadline)
            later = journal.first_change_behind(at, each)
            if later is not None:
                session.dirty[each] = later
        return turn

    def _missing(self, turn: _Turn | None) -> list[DecisionDifference]:
        if turn is None:
            return []
        return [
            self._difference(DifferenceKind.MISSING, sender, turn, None, each)
            for sender, owed in turn.owed.items()
            if sender not in self._excused_roles
            for each in owed
        ]

    def _difference(
        self,
        kind: DifferenceKind,
        sender: str,
        turn: _Turn,
        said: Record | None = None,
        owed: OutgoingEvent | None = None,
    ) -> DecisionDifference:
        return DecisionDifference(
            kind,
            sender,
            turn.at,
            turn.time,
            said,
            owed,
            self._journal.states_at(turn.at, sender),
            tuple(each for each in self.replica.recent_events(sender) if each.offset <= turn.at),
        )

    def _leadership_behind(self, offset: int) -> LeadershipState:
        return next(known for since, known in reversed(self._leaderships) if since <= offset)

    def _on_state_hash(self, record: Record, said: StateHash) -> list[DecisionDifference]:
        if said.code_fingerprint != self._code or said.offset < self._journal.horizon:
            return []
        self.counts.hashes += 1
        states = self._journal.all_states_at(said.offset)
        known = _KnownStates(said.offset, states, self._leadership_behind(said.offset))
        own = StateHasher(known).hashes()
        wrong = sorted(kind for kind in said.hashes if own.get(kind) != said.hashes[kind])
        if not wrong:
            return []
        detail = f"the states of {', '.join(wrong)} that it hashed are not those that the log makes today"
        return [
            DecisionDifference(
                DifferenceKind.STATE,
                record.header.sender,
                said.offset,
                record.header.time,
                record,
                detail=detail,
            )
        ]


def _is_spoken_for(record: Record) -> bool:
    """Whether it was said for a JobMaster whose `decide` failed: its shells tell nobody else what happened."""
    header = record.header
    return kind_of(header.sender) == JOB_MASTER and header.recipient not in (header.sender, EVERYONE)


def _is_full(turn: _Turn) -> bool:
    """Whether the turn said as much as one may, so that what it owed besides came later."""
    following = next(iter(turn.owed.values()))[0]
    next_one = Event(turn.said[-1].header, truncate_reasons(following.body)) if turn.said else None
    if next_one is None:
        return False
    codec = Codec("")
    size = sum(len(codec.encode(Event(each.header, each.body))) for each in turn.said)
    try:
        return size + len(codec.encode(next_one)) > MAX_APPEND_BYTES - _HEADER_BYTES
    except ValueError:
        return False


class _KnownStates(msgspec.Struct, frozen=True):
    """What was known behind an offset."""

    offset: int
    states: dict[str, Any]
    leadership: LeadershipState
