"""An event, and an event at its offset in the log."""

from __future__ import annotations

import msgspec

from .body import Body
from .types import Header

EVERYONE = "*"
"""The recipient of events for every role."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """A message of the log: the header, and the body with what has happened or what is requested."""

    header: Header
    body: Body


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event in the log. `offset` is its offset there."""

    offset: int
    header: Header
    body: Body
