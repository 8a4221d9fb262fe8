"""How a stream gets timestamps and watermarks (FLIP-126's WatermarkStrategy)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ..flink_names import FlinkNames
from .durations import to_milliseconds
from .signatures import SELECTOR, check_function
from .source_location import caller_location

T = TypeVar("T")


@dataclass(frozen=True)
class WatermarkStrategy(Generic[T], metaclass=FlinkNames):
    """A strategy for timestamps and watermarks. Frozen: each method returns a changed copy."""

    out_of_orderness_ms: int
    """A watermark is this much below the highest timestamp seen."""
    timestamp_assigner: Callable[[T], int] | str | int | None = None
    """Record -> milliseconds since the epoch, or the field with the timestamp; None: the timestamp that the record
    has."""
    idle_after_ms: int | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy[Any]:
        """Declares that the timestamps of a subtask never decrease."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(
        bound: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> WatermarkStrategy[Any]:
        """Declares the longest time by which a record may follow a younger one; a record that follows later than
        that is late."""
        return WatermarkStrategy(
            to_milliseconds("bound", bound, seconds, milliseconds, operator=_BOUNDED, at_least=0)
        )

    def with_timestamp_assigner(self, assigner: Callable[[T], int] | str | int) -> WatermarkStrategy[T]:
        """Sets the timestamp (ms since the epoch) of a record: a function, a field's name, or a position in a tuple."""
        if not isinstance(assigner, (str, int)):
            check_function(assigner, SELECTOR, operator="with_timestamp_assigner", location=caller_location())
        return dataclasses.replace(self, timestamp_assigner=assigner)

    def with_idleness(
        self, timeout: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> WatermarkStrategy[T]:
        """Declares a subtask idle that gets no record for this time; it then does not hold back the watermarks of
        others."""
        found = to_milliseconds("timeout", timeout, seconds, milliseconds, operator="with_idleness")
        return dataclasses.replace(self, idle_after_ms=found)


_BOUNDED = "for_bounded_out_of_orderness"
