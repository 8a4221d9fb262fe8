"""Events of the namespace tailrace.dead_letters: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ..types import Origin

__all__ = ["DeadLetter"]


class DeadLetter(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A record that could not be read or was not allowed."""

    AVRO_NAME: ClassVar[str] = "tailrace.dead_letters.DeadLetter"
    source: Origin
    """Where the record is."""
    reason: str
    """Why it was refused, and what to do."""
    time: int
    """When it was refused, microseconds since the epoch."""
    key: bytes | None = None
    """The record's key."""
    value: bytes | None = None
    """The record's value."""
