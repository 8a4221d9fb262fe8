"""Where a subtask reads its records, for the error that one of them raises.

A record is named by what stays the same in the next attempt: topic, partition and offset, and, of a buffer with several
records, the number of the record in it (from 1). All of it is worked out when the error is there: a record that is
processed costs nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .....schemas.types import OperatorConfig
from ....graph.operators import OperatorKind
from ...common.failures import RecordError, format_offsets, format_record

_ONE_FOR_ONE: Final = frozenset({OperatorKind.MAP, OperatorKind.WATERMARKS})


class RecordLocations:
    """Of one subtask. Each method gives an error its place, unless it has one."""

    def __init__(self, topics: Sequence[str], subtask: int, prefix: Sequence[OperatorConfig]) -> None:
        """`topics`: by index of the input. `prefix`: the operators that Spark has applied to the records."""
        self._topics = topics
        self._subtask = subtask
        self._behind = f" behind {prefix[-1].name!r}" if prefix else ""
        self._one_for_one = all(each.kind in _ONE_FOR_ONE for each in prefix)

    def add_buffer(self, error: RecordError, input_index: int, offset: int, count: int) -> None:
        """For a buffer of a channel, with so many records."""
        topic = self._topics[input_index]
        error.place = error.place or format_record(
            topic, self._subtask, offset, error.index, count, self._behind
        )

    def add_messages(
        self, error: RecordError, input_index: int, partition: int, first: int, following: int, count: int
    ) -> None:
        """For what a Kafka source has read at these offsets, which came to so many records."""
        last = following - 1
        if error.index is not None and self._one_for_one and count == following - first:
            first = last = first + error.index
        error.place = error.place or format_offsets(self._topics[input_index], partition, first, last)

    def add_in_flight(self, error: RecordError, input_index: int) -> None:
        """For what a checkpoint had in flight."""
        error.place = error.place or f"topic {self._topics[input_index]}, in flight in the checkpoint"
