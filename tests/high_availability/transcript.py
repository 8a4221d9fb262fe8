"""A stretch of the log for people to read, the same each time: terms are old or new, and ids are left out."""

from __future__ import annotations

import re
from collections.abc import Callable

from tailrace.schemas.event import Record
from tailrace.schemas.everyone import LeaderElected

from .leader_history import LeaderHistory, LeaderTerm

_DRAWN = re.compile(r"(lasting|tailrace)-[0-9a-f]{8}\b|te-[0-9]+")
_NAMES = {"lasting": "job", "tailrace": "client", "t": "te"}


def name_of(record: Record) -> str:
    """That of the event."""
    return type(record.body).__name__


def transcript(story: LeaderHistory, begin: int, tells: Callable[[Record], bool], old: LeaderTerm) -> str:
    """What was said from an offset on and `tells` picks; of each line, under whose term, and whether it counts."""
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
    return _DRAWN.sub(lambda found: _NAMES[found[1] or "t"], "\n".join(lines)) + "\n"
