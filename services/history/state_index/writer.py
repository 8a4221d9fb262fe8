"""Writing the history index down: the marks that somebody passes who folds a log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ....schemas.event import Record
from ...core.replica import Replica
from ...core.role import kind_of
from ...snapshots.encoding import LEADERSHIP, decode
from ...snapshots.state_delta import Key, changes
from ..lazy_states import LazyStates
from .index import StateIndex
from .index_file import IndexMark


class StateIndexWriter:
    """Folds a log into a replica, and writes down the marks that it passes."""

    def __init__(
        self,
        index: StateIndex,
        replica: Replica,
        mark: IndexMark | None,
        *,
        apply: Callable[[Record], object] | None = None,
        when_marked: Callable[[int], object] | None = None,
    ) -> None:
        """`mark`: where the replica was restored; None: nothing was folded in it yet. `apply`: who has the replica fold
        each event, if not the recorder; `when_marked` is called with the offset of each mark that has been written."""
        self._apply = apply or replica.apply
        self._when_marked = when_marked
        self._index: StateIndex | None = index
        self._generation = index.generation
        self._interval = index.interval
        self._replica = replica
        self._mark = mark
        self._states: dict[str, Any] = {}
        """Those of the last mark, as far as they are not those that the replica was restored with."""
        self._leadership = None if mark is None else replica.leadership
        self._latest = -(1 << 62) if mark is None else mark.latest
        self._last: Record | None = None
        self._next = self._behind(0 if mark is None else mark.offset + 1)

    def fold(self, batch: list[Record]) -> None:
        """The next events of the log."""
        while batch:
            here = bisect_left(batch, self._next, key=_offset)
            for record in batch[:here]:
                self._apply(record)
            if here:
                self._last = batch[here - 1]
                self._latest = max(self._latest, max(each.header.time for each in batch[:here]))
            if here == len(batch):
                return
            self.on_offset_reached(batch[here].offset)
            batch = batch[here:]

    def on_offset_reached(self, end: int) -> None:
        """All events below `end` were folded, and none behind it."""
        if end < self._next:
            return
        offset, self._next = self._next - 1, self._behind(end)
        if self._index is None or self._last is None:
            return
        header = self._last.header
        awake = msgspec.json.encode(sorted(self._replica.active_addresses)).decode()
        mark = IndexMark(offset, self._last.offset, header.event_id, header.time, self._latest, awake)
        before = None if self._mark is None else self._mark.offset
        # Also where another process is ahead: what comes next is compared with this.
        changed = list(self._changed())
        if not self._index.write(mark, before, changed, self._generation):
            self._index = None
        elif self._when_marked is not None:
            self._when_marked(offset)
        self._mark = mark

    def _changed(self) -> Iterator[tuple[str, dict[Key, bytes | None]]]:
        """The pieces by address that are not as they were at the last mark."""
        states = self._replica.states
        stored = states if isinstance(states, LazyStates) else LazyStates({})
        for role_address in states:
            if stored.bytes_of(role_address) is not None:
                continue
            after, before = states[role_address], self._states.get(role_address)
            if after is before:
                continue
            if before is None and role_address in stored.stored:
                before = decode(kind_of(role_address), stored.stored[role_address])
            self._states[role_address] = after
            if found := changes(before, after):
                yield role_address, found
        leadership, self._leadership = self._leadership, self._replica.leadership
        if self._leadership is not leadership:
            yield LEADERSHIP, changes(leadership, self._leadership)

    def _behind(self, position: int) -> int:
        """The end of the first stretch that has events at `position` or behind it."""
        return (position // self._interval + 1) * self._interval


def _offset(record: Record) -> int:
    return record.offset
