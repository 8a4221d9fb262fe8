"""Which windows a time belongs to: of one size at regular starts, or sessions that end after a gap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


class FixedWindowAssigner(msgspec.Struct, frozen=True):
    """Windows [start, start + size) at each start that is the offset plus a multiple of slide (ms)."""

    size: int
    slide: int
    offset: int

    @property
    def is_tumbling(self) -> bool:
        """Each time belongs to one window."""
        return self.size == self.slide

    @property
    def pane(self) -> int:
        """The longest stretch of time that lies wholly in or wholly out of each window."""
        return math.gcd(self.size, self.slide)

    def starts(self, time: int) -> list[int]:
        """The starts of the windows that a time belongs to, ascending; none, where windows leave gaps."""
        last = time - (time - self.offset) % self.slide
        return list(range(last, time - self.size, -self.slide))[::-1]

    def first_end(self, time: int) -> int:
        """The end of the first window that a time belongs to; the time itself, where it belongs to none."""
        starts = self.starts(time)
        return starts[0] + self.size if starts else time

    def panes(self, times: Ints) -> Ints:
        """The start of each time's pane."""
        return times - (times - self.offset) % self.pane


class SessionAssigner(msgspec.Struct, frozen=True):
    """A time begins a session [time, time + gap); those that overlap or touch are one."""

    gap: int


class WindowAssignment(msgspec.Struct, frozen=True):
    """An assigner and the clock that it goes by."""

    assigner: FixedWindowAssigner | SessionAssigner
    time: Literal["processing", "event"]


def create_assignment(form: Mapping[str, Any]) -> WindowAssignment:
    """Reads the parameter `assigner` of a window operator. Raises ValueError, KeyError."""
    time: Any = form["time"]
    match form["kind"]:
        case "tumbling":
            size = form["size_ms"]
            return WindowAssignment(FixedWindowAssigner(size, size, form.get("offset_ms") or 0), time)
        case "sliding":
            fixed = FixedWindowAssigner(form["size_ms"], form["slide_ms"], form.get("offset_ms") or 0)
            return WindowAssignment(fixed, time)
        case "session":
            return WindowAssignment(SessionAssigner(form["gap_ms"]), time)
        case kind:
            raise ValueError(f"there is no window assigner {kind!r}: tumbling, sliding or session")
