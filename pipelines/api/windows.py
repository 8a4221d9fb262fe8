"""Window assigners: into which windows a record falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..graph.errors import ProgramError
from .user_code import caller_location


@dataclass(frozen=True, slots=True)
class TumblingProcessingTimeWindows:
    """Windows of one size, one after another, by the time at which the source read the record.

    A window begins at a multiple of its size since the epoch, plus the offset: windows of a day with an offset of
    -8 hours begin at midnight in Shanghai.
    """

    size_ms: int
    offset_ms: int = 0

    @staticmethod
    def of(
        *, seconds: float = 0, milliseconds: int = 0, offset_seconds: float = 0
    ) -> TumblingProcessingTimeWindows:
        """Windows of that size, in all a millisecond or more. Raises ProgramError."""
        size, offset = round(seconds * 1000) + milliseconds, round(offset_seconds * 1000)
        if size < 1:
            raise ProgramError(
                f"a window of {size} ms is empty: give seconds= or milliseconds=", location=caller_location()
            )
        if abs(offset) >= size:
            raise ProgramError(
                f"an offset of {offset} ms is not below the window's {size} ms", location=caller_location()
            )
        return TumblingProcessingTimeWindows(size, offset)

    def __str__(self) -> str:
        return f"TumblingProcessingTimeWindows({self.size_ms} ms)"

    def parameters(self) -> dict[str, Any]:
        """The assigner in OperatorConfig.parameters."""
        return {"assigner": "tumbling_processing_time", "size_ms": self.size_ms, "offset_ms": self.offset_ms}
