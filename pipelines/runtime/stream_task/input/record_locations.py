"""Locations of records, for the error that one of them raises.

A location stays the same in the next attempt: topic, partition and offset, and the number of the record (from 1) in a
buffer with several records. It is computed only when there is an error, so it costs nothing for records that succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .....schemas.types import OperatorConfig
from ....graph.operators import OperatorKind
from ...common.failures import RecordError, format_offsets, format_record

_ONE_FOR_ONE: Final = frozenset({OperatorKind.MAP, OperatorKind.WATERMARKS})


class RecordLocations:
    """The locations of one subtask's records. Each method adds a location to an error that has none."""

    def __init__(self, topics: Sequence[str], subtask: int, prefix: Sequence[OperatorConfig]) -> None:
        """`topics`: by index of the input. `prefix`: the operators that Spark has applied to the records."""
        self._topics = topics
        self._subtask = subtask
        self._behind = f" behind {prefix[-1].name!r}" if prefix else ""
        self._one_for_one = all(operator.kind in _ONE_FOR_ONE for operator in prefix)

    def add_buffer(self, error: RecordError, input_index: int, offset: int, count: int) -> None:
        """Adds the location in a buffer of a channel that has `count` records."""
        topic = self._topics[input_index]
        error.place = error.place or format_record(
            topic, self._subtask, offset, error.index, count, self._behind
        )

    def add_call(self, error: RecordError, input_index: int, sender: int) -> None:
        """Adds the location of a record that a subtask in the same process has handed over."""
        error.place = error.place or (
            f"a record of subtask {sender} in the same slot (not in topic {self._topics[input_index]})"
        )

    def add_messages(
        self, error: RecordError, input_index: int, partition: int, first: int, following: int, count: int
    ) -> None:
        """Adds the location in messages of a Kafka source at these offsets, which resulted in `count` records."""
        last = following - 1
        if error.index is not None and self._one_for_one and count == following - first:
            first = last = first + error.index
        error.place = error.place or format_offsets(self._topics[input_index], partition, first, last)

    def add_in_flight(self, error: RecordError, input_index: int | None) -> None:
        """Adds the location of a record that was in flight in a checkpoint. None: it is on no input any more."""
        topic = "" if input_index is None else f"topic {self._topics[input_index]}, "
        error.place = error.place or f"{topic}in flight in the checkpoint"
