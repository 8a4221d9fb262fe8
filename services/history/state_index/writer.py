"""Folds a log into a replica, and writes marks into the history index."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from ....schemas.event import Record
from ...core.replica import Replica
from ...core.role import kind_of
from ...snapshots.encoding import LEADERSHIP, decode
from ...snapshots.fingerprint import code_fingerprint
from ...snapshots.state_delta import Key, changes
from ..lazy_states import LazyStates
from .index import IndexMark, Pieces, RestoredMark, StateIndex


class StateIndexWriter:
    """Writes a mark at each interval of offsets."""

    def __init__(
        self,
        index: StateIndex,
        replica: Replica,
        mark: RestoredMark | None,
        *,
        apply: Callable[[Record], object] | None = None,
        when_marked: Callable[[int], object] | None = None,
    ) -> None:
        """`mark`: the mark at which the replica was restored; None: the replica is new. `apply` folds an event into the
        replica, by default `replica.apply`; `when_marked` is called with the offset of each written mark."""
        self._apply = apply or replica.apply
        self._when_marked = when_marked
        self._index: StateIndex | None = index
        self._interval = index.interval
        self._replica = replica
        self._before = None if mark is None else mark.offset
        self._pieces: Pieces = {} if mark is None else mark.pieces
        self._size = sum(len(data) for state in self._pieces.values() for data in state.values())
        self._changes_size = 0 if mark is None else mark.changes_size
        self._states: dict[str, Any] = {}
        """The states at the last mark that have changed since the replica was restored."""
        self._leadership = None if mark is None else replica.leadership
        self._latest = -(1 << 62) if mark is None else mark.latest
        self._last: Record | None = None
        self._next = self._behind(0 if mark is None else mark.offset + 1)

    def fold(self, batch: list[Record]) -> None:
        """Folds the next events of the log."""
        while batch:
            here = bisect_left(batch, self._next, key=_offset)
            for record in batch[:here]:
                self._apply(record)
            if here:
                self._last = batch[here - 1]
                self._latest = max(self._latest, max(record.header.time for record in batch[:here]))
            if here == len(batch):
                return
            self.on_offset_reached(batch[here].offset)
            batch = batch[here:]

    def on_offset_reached(self, end: int) -> None:
        """All events below `end` were folded, and no others."""
        if end < self._next:
            return
        offset, self._next = self._next - 1, self._behind(end)
        if self._index is None or self._last is None:
            return
        # Also if another process has written it: the next mark is computed from this one.
        mark = self._mark(offset, self._last)
        if not self._index.write(mark):
            self._index = None
        elif self._when_marked is not None:
            self._when_marked(offset)
        self._before = offset

    def _mark(self, offset: int, last: Record) -> IndexMark:
        changed = _in_order(dict(self._changed()))
        mark = IndexMark(
            offset,
            self._latest,
            last.offset,
            last.header.event_id,
            last.header.time,
            sorted(self._replica.active_addresses),
            code_fingerprint(),
            self._before,
            changed,
        )
        for address, field, key, data in changed:
            held = self._pieces.get(address, {}).get((field, key), b"")
            self._size += len(data or b"") - len(held)
        mark.apply(self._pieces)
        self._changes_size += mark.size
        if self._before is not None and self._changes_size <= self._size:
            return mark
        self._changes_size = 0
        return replace(mark, before=None, changed=_in_order(self._pieces))

    def _changed(self) -> Iterator[tuple[str, Mapping[Key, bytes | None]]]:
        """Yields (address, changed pieces since the last mark)."""
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
        for role_address in [each for each in self._pieces if each != LEADERSHIP and each not in states]:
            self._states.pop(role_address, None)
            yield role_address, dict.fromkeys(self._pieces[role_address])
        leadership, self._leadership = self._leadership, self._replica.leadership
        if self._leadership is not leadership:
            yield LEADERSHIP, changes(leadership, self._leadership)

    def _behind(self, position: int) -> int:
        """Returns the end of the interval of a position."""
        return (position // self._interval + 1) * self._interval


def _in_order(
    pieces: Mapping[str, Mapping[Key, bytes | None]] | Pieces,
) -> list[tuple[str, str, bytes, bytes | None]]:
    """Returns the pieces in an order that does not depend on the process."""
    return [
        (address, field, key, state[field, key])
        for address, state in sorted(pieces.items())
        for field, key in sorted(state)
    ]


def _offset(record: Record) -> int:
    return record.offset
