"""Sends librdkafka's messages to Python's logging instead of stderr.

While Kafka is unreachable each client logs several messages a second. Messages of one kind (librdkafka's facility, such
as FAIL) are limited to one every 30 s for each process, with the number of suppressed ones. A client delivers its
messages when it is polled, flushed or committed, in that thread.
"""

from __future__ import annotations

import logging
import time
from typing import Final

INTERVAL_S: Final = 30.0


class RateLimit(logging.Filter):
    """Passes the first message of a kind, and then one for each interval."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        super().__init__()
        self._interval = interval_s
        self._passed_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Adds the number of suppressed messages to the text."""
        # confluent_kafka logs "%s [%s] %s": facility, client, text.
        kind = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        now = time.monotonic()
        if now - self._passed_at.get(kind, float("-inf")) < self._interval:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._passed_at[kind] = now
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg = f"{record.msg} ({left_out} more were suppressed since the last one)"
        return True


def _limited() -> logging.Logger:
    logger = logging.getLogger("tailrace.librdkafka")
    logger.addFilter(RateLimit())
    return logger


LOGGER: Final = _limited()
"""For a client's configuration, as `logger`."""
