"""The id of a log: it tells a log from another one of the same name, which was created after a loss.

It follows from the first event of the log: from its id, which has the time of the log's creation, and its time. A copy
of a log (`tailrace log import`) has the same id. Snapshots and the archive record it, because the first event may be
deleted from the topic later.
"""

from __future__ import annotations

import hashlib

from ...schemas.event import Record
from ..log import EventLog
from ..log.event_log import LogTruncated, read_to_end

_SIZE = 8


def log_id_of(first: Record) -> str:
    """Returns the id of the log with that first event."""
    text = f"{first.header.event_id}\n{first.header.time}"
    return hashlib.blake2b(text.encode(), digest_size=_SIZE).hexdigest()


def read_log_id(log: EventLog) -> str | None:
    """Returns the id of a log; None if it has no event, or its head was deleted. Raises LogUnavailable."""
    try:
        for batch in read_to_end(log):
            return log_id_of(batch[0])
    except LogTruncated:
        return None
    return None
