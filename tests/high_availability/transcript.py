"""A section of the log in readable form that is the same in each run: terms are old or new, ids are omitted."""

from __future__ import annotations

import re
from collections.abc import Callable

from tailrace.schemas.event import Record
from tailrace.schemas.everyone import LeaderElected

from .leader_history import LeaderHistory, LeaderTerm

_DRAWN = re.compile(r"(lasting|tailrace)-[0-9a-f]{8}\b|te-[0-9]+")
_NAMES = {"lasting": "job", "tailrace": "client", "t": "te"}


def name_of(record: Record) -> str:
    """Returns the name of the event."""
    return type(record.body).__name__


def transcript(story: LeaderHistory, begin: int, tells: Callable[[Record], bool], old: LeaderTerm) -> str:
    """Formats the events from an offset on that `tells` selects: per line the event, its term, and whether it is
    fenced."""
    lines = []
    for record in story.records:
        if record.offset < begin or not tells(record):
            continue
        header, body = record.header, record.body
        who = "old" if header.sender_epoch == old.epoch else "new"
        status = getattr(body, "status", None)
        about = "" if status is None else f" {status.value}"
        if isinstance(body, LeaderElected):
            about = f" {body.role}"
        fate = "   (no reader takes notice)" if record.offset in story.ignored else ""
        lines.append(f"{who} leader: {header.sender} -> {header.recipient}: {name_of(record)}{about}{fate}")
    return _DRAWN.sub(lambda match: _NAMES[match[1] or "t"], "\n".join(lines)) + "\n"
