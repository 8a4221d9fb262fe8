"""Selects entries of another subtask's state: those of some of its key groups.

State that no function has requested is kept as the messages of its writers, and is written again as such. A file of all
state therefore records before them which part of their writer's state was selected; a reader of the file selects again.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

_TAKING: Final = struct.Struct("<IIII?")


class Taking(msgspec.Struct, frozen=True):
    """What of another subtask's state is to be taken in."""

    written: range
    """The key groups that it owned."""
    wanted: range
    """Those of them that are to be taken."""
    is_first: bool = True
    """Whether no other subtask's state was taken before: of what all of them have alike, that of one is enough."""

    def within(self, outer: Taking | None) -> Taking:
        """The part that is to be taken of a subtask that took this; None: all of it."""
        if outer is None:
            return self
        return Taking(
            common(self.written, outer.written),
            common(self.wanted, outer.wanted),
            self.is_first and outer.is_first,
        )

    def to_bytes(self) -> bytes:
        """For a file of all state."""
        written, wanted = self.written, self.wanted
        return _TAKING.pack(written.start, written.stop, wanted.start, wanted.stop, self.is_first)

    @staticmethod
    def from_bytes(data: bytes) -> Taking:
        """What `to_bytes` gave. Raises ValueError."""
        try:
            start, stop, wanted_start, wanted_stop, is_first = _TAKING.unpack(data)
        except struct.error as error:
            raise ValueError(f"the state holds a message of kind PART without key groups: {error}") from error
        return Taking(range(start, stop), range(wanted_start, wanted_stop), is_first)


def common(one: range, other: range) -> range:
    """The key groups that are in both; an empty range where there are none."""
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))
