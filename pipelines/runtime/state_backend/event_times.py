"""The watermark of each key group: equal for all of a subtask, except after a change of parallelism.

The subtasks of an operator reach a watermark at different moments, and an unaligned checkpoint records them at that
point. A subtask that takes over key groups of several starts with the least of their watermarks, so that no following
record is late because of it. Key groups of an owner that was further keep that watermark until the subtask's own has
caught up: a window that fired does not fire again, and a late record stays late.
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
    """Event time that some key groups have reached (ms)."""

    key_groups: range
    watermark: int


class EventTimes(msgspec.Struct, frozen=True):
    """Watermark and clock that an operator has reached (ms), and the key groups that are ahead of the watermark."""

    watermark: int = NO_WATERMARK
    clock: int = NO_WATERMARK
    ahead: tuple[KeyGroupWatermark, ...] = ()
    """In order, without overlap; each watermark is above `watermark`."""

    def to_bytes(self) -> bytes:
        """For the changelog. Without key groups that are ahead it is what 0.1.0 wrote."""
        parts = [_TIMES.pack(self.watermark, self.clock)]
        parts += [_AHEAD.pack(e.key_groups.start, e.key_groups.stop, e.watermark) for e in self.ahead]
        return b"".join(parts)

    @staticmethod
    def from_bytes(data: bytes) -> EventTimes:
        """What `to_bytes` gave. Raises ValueError."""
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
        """These times once watermark and clock have moved on."""
        return EventTimes(watermark, clock, tuple(e for e in self.ahead if e.watermark > watermark))

    def begin_anew(self) -> EventTimes:
        """What was at the end of time has reached none."""
        return EventTimes(
            NO_WATERMARK if self.watermark == MAX_WATERMARK else self.watermark,
            NO_WATERMARK if self.clock == MAX_WATERMARK else self.clock,
            tuple(e for e in self.ahead if e.watermark != MAX_WATERMARK),
        )

    def watermark_for(self, key_group: int) -> int:
        """How far event time has come for the keys of a group."""
        found = (e.watermark for e in self.ahead if key_group in e.key_groups)
        return next(found, self.watermark)


def times_of(key_groups: range, origins: Sequence[tuple[range, EventTimes]]) -> EventTimes:
    """The times of a subtask with these key groups. `origins`: the key groups of each former owner, and its times.

    A former owner that is not there had reached no time.
    """
    clocks: list[int] = []
    found: list[KeyGroupWatermark] = []
    following = key_groups.start
    for owned, times in sorted(origins, key=lambda each: each[0].start):
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
    least = min(each.watermark for each in found)
    return EventTimes(
        least,
        min(clocks, default=NO_WATERMARK),
        tuple(each for each in found if each.watermark > least),
    )


def _divided(key_groups: range, times: EventTimes) -> Iterator[KeyGroupWatermark]:
    """The key groups by the watermark that they have reached."""
    following = key_groups.start
    for each in times.ahead:
        shared = common(each.key_groups, key_groups)
        if shared:
            yield from _some(following, shared.start, times.watermark)
            yield KeyGroupWatermark(shared, each.watermark)
            following = shared.stop
    yield from _some(following, key_groups.stop, times.watermark)


def _some(start: int, stop: int, watermark: int) -> Iterable[KeyGroupWatermark]:
    return [KeyGroupWatermark(range(start, stop), watermark)] if start < stop else []
