"""Accumulators and keyed state of the interpreter: counters and dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any


class Count:
    def __init__(self, counts: Counter[str], name: str) -> None:
        self._counts, self._name = counts, name

    def inc(self, n: float = 1) -> None:
        self._counts[self._name] += n  # type: ignore[assignment]


class State:
    """Value, list and map state of the current key; other methods are those of the list or dictionary."""

    def __init__(self, owner: Any, name: str, empty: Callable[[], Any]) -> None:
        self._owner, self._name, self._empty = owner, name, empty

    def value(self) -> Any:
        place = (self._name, self._owner.current_key)
        return self._owner.states.setdefault(place, self._empty())

    def update(self, value: Any) -> None:
        self._owner.states[self._name, self._owner.current_key] = (
            list(value) if self._empty is list else value
        )

    def clear(self) -> None:
        self._owner.states.pop((self._name, self._owner.current_key), None)

    def add(self, value: Any) -> None:
        self.value().append(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value(), name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value())

    def __contains__(self, key: Any) -> bool:
        return key in self.value()

    def __getitem__(self, key: Any) -> Any:
        return self.value()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value()[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.value()[key]

    def __len__(self) -> int:
        return len(self.value())


class Folded:
    """Reducing and aggregating state of the current key: all values that were added, folded when they are asked for."""

    def __init__(self, owner: Any, name: str, fold: Callable[[list[Any]], Any]) -> None:
        self._values, self._fold = State(owner, name, list), fold

    def add(self, value: Any) -> None:
        self._values.add(value)

    def get(self) -> Any:
        values = list(self._values)
        return self._fold(values) if values else None

    def clear(self) -> None:
        self._values.clear()
