"""The windows of a time: of one size at regular starts, sessions that end after a gap, or one for all of time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


class FixedWindowAssigner(msgspec.Struct, frozen=True):
    """Windows [start, start + size). A start is the offset plus a multiple of slide (ms)."""

    size: int
    slide: int
    offset: int

    @property
    def is_tumbling(self) -> bool:
        """Whether each time belongs to one window."""
        return self.size == self.slide

    @property
    def pane(self) -> int:
        """The longest stretch of time that lies wholly inside or wholly outside of each window."""
        return math.gcd(self.size, self.slide)

    def starts(self, time: int) -> list[int]:
        """Returns the starts of the windows of a time, ascending; none if it falls between windows."""
        last = time - (time - self.offset) % self.slide
        return list(range(last, time - self.size, -self.slide))[::-1]

    def first_end(self, time: int) -> int:
        """Returns the end of the first window of a time; the time itself if it belongs to none."""
        starts = self.starts(time)
        return starts[0] + self.size if starts else time

    def panes(self, times: Ints) -> Ints:
        """Returns the start of each time's pane."""
        return times - (times - self.offset) % self.pane


class SessionAssigner(msgspec.Struct, frozen=True):
    """A time begins a session [time, time + gap). Sessions that overlap or touch are merged."""

    gap: int | None
    """None: a function returns that of each record."""


class GlobalAssigner(msgspec.Struct, frozen=True):
    """All times belong to one window."""


Assigner = FixedWindowAssigner | SessionAssigner | GlobalAssigner


class WindowAssignment(msgspec.Struct, frozen=True):
    """An assigner and its clock."""

    assigner: Assigner
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
        case "dynamic_session":
            return WindowAssignment(SessionAssigner(None), time)
        case "global":
            return WindowAssignment(GlobalAssigner(), time)
        case kind:
            raise ValueError(
                f"there is no window assigner {kind!r}: tumbling, sliding, session, dynamic_session or global"
            )
