"""An event, and an event where the log holds it."""

from __future__ import annotations

import msgspec

from .body import Body
from .types import Header

EVERYONE = "*"
"""The recipient of what concerns every role."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """What travels: the header, and the body that says what happened or what is asked."""

    header: Header
    body: Body


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event at its place in the log. `offset` is the log's."""

    offset: int
    header: Header
    body: Body
