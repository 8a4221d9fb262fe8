"""Collects the results of a function for the records of a batch, main and side outputs, and emits them together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...functions import OutputTag
from ..records.batch import Batch
from .operator import OperatorOutput
from .user_functions import came_from

MAX_COLLECTED_RECORDS: Final = 10_000
"""The number of records that are emitted without waiting for more."""


class OutputCollector:
    """Records in order, by output."""

    def __init__(self) -> None:
        self._timestamps: list[int] = []
        self._values: list[Any] = []
        self._sides: dict[str, tuple[list[int], list[Any]]] = {}

    def add(self, timestamp: int, values: Iterable[Any] | None) -> None:
        """Adds records of the main output; runs the function, if it is a generator."""
        if values is None:
            return
        before = len(self._values)
        self._values.extend(values)
        added = len(self._values) - before
        if added == 1:
            _check_untagged(self._values[-1])
            self._timestamps.append(timestamp)
        elif added:
            for value in self._values[before:]:
                _check_untagged(value)
            self._timestamps.extend([timestamp] * added)

    def add_side(self, tag: str, timestamp: int, value: Any) -> None:
        """Adds a record of a side output."""
        side = self._sides.get(tag)
        if side is None:
            side = self._sides[tag] = [], []
        side[0].append(timestamp)
        side[1].append(value)

    @property
    def has_many(self) -> bool:
        """Whether there are enough records to send now."""
        return len(self._values) >= MAX_COLLECTED_RECORDS

    def send(self, output: OperatorOutput) -> None:
        """Sends all collected records."""
        if self._values:
            batch = Batch(self._timestamps, self._values)
            self._timestamps, self._values = [], []
            with came_from():
                output.emit(batch)
        if self._sides:
            sides, self._sides = self._sides, {}
            for tag, (timestamps, values) in sides.items():
                with came_from():
                    output.emit_side(tag, Batch(timestamps, values))


def _check_untagged(value: Any) -> None:
    """Refuses (tag, value), by which PyFlink's functions emit on a side output: it would be a record."""
    if type(value) is tuple and value and type(value[0]) is OutputTag:
        raise TypeError(
            f"the function emits a tuple with the OutputTag {value[0].name!r}: write context.output(tag, value)"
        )
