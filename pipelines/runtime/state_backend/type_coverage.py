"""Selects entries of another subtask's state: those of some of its key groups.

State that no function has requested is stored as the messages of its writers, and is written again in that form. A file
of all state therefore records before them which part of their writer's state was selected; a reader of the file selects
again.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

_TAKING: Final = struct.Struct("<IIII?")


class Taking(msgspec.Struct, frozen=True):
    """The part of another subtask's state to take."""

    written: range
    """The key groups that the subtask owned."""
    wanted: range
    """The key groups among them to take."""
    is_first: bool = True
    """Whether no other subtask's state was taken before: of state that is the same in all of them, one copy is
    enough."""

    def within(self, outer: Taking | None) -> Taking:
        """Returns the part to take over from a subtask that has taken over `outer`; None: all of it."""
        if outer is None:
            return self
        return Taking(
            common(self.written, outer.written),
            common(self.wanted, outer.wanted),
            self.is_first and outer.is_first,
        )

    def to_bytes(self) -> bytes:
        """Encodes it for a file of all state."""
        written, wanted = self.written, self.wanted
        return _TAKING.pack(written.start, written.stop, wanted.start, wanted.stop, self.is_first)

    @staticmethod
    def from_bytes(data: bytes) -> Taking:
        """Decodes the result of `to_bytes`. Raises ValueError."""
        try:
            start, stop, wanted_start, wanted_stop, is_first = _TAKING.unpack(data)
        except struct.error as error:
            raise ValueError(f"the state holds a message of kind PART without key groups: {error}") from error
        return Taking(range(start, stop), range(wanted_start, wanted_stop), is_first)


def common(one: range, other: range) -> range:
    """Returns the key groups that are in both; an empty range if there are none."""
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))
