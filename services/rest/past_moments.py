"""Moments of the past, for `?at=`. The last few are kept.

The fold begins after one of them that is near, else at the nearest mark of the history index, else after the newest
snapshot that has its history, else at the first event.
A time is resolved with the marks of the history index. One moment is computed at a time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..history.indexed_history import history_at
from ..history.job_history_store import JobHistoryStore
from ..history.log_position import InvalidPosition, LogPosition, PositionOutOfRange
from ..history.log_source import LogSource
from ..log import LogUnavailable
from ..log.event_log import LogTruncated, read_to_end
from .errors import BadRequest, NotFound, Unavailable
from .moment import Moment

_KEPT = 8
_MOST_WAITING = 8


class PastMoments:
    """Thread-safe. `open_source` opens the log."""

    def __init__(
        self, open_source: Callable[[], LogSource], histories: JobHistoryStore | None = None
    ) -> None:
        self._open_source = open_source
        self._histories = histories
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._kept: OrderedDict[int, Moment] = OrderedDict()

    @contextmanager
    def read(self, at: str) -> Iterator[Moment]:
        """Yields the moment after the last event up to a position. Raises BadRequest, NotFound, Unavailable."""
        try:
            position = LogPosition.parse(at)
        except InvalidPosition as error:
            raise BadRequest(str(error)) from None
        if not self._waiting.acquire(blocking=False):
            raise Unavailable("Too many requests ask for moments of the past.", {"Retry-After": "5"})
        try:
            with self._lock:
                yield self._find(position)
        except PositionOutOfRange as error:
            raise NotFound(str(error)) from None
        except (LogUnavailable, LogTruncated) as error:
            raise Unavailable(str(error), {"Retry-After": "5"}) from None
        finally:
            self._waiting.release()

    def _find(self, position: LogPosition) -> Moment:
        # An offset that is kept needs no log.
        if (offset := position.offset) is not None and offset in self._kept:
            self._kept.move_to_end(offset)
            return self._kept[offset]
        with self._open_source() as source:
            offset = source.at(position)
            if offset not in self._kept:
                self._kept[offset] = self._fold(source, offset)
            self._kept.move_to_end(offset)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return self._kept[offset]

    def _fold(self, source: LogSource, offset: int) -> Moment:
        earlier = max(
            (known for known in self._kept if offset - source.index.interval < known < offset), default=None
        )
        if earlier is None:
            fold = history_at(source, offset, self._histories)
        else:
            fold = self._kept[earlier].fold.copy()
            for batch in read_to_end(source.log, earlier + 1, end=offset + 1):
                for record in batch:
                    fold.apply(record)
        if fold.replica.offset > offset:
            raise NotFound(f"The events up to offset {offset} were deleted from {source.log.topic}.")
        return Moment(fold, _time_at(source, fold.replica.offset))


def _time_at(source: LogSource, offset: int) -> int:
    """Returns the time of the last event up to an offset, in milliseconds since the epoch."""
    if offset < 0:
        return 0
    batches = read_to_end(source.log, offset, end=offset + 1)
    return next((batch[-1].header.time // 1000 for batch in batches), 0)
