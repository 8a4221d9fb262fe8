"""Whether this replica has come to the same states as the others: StateHash.

Behind each multiple of an interval of offsets, which follows from the log alone, every replica of the masters hashes
its states; the Dispatcher's leader says its hashes. A replica that has others has gone astray: it was folded by code
that is not deterministic, or its memory is broken, and whatever it says may be wrong. So it stops, and says where.
It keeps the states of its last mark for that: they are frozen data, of which little is not shared with those of now.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from ...schemas.event import EVERYONE, Record
from ...schemas.everyone import SnapshotTaken, StateHash
from ..diagnostics import logger
from ..leadership import Leadership
from ..replica import Replica
from ..roles import DISPATCHER, Owed
from .fingerprint import code_fingerprint
from .hashing import Knowledge, StateHasher

_log = logger(__name__)
_REMEMBERED = 16


class ReplicaDiverged(Exception):
    """This replica's states are not what the log says."""


class Marked:
    """What a replica knew behind an offset."""

    def __init__(self, replica: Replica, offset: int) -> None:
        self.offset = offset
        self.states: Mapping[str, Any] = dict(replica.states)
        self.leadership: Leadership = replica.leadership


class StateAudit:
    """The watcher of a masters' replica.

    `say` is told what the Dispatcher says, if this process leads it; `keep` writes down the states of a replica that
    has gone astray and returns where; `on_snapshot` is told of every SnapshotTaken.
    """

    def __init__(
        self,
        replica: Replica,
        interval: int,
        *,
        say: Callable[[Owed], None],
        keep: Callable[[Knowledge], str],
        on_snapshot: Callable[[Record, SnapshotTaken], None] = lambda *_: None,
    ) -> None:
        self._replica = replica
        self._interval = interval
        self._say = say
        self._keep = keep
        self._on_snapshot = on_snapshot
        self._code = code_fingerprint()
        self._hasher = StateHasher(replica)
        self._own: dict[int, Mapping[str, str]] = {}
        self._last: Marked | None = None
        self._agreed = replica.offset
        replica.watch(self, self._mark_behind(replica.offset))

    def reached(self, offset: int) -> int:
        at = offset - offset % self._interval - 1
        hashes = self._hasher.hashes()
        self._own[at] = hashes
        while len(self._own) > _REMEMBERED:
            del self._own[next(iter(self._own))]
        self._last = Marked(self._replica, at)
        body = StateHash(offset=at, hashes=hashes, code_fingerprint=self._code)
        self._say(Owed(EVERYONE, body, None))
        return self._mark_behind(offset)

    def told(self, record: Record) -> None:
        """Raises ReplicaDiverged."""
        match record.body:
            case SnapshotTaken() as taken:
                self._on_snapshot(record, taken)
            case StateHash() as said:
                self._compare(said, record)
            case _:
                pass

    def _mark_behind(self, offset: int) -> int:
        if not self._interval:
            return sys.maxsize
        return (max(offset, 0) // self._interval + 1) * self._interval

    def _compare(self, said: StateHash, record: Record) -> None:
        own = self._own.get(said.offset)
        if own is None or record.header.sender != DISPATCHER:
            return
        if said.code_fingerprint != self._code:
            _log.debug("state hashes of other code are not compared", offset=said.offset)
            return
        wrong = sorted(kind for kind in {*own, *said.hashes} if own.get(kind) != said.hashes.get(kind))
        if not wrong:
            self._agreed = max(self._agreed, said.offset)
            return
        leader = self._replica.leadership.leaders.get(DISPATCHER)
        who = leader.address if leader else record.header.sender
        where = ""
        if self._last is not None and self._last.offset == said.offset:
            where = f"; its states are in {self._keep(self._last)}"
        raise ReplicaDiverged(
            f"the states of {', '.join(wrong)} in this process are not those of {who}, which leads the dispatcher: "
            f"they went astray between offsets {self._agreed + 1} and {said.offset}{where}; compare with `tailrace "
            f"state --at {said.offset} --output json`. This process stops: started again, it reads the log anew"
        )
