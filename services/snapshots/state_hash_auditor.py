"""Compares this replica's states with those of the other masters (StateHash).

After each multiple of an offset interval, which all replicas derive from the log, every master hashes its states and
appends the hashes: the leader of the Dispatcher as such, the others as standbys. A replica with different hashes has
diverged: its code is not deterministic or its memory is faulty, and none of its events can be trusted. A master that
differs from the majority therefore stops, even if it leads, and reports where. Without a majority the masters that
agree with the leader continue; of two masters the standby stops.

The verdict follows some time after the first difference, when all masters have appended their hashes. The states of the
last mark are kept until then: they are frozen data and share most of their content with the current states.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE, Record
from ...schemas.everyone import SnapshotTaken, StateHash
from ..core.leadership import LeadershipState
from ..core.replica import Replica
from ..core.role import DISPATCHER, STANDBY, OutgoingEvent, instance_of, kind_of
from .fingerprint import code_fingerprint
from .state_hash import RepeatedStateHasher, StateView

_log = logger(__name__)
VOTE_TIMEOUT_S = 10.0
"""The delay between the first difference and the verdict."""
_MAX_MARKS = 16
"""The number of marks whose hashes are kept."""
_MAX_VOTES = 64
"""The hashes of one mark."""


class ReplicaDiverged(Exception):
    """The states of this replica differ from those of the other masters."""


class StateHashMark:
    """The states of a replica after an offset."""

    def __init__(self, replica: Replica, offset: int) -> None:
        self.offset = offset
        self.states: Mapping[str, Any] = dict(replica.states)
        self.leadership: LeadershipState = replica.leadership


class StateHashAuditor:
    """The listener of a master's replica. `me` is the session of this process.

    `say` appends an event of this process, as the Dispatcher or as a standby; `later` calls a function after the delay,
    on any thread; `fail` ends this process; `keep` writes the diverged states and returns the location; `on_snapshot`
    is called for every SnapshotTaken.
    """

    def __init__(
        self,
        replica: Replica,
        interval: int,
        *,
        me: str,
        say: Callable[[OutgoingEvent], None],
        fail: Callable[[Exception], None],
        later: Callable[[Callable[[], None]], None],
        keep: Callable[[StateView], str],
        on_snapshot: Callable[[Record, SnapshotTaken], None] = lambda *_: None,
    ) -> None:
        self._replica = replica
        self._interval = interval
        self._me = me
        self._say = say
        self._fail = fail
        self._later = later
        self._keep = keep
        self._on_snapshot = on_snapshot
        self._code = code_fingerprint()
        self._hasher = RepeatedStateHasher(replica)
        self._own: dict[int, Mapping[str, str]] = {}
        self._votes: dict[int, dict[str, Mapping[str, str]]] = {}
        """Offset -> the hashes of each session."""
        self._leaders: dict[int, tuple[str, str]] = {}
        """Offset -> session and address of the leader that appended its hashes."""
        self._judging = threading.Lock()
        self._last: StateHashMark | None = None
        self._agreed = replica.offset
        self._marked = replica.offset - 1
        """The last mark."""
        self._count = 0
        """The number of StateHash events since then."""
        replica.watch(self, self._next_mark(replica.offset))

    def on_position(self, offset: int) -> int:
        at = offset - offset % self._interval - 1
        hashes = self._hasher.hashes()
        with self._judging:
            self._own[at] = hashes
            while len(self._own) > _MAX_MARKS:
                oldest = next(iter(self._own))
                for known in (self._own, self._votes, self._leaders):
                    known.pop(oldest, None)
        self._last = StateHashMark(self._replica, at)
        # StateHash events alone, of which many masters append many, need no further hashes.
        if at - self._marked > self._count:
            body = StateHash(offset=at, hashes=hashes, code_fingerprint=self._code)
            self._say(OutgoingEvent(EVERYONE, body, None))
        self._marked, self._count = at, 0
        return self._next_mark(offset)

    def on_event(self, record: Record) -> None:
        match record.body:
            case SnapshotTaken() as taken:
                self._on_snapshot(record, taken)
            case StateHash() as state_hash:
                self._count += 1
                self._compare(state_hash, record)
            case _:
                pass

    def _next_mark(self, offset: int) -> int:
        if not self._interval:
            return sys.maxsize
        return (max(offset, 0) // self._interval + 1) * self._interval

    def _compare(self, state_hash: StateHash, record: Record) -> None:
        at, own, voter = state_hash.offset, self._own.get(state_hash.offset), self._voter(record)
        if own is None or voter is None:
            return
        if state_hash.code_fingerprint != self._code:
            _log.debug("state hashes of other code are not compared", offset=at)
            return
        with self._judging:
            votes = self._votes.setdefault(at, {})
            is_first = all(vote == own for vote in votes.values())
            if len(votes) < _MAX_VOTES:
                votes[voter] = state_hash.hashes
        if state_hash.hashes == own:
            self._agreed = max(self._agreed, at)
        elif is_first:
            marked = self._last if self._last is not None and self._last.offset == at else None
            self._later(lambda: self._judge(at, marked))

    def _voter(self, record: Record) -> str | None:
        sender = record.header.sender
        if kind_of(sender) == STANDBY:
            return instance_of(sender)
        leader = self._replica.leadership.leaders.get(DISPATCHER)
        if sender != DISPATCHER or leader is None or not isinstance(record.body, StateHash):
            return None
        self._leaders[record.body.offset] = (leader.session, leader.address)
        return leader.session

    def _judge(self, at: int, marked: StateHashMark | None) -> None:
        """Ends this process if its states at an offset differ from those of most masters."""
        with self._judging:
            own = self._own.get(at)
            if own is None:
                return
            votes = {**self._votes.get(at, {}), self._me: own}
            session, address = self._leaders.get(at, ("", ""))
        counts = Counter(_key(vote) for vote in votes.values())
        led = _key(votes[session]) if session in votes else None
        right = max(counts, key=lambda key: (counts[key], key == led, key))
        if right == _key(own):
            if len(counts) > 1:
                _log.warning(
                    "other masters have diverged and stop", offset=at, agree=counts[right], of=len(votes)
                )
            return
        others = dict(right)
        wrong = sorted(kind for kind in {*own, *others} if own.get(kind) != others.get(kind))
        if session == self._me:
            whose = f"{counts[right]} of {len(votes)} masters, although it leads the dispatcher"
        elif right != led:
            whose = f"{counts[right]} of {len(votes)} masters"
        elif counts[right] > counts[_key(own)]:
            whose = f"{address}, which leads the dispatcher, and of {counts[right]} of {len(votes)} masters"
        else:
            whose = f"{address}, which leads the dispatcher, and there is no majority"
        where = "" if marked is None else f"; its states are in {self._keep(marked)}"
        self._fail(
            ReplicaDiverged(
                f"the states of {', '.join(wrong)} in this process differ from those of {whose}: they diverged between "
                f"offsets {self._agreed + 1} and {at}{where}; compare with `tailrace state --at {at} --output json`. "
                "This process stops: after a restart it replays the log"
            )
        )


def _key(hashes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(hashes.items()))
