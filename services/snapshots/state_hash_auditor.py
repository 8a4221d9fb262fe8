"""Whether this replica has come to the same states as the others: StateHash.

Behind each multiple of an interval of offsets, which follows from the log alone, every replica of the masters hashes
its states and says so in the log: the leader of the Dispatcher as such, the others as standbys. A replica that has
others has gone astray: it was folded by code that is not deterministic, or its memory is broken, and whatever it says
may be wrong. So whoever differs from the majority stops, be it the leader, and says where. Where as many say one thing
as another, nobody can tell who is right: those stay that agree with the leader. Of two masters the standby stops then.

It is judged a while after the first difference was seen, when all have spoken. The states of the last mark are kept for
that: they are frozen data, of which little is not shared with those of now.
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
from .state_hash import StateHasher, StateView

_log = logger(__name__)
VOTE_TIMEOUT_S = 10.0
"""How long after the first difference it is judged."""
_MAX_MARKS = 16
"""Marks whose hashes are known."""
_MAX_VOTES = 64
"""Of one mark."""


class ReplicaDiverged(Exception):
    """This replica's states are not what the log says."""


class StateHashMark:
    """What a replica knew behind an offset."""

    def __init__(self, replica: Replica, offset: int) -> None:
        self.offset = offset
        self.states: Mapping[str, Any] = dict(replica.states)
        self.leadership: LeadershipState = replica.leadership


class StateHashAuditor:
    """The watcher of a masters' replica. `me` is the session of this process.

    `say` appends what this process tells, as the Dispatcher or as a standby; `later` calls a function in PATIENCE_S, on
    any thread; `fail` ends this process; `keep` writes down the states of a replica that has gone astray and returns
    where; `on_snapshot` is told of every SnapshotTaken.
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
        self._hasher = StateHasher(replica)
        self._own: dict[int, Mapping[str, str]] = {}
        self._votes: dict[int, dict[str, Mapping[str, str]]] = {}
        """Offset -> what each session has said."""
        self._leaders: dict[int, tuple[str, str]] = {}
        """Offset -> session and address of the leader that has said something."""
        self._judging = threading.Lock()
        self._last: StateHashMark | None = None
        self._agreed = replica.offset
        self._marked = replica.offset - 1
        """The last mark."""
        self._told = 0
        """How many StateHash have come since."""
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
        # Hashes alone, which many masters say at a small interval, call for no more hashes.
        if at - self._marked > self._told:
            body = StateHash(offset=at, hashes=hashes, code_fingerprint=self._code)
            self._say(OutgoingEvent(EVERYONE, body, None))
        self._marked, self._told = at, 0
        return self._next_mark(offset)

    def on_event(self, record: Record) -> None:
        match record.body:
            case SnapshotTaken() as taken:
                self._on_snapshot(record, taken)
            case StateHash() as said:
                self._told += 1
                self._compare(said, record)
            case _:
                pass

    def _next_mark(self, offset: int) -> int:
        if not self._interval:
            return sys.maxsize
        return (max(offset, 0) // self._interval + 1) * self._interval

    def _compare(self, said: StateHash, record: Record) -> None:
        at, own, voter = said.offset, self._own.get(said.offset), self._voter(record)
        if own is None or voter is None:
            return
        if said.code_fingerprint != self._code:
            _log.debug("state hashes of other code are not compared", offset=at)
            return
        with self._judging:
            votes = self._votes.setdefault(at, {})
            is_first = all(each == own for each in votes.values())
            if len(votes) < _MAX_VOTES:
                votes[voter] = said.hashes
        if said.hashes == own:
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
        """Ends this process, if the states that it had behind an offset are not those of most masters."""
        with self._judging:
            own = self._own.get(at)
            if own is None:
                return
            votes = {**self._votes.get(at, {}), self._me: own}
            session, address = self._leaders.get(at, ("", ""))
        counts = Counter(_key(each) for each in votes.values())
        led = _key(votes[session]) if session in votes else None
        right = max(counts, key=lambda key: (counts[key], key == led, key))
        if right == _key(own):
            if len(counts) > 1:
                _log.warning(
                    "other masters have gone astray, and stop", offset=at, agree=counts[right], of=len(votes)
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
            whose = f"{address}, which leads the dispatcher, and no majority says which of them are right"
        where = "" if marked is None else f"; its states are in {self._keep(marked)}"
        self._fail(
            ReplicaDiverged(
                f"the states of {', '.join(wrong)} in this process are not those of {whose}: they went astray between "
                f"offsets {self._agreed + 1} and {at}{where}; compare with `tailrace state --at {at} --output json`. "
                "This process stops: started again, it reads the log anew"
            )
        )


def _key(hashes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(hashes.items()))
