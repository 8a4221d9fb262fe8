"""Timers: for each key, the times at which its function is called.

They fire in the order of (time, canonical form of the key): the same order in every process and after every restore.
Two timers of one key and time are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...types import RecordType
from ..records.buffers import MAX_WATERMARK
from .changelog import ChangeKind, StateChange
from .entry_store import HEAP, EntryStore
from .table import INT, StateTable, TableLayout, WrittenForm
from .timer_queue import Timer
from .type_coverage import Taking


class TimerTable(StateTable):
    """The timers of one time domain."""

    def __init__(
        self, name: str, key_type: RecordType, max_parallelism: int, store: EntryStore = HEAP
    ) -> None:
        super().__init__(name, "timer", key_type, max_parallelism, store=store)
        self._entries = self._keyed_layout([*self._key_columns(), ("time", INT)])
        self._timers = store.create_timers(name)
        self._touched: dict[Timer, None] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._timers

    def register(self, key: Any, time: int) -> bool:
        """Adds a timer; returns False if it exists. Raises UnstableKey, and TypeError for a time that is no integer of
        64 bits."""
        timer = time if type(time) is int and -MAX_WATERMARK <= time <= MAX_WATERMARK else _time_of(time), key
        if not self._timers.add(timer):
            return False
        self._touched[timer] = None
        return True

    def delete(self, key: Any, time: int) -> None:
        """Removes a timer, if it exists."""
        timer = time, key
        if self._timers.remove(timer):
            self._touched[timer] = None

    def pop_due(self, time: int) -> Timer | None:
        """Removes and returns the first timer that is not after this time; None if there is none."""
        timer = self._timers.first()
        if timer is None or timer[0] > time:
            return None
        self._timers.remove(timer)
        self._touched[timer] = None
        return timer

    @property
    def next_time(self) -> int:
        """Returns when the first timer is due (ms); END_OF_TIME if there is none."""
        timer = self._timers.first()
        return MAX_WATERMARK if timer is None else timer[0]

    def clear(self) -> None:
        """Removes all timers."""
        self._touched.update(dict.fromkeys(self._timers))
        self._timers.clear()

    def take_changes(self) -> Iterator[StateChange]:
        touched, self._touched = self._touched, {}
        for kind, timers in (
            (ChangeKind.REMOVE, [timer for timer in touched if timer not in self._timers]),
            (ChangeKind.PUT, [timer for timer in touched if timer in self._timers]),
        ):
            if timers:
                times, keys = map(list, zip(*timers, strict=True))
                yield StateChange(kind, self._entries.encode([self._groups(keys), keys, times]))

    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: WrittenForm | None = None,
    ) -> None:
        _, keys, times = self._entries.decode(payload, taking)
        timers = list(zip(times, keys, strict=True))
        match kind:
            case ChangeKind.PUT:
                for timer in timers:
                    self._timers.add(timer)
            case ChangeKind.REMOVE:
                for timer in timers:
                    self._timers.remove(timer)
            case _:
                raise self._refuse(kind)

    def _rows(self, section: range | None = None) -> Iterator[Timer]:
        return iter(self._timers) if section is None else self._timers.read_section(section)

    def _put_columns(self, rows: Iterable[Timer]) -> tuple[TableLayout, list[Sequence[Any]]]:
        timers = list(rows)
        keys = [key for _, key in timers]
        return self._entries, [self._groups(keys), keys, [time for time, _ in timers]]

    def snapshot(self) -> set[Timer]:
        """Returns (time, key) of each timer."""
        return set(self._timers)


def _time_of(value: Any) -> int:
    """Returns the time that a program gives as another integer, such as one of numpy."""
    time = int(value) if hasattr(type(value), "__index__") and not isinstance(value, bool) else None
    if time is None or not -MAX_WATERMARK <= time <= MAX_WATERMARK:
        raise TypeError(f"the time of a timer is {value!r}: give an int, milliseconds since the epoch")
    return time
