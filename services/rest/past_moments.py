"""Moments of a log, for `?at=` and for servers of logs that no longer grow. The last few are kept.

The fold begins after one of them that is near, else at the nearest mark of the history index, else after the newest
snapshot that has its history, else at the first event. A time is resolved with the marks of the index. One moment of a
log is computed at a time; kept ones are read meanwhile.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from ..history.archive.errors import ArchiveError, CorruptArchive
from ..history.indexed_history import history_at
from ..history.job_history_store import JobHistoryStore
from ..history.log_position import InvalidPosition, LogPosition, PositionOutOfRange
from ..history.log_source import LogSource, OpenSource
from ..log import LogUnavailable
from ..log.event_log import LogTruncated, read_to_end
from .errors import BadRequest, NotFound, Unavailable
from .moment import Moment
from .turns import Turns

MOST_MOMENTS = 8
MOST_WAITING = 7
_TIMEOUT_S = 20.0
_SCAN_AFTER = 1_000
"""The number of moments between two scans of the garbage collector."""


class MomentCache:
    """The moments that were read last, of one or many logs. An owner is a log: the PastMoments of it. Thread-safe."""

    def __init__(self, most: int = MOST_MOMENTS, *, hides_moments: bool = False) -> None:
        """`hides_moments`: whether the garbage collector leaves out kept moments, for a process that does nothing
        else."""
        self._most = most
        self._hides_moments = hides_moments
        self._put = 0
        self._lock = threading.Lock()
        self._moments: OrderedDict[tuple[object, int], Moment] = OrderedDict()

    def get(self, owner: object, offset: int) -> Moment | None:
        """Returns a moment of a log, and keeps it for longer."""
        with self._lock:
            found = self._moments.get((owner, offset))
            if found is not None:
                self._moments.move_to_end((owner, offset))
            return found

    def newest(self, owner: object, first: int, last: int) -> Moment | None:
        """Returns the newest moment of a log from offset `first` to `last`."""
        with self._lock:
            offsets = [offset for log, offset in self._moments if log is owner and first <= offset <= last]
            return self._moments[owner, max(offsets)] if offsets else None

    def put(self, owner: object, offset: int, moment: Moment) -> None:
        """Keeps a moment; the one that was not read for the longest time is dropped."""
        with self._lock:
            self._moments[owner, offset] = moment
            while len(self._moments) > self._most:
                self._moments.popitem(last=False)
            if self._hides_moments:
                self._hide_from_collector()

    def _hide_from_collector(self) -> None:
        """A moment is a million objects without a cycle: it is freed when it is dropped, and a scan finds nothing and
        takes seconds. What is hidden with it, such as a request in progress, may have cycles: they are freed by a scan
        now and then."""
        self._put += 1
        if self._put % _SCAN_AFTER == 0:
            gc.unfreeze()
            gc.collect()
        gc.freeze()

    def drop(self, owner: object) -> None:
        """Drops the moments of a log."""
        with self._lock:
            for key in [key for key in self._moments if key[0] is owner]:
                del self._moments[key]


class PastMoments:
    """The moments of one log. Thread-safe. `open_source` opens the log."""

    def __init__(
        self,
        open_source: OpenSource,
        histories: JobHistoryStore | None = None,
        cache: MomentCache | None = None,
    ) -> None:
        self._open_source = open_source
        self._histories = histories
        self._turns = Turns(
            "ask for earlier moments",
            at_once=1,
            waiting=MOST_WAITING,
            timeout_s=_TIMEOUT_S,
            describe_delay=self._describe_progress,
        )
        self._cache = cache or MomentCache()
        self._progress = (0, 0)
        """The last folded offset of the moment that is being computed, and its offset."""
        self.damage: str | None = None
        """Why the moment of the end is not that of the last event."""

    @contextmanager
    def read(self, at: str | None) -> Iterator[Moment]:
        """Yields the moment after the last event up to a position; None: after the last event of the log.

        Raises BadRequest, NotFound, Unavailable.
        """
        try:
            position = None if at is None else LogPosition.parse(at)
        except InvalidPosition as error:
            raise BadRequest(str(error)) from None
        yield self._find_or_fail(position)

    def drop(self) -> None:
        """Drops the kept moments: the log is another one now."""
        self._cache.drop(self)

    def _find_or_fail(self, position: LogPosition | None) -> Moment:
        # An offset that is kept needs no log.
        found = (
            None if position is None or position.offset is None else self._cache.get(self, position.offset)
        )
        if found is not None:
            return found
        try:
            with self._turns.take(), self._open_source() as source:
                return self._find(source, position)
        except PositionOutOfRange as error:
            raise NotFound(str(error)) from None
        except (LogUnavailable, LogTruncated, ArchiveError) as error:
            raise Unavailable(str(error), {"Retry-After": "5"}) from None

    def _find(self, source: LogSource, position: LogPosition | None) -> Moment:
        if position is not None:
            return self._find_offset(source, source.at(position))
        try:
            return self._find_offset(source, source.log.end() - 1)
        except CorruptArchive as error:
            # What is before the damage can be shown.
            if error.last_good is None:
                raise
            self.damage = str(error)
            return self._find_offset(source, error.last_good)

    def _find_offset(self, source: LogSource, offset: int) -> Moment:
        found = self._cache.get(self, offset)
        if found is None:
            found = self._fold(source, offset)
            self._cache.put(self, offset, found)
        return found

    def _fold(self, source: LogSource, offset: int) -> Moment:
        earlier = self._cache.newest(self, offset - source.index.interval, offset)
        if earlier is None:
            fold = history_at(source, offset, self._histories, self._note_progress)
        else:
            fold = earlier.fold.copy()
            for batch in read_to_end(source.log, earlier.offset + 1, end=offset + 1):
                for record in batch:
                    fold.apply(record)
        if fold.replica.offset > offset:
            raise NotFound(f"The events up to offset {offset} were deleted from {source.log.topic}.")
        return Moment(fold, _time_at(source, fold.replica.offset))

    def _describe_progress(self) -> str:
        done, end = self._progress
        return f"The server reads the log up to offset {end}, and has reached {done}."

    def _note_progress(self, done: int, end: int) -> None:
        self._progress = done, end


def _time_at(source: LogSource, offset: int) -> int:
    """Returns the time of the last event up to an offset, in milliseconds since the epoch."""
    if offset < 0:
        return 0
    batches = read_to_end(source.log, offset, end=offset + 1)
    return next((batch[-1].header.time // 1000 for batch in batches), 0)
