"""The watermark of each key group: equal for all of a subtask, except after a change of parallelism.

The subtasks of an operator reach a watermark at different moments, and an unaligned checkpoint records them at that
point. A subtask that takes over key groups of several subtasks starts with the least of their watermarks, so that no
following record is late because of it. Key groups of an owner that was ahead keep its watermark until the subtask's own
has caught up: a window that fired does not fire again, and a late record stays late.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ..records.buffers import MAX_WATERMARK, NO_WATERMARK
from .type_coverage import common

_TIMES: Final = struct.Struct("<qq")
_AHEAD: Final = struct.Struct("<IIq")


class KeyGroupWatermark(msgspec.Struct, frozen=True):
    """The event time of some key groups (ms)."""

    key_groups: range
    watermark: int


class EventTimes(msgspec.Struct, frozen=True):
    """The watermark and the clock of an operator (ms), and the key groups that are ahead of the watermark."""

    watermark: int = NO_WATERMARK
    clock: int = NO_WATERMARK
    ahead: tuple[KeyGroupWatermark, ...] = ()
    """In order, without overlap; each watermark is above `watermark`."""

    def to_bytes(self) -> bytes:
        """Encodes the times for the changelog. Without key groups that are ahead, the form is that of 0.1.0."""
        parts = [_TIMES.pack(self.watermark, self.clock)]
        parts += [_AHEAD.pack(e.key_groups.start, e.key_groups.stop, e.watermark) for e in self.ahead]
        return b"".join(parts)

    @staticmethod
    def from_bytes(data: bytes) -> EventTimes:
        """Decodes the result of `to_bytes`. Raises ValueError."""
        try:
            watermark, clock = _TIMES.unpack_from(data)
            ahead = tuple(
                KeyGroupWatermark(range(start, stop), reached)
                for start, stop, reached in _AHEAD.iter_unpack(data[_TIMES.size :])
            )
        except struct.error as error:
            raise ValueError(
                f"the changelog holds a message of kind TIME without two times: {error}"
            ) from error
        return EventTimes(watermark, clock, ahead)

    def at(self, watermark: int, clock: int) -> EventTimes:
        """Returns these times after watermark and clock have advanced."""
        return EventTimes(watermark, clock, tuple(e for e in self.ahead if e.watermark > watermark))

    def begin_anew(self) -> EventTimes:
        """Returns these times with every clock that was at the end of time reset."""
        return EventTimes(
            NO_WATERMARK if self.watermark == MAX_WATERMARK else self.watermark,
            NO_WATERMARK if self.clock == MAX_WATERMARK else self.clock,
            tuple(e for e in self.ahead if e.watermark != MAX_WATERMARK),
        )

    def watermark_for(self, key_group: int) -> int:
        """Returns the event time of the keys of a group."""
        found = (e.watermark for e in self.ahead if key_group in e.key_groups)
        return next(found, self.watermark)


def times_of(key_groups: range, origins: Sequence[tuple[range, EventTimes]]) -> EventTimes:
    """Returns the times of a subtask with these key groups. `origins`: the key groups of each former owner, and its
    times.

    A former owner that is absent had reached no time.
    """
    clocks: list[int] = []
    found: list[KeyGroupWatermark] = []
    following = key_groups.start
    for owned, times in sorted(origins, key=lambda origin: origin[0].start):
        shared = common(owned, key_groups)
        if not shared:
            continue
        clocks.append(times.clock)
        if following < shared.start:
            found.append(KeyGroupWatermark(range(following, shared.start), NO_WATERMARK))
        found += _divided(shared, times)
        following = shared.stop
    if following < key_groups.stop:
        found.append(KeyGroupWatermark(range(following, key_groups.stop), NO_WATERMARK))
    least = min(entry.watermark for entry in found)
    return EventTimes(
        least,
        min(clocks, default=NO_WATERMARK),
        tuple(entry for entry in found if entry.watermark > least),
    )


def _divided(key_groups: range, times: EventTimes) -> Iterator[KeyGroupWatermark]:
    """Yields the key groups by their watermark."""
    following = key_groups.start
    for entry in times.ahead:
        shared = common(entry.key_groups, key_groups)
        if shared:
            yield from _some(following, shared.start, times.watermark)
            yield KeyGroupWatermark(shared, entry.watermark)
            following = shared.stop
    yield from _some(following, key_groups.stop, times.watermark)


def _some(start: int, stop: int, watermark: int) -> Iterable[KeyGroupWatermark]:
    return [KeyGroupWatermark(range(start, stop), watermark)] if start < stop else []
