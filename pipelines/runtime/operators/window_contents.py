"""The contents of the windows of an operator with a trigger or an evictor, by key and window: an accumulator, or the
records with their timestamps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...functions.evictor import Evictor, TimestampedValue
from ...functions.window import TimeWindow
from ...types import RecordType, Scalar, TupleOf
from ..records.record_copying import create_copier
from ..state_backend.window_key import WindowKey
from ..state_backend.window_scope import WindowScope
from .aggregation import Aggregation
from .trigger_context import WindowTimes

_INT: Final = Scalar("int")
Call = Callable[[Sequence[Any]], None]
"""Emits the results of elements."""


class WindowContents(ABC):
    """The contents of windows."""

    @abstractmethod
    def add(self, place: WindowKey, value: Any, timestamp: int) -> None:
        """Adds a record."""

    @abstractmethod
    def merge(self, place: WindowKey, others: Sequence[WindowKey]) -> None:
        """Moves the contents of others, which began later, into one."""

    @abstractmethod
    def fire(self, place: WindowKey, window: TimeWindow, call: Call) -> None:
        """Calls the function with the elements, if there are any."""

    @abstractmethod
    def clear(self, place: WindowKey) -> None:
        """Removes the contents."""


class AggregatedContents(WindowContents):
    """One accumulator for each window; its element is the result."""

    def __init__(self, scope: WindowScope, folded_type: RecordType, folding: Aggregation) -> None:
        self._table = scope.value_table("~contents", folded_type)
        self._folding = folding

    def add(self, place: WindowKey, value: Any, timestamp: int) -> None:
        held = self._table.space()
        folding = self._folding
        folded = folding.add(held[place], value) if place in held else folding.first(value)
        self._table.put(place, folded)

    def merge(self, place: WindowKey, others: Sequence[WindowKey]) -> None:
        held = self._table.space()
        for other in others:
            if other in held:
                folded = held[other]
                if place in held:
                    folded = self._folding.merge(held[place], folded)
                self._table.put(place, folded)
                self._table.remove(other)

    def fire(self, place: WindowKey, window: TimeWindow, call: Call) -> None:
        held = self._table.space()
        if place in held:
            call((self._folding.result(held[place]),))

    def clear(self, place: WindowKey) -> None:
        self._table.remove(place)


class RecordContents(WindowContents):
    """The records: number -> (timestamp, record), in the order of arrival."""

    def __init__(
        self,
        scope: WindowScope,
        record_type: RecordType,
        folding: Aggregation | None,
        evictor: Evictor[Any] | None,
        times: WindowTimes,
    ) -> None:
        """`folding`: aggregates the records when the window fires."""
        self._table = scope.map_table("~records", _INT, TupleOf((_INT, record_type)))
        self._folding = folding
        self._evictor = evictor
        self._times = times
        # Windows keep their records when they fire.
        self._copy = create_copier(record_type)

    def add(self, place: WindowKey, value: Any, timestamp: int) -> None:
        number = next(reversed(self._table.get(place)), -1) + 1
        self._table.put(place, number, (timestamp, value))

    def merge(self, place: WindowKey, others: Sequence[WindowKey]) -> None:
        for other in others:
            for timestamp, value in list(self._table.get(other).values()):
                self.add(place, value, timestamp)
            self._table.clear(other)

    def fire(self, place: WindowKey, window: TimeWindow, call: Call) -> None:
        held = self._table.get(place)
        if not held:
            return
        copy = self._copy
        elements = [
            TimestampedValue(value if copy is None else copy(value), timestamp)
            for timestamp, value in held.values()
        ]
        if self._evictor is None:
            self._call([element.value for element in elements], call)
            return
        numbers = dict(zip(map(id, elements), held, strict=True))
        given = list(elements)
        self._evictor.evict_before(elements, window, self._times)
        self._call([element.value for element in elements], call)
        self._evictor.evict_after(elements, window, self._times)
        if not numbers.keys() >= set(map(id, elements)):
            raise ValueError(f"the evictor {self._evictor} added an element: it can only remove elements")
        left = set(map(id, elements))
        for element in given:
            if id(element) not in left:
                self._table.remove(place, numbers[id(element)])

    def clear(self, place: WindowKey) -> None:
        self._table.clear(place)

    def _call(self, values: list[Any], call: Call) -> None:
        folding = self._folding
        if not values:
            return
        if folding is None:
            call(values)
            return
        folded = folding.first(values[0])
        for value in values[1:]:
            folded = folding.add(folded, value)
        call((folding.result(folded),))
