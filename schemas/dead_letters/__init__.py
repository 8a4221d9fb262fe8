"""Events of the namespace tailrace.dead_letters: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ..types import Origin

__all__ = ["DeadLetter"]


class DeadLetter(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A copy of a record that a service could not decode or does not allow. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dead_letters.DeadLetter"
    source: Origin
    """Topic, partition and offset of the original record. Since 0.1.0."""
    reason: str
    """Why the record was refused and what to do, as text for people. Since 0.1.0."""
    time: int
    """When the record was refused, in microseconds since the Unix epoch. Since 0.1.0."""
    key: bytes | None = None
    """Key of the original record; null if it has none. Since 0.1.0."""
    value: bytes | None = None
    """Value of the original record; null if it has none. Since 0.1.0."""
