"""Creates snapshots while this process leads the Dispatcher: when the log has grown by a number of bytes since the last
snapshot, or when that is too old and there are new events.

A child process creates the snapshot; the leader waits for its result in a thread and emits SnapshotTaken. Standbys read
that event and count from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from ...infra import threads
from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE, Record
from ...schemas.everyone import SnapshotTaken
from ..core.role import Clock, OutgoingEvent, Time
from .builder import SnapshotInfo

_log = logger(__name__)
_CHECK_INTERVAL_S = 1.0
_RETRY_INTERVAL_US = 60_000_000
CreateSnapshot = Callable[[int], "SnapshotInfo | None"]
"""(end) -> a snapshot of all events before that offset; raises SnapshotFailed."""


class SnapshotFailed(Exception):
    """A snapshot could not be created; the message gives the reason in one line."""


class LogProgress(msgspec.Struct, frozen=True):
    """How far a process has read: the offset of the last event, and the bytes read so far."""

    offset: int
    bytes_read: int


class SnapshotScheduler:
    """`progress` and `leads` are called in its own thread; `say` emits events of the Dispatcher."""

    def __init__(
        self,
        take: CreateSnapshot,
        *,
        max_bytes: int,
        max_age: Time,
        progress: Callable[[], LogProgress],
        leads: Callable[[], bool],
        say: Callable[[OutgoingEvent], None],
        clock: Clock,
        since: Time | None = None,
    ) -> None:
        """`since`: the time of the snapshot from which this process was restored. 0 for `max_bytes` or `max_age` turns
        that condition off."""
        self._take = take
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._progress = progress
        self._leads = leads
        self._say = say
        self._clock = clock
        self._since = clock() if since is None else since
        self._bytes = 0
        self._last_offset = -1
        self._last_attempt: LogProgress | None = None
        self._not_before: Time = 0
        self._stop = threading.Event()
        self._thread = threads.Thread(target=self._run, name="snapshots")

    def start(self) -> None:
        """Starts the thread; does nothing if snapshots are off."""
        if self._max_bytes or self._max_age:
            self._thread.start()

    def close(self) -> None:
        """Stops; returns when the thread has ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def on_snapshot_created(self, record: Record, body: SnapshotTaken) -> None:
        """Records a snapshot of any process from the log. Called on the thread that folds."""
        asked = self._last_attempt
        ours = asked is not None and asked.offset == body.offset
        self._bytes = asked.bytes_read if asked is not None and ours else self._progress().bytes_read
        self._since, self._last_offset = record.header.time, record.offset

    def due_reason(self, now: Time) -> str | None:
        """Returns why a snapshot is due now; None: it is not."""
        progress = self._progress()
        grown = progress.bytes_read - self._bytes
        if self._max_bytes and grown >= self._max_bytes:
            return f"{grown:,} bytes since the last one"
        if self._max_age and now - self._since >= self._max_age and progress.offset > self._last_offset:
            return f"the last one is {(now - self._since) // 1_000_000} s old"
        return None

    def create_if_due(self) -> SnapshotInfo | None:
        """Creates a snapshot if it is due, this process leads, and the last attempt was not too recent."""
        now = self._clock()
        if now < self._not_before or not self._leads():
            return None
        why = self.due_reason(now)
        if why is None:
            return None
        progress = self._last_attempt = self._progress()
        try:
            taken = self._take(progress.offset + 1)
        except SnapshotFailed as error:
            _log.warning("creating a snapshot failed: retries in a minute", why=why, error=str(error))
            self._not_before = now + _RETRY_INTERVAL_US
            return None
        self._bytes, self._since, self._last_offset = progress.bytes_read, now, progress.offset
        if taken is None:
            return None
        _log.info("created a snapshot", why=why, uri=taken.uri, bytes=taken.size)
        body = SnapshotTaken(
            offset=taken.offset,
            uri=taken.uri,
            size=taken.size,
            schema_fingerprint=taken.schema_fingerprint,
            state_hash=taken.state_hash,
        )
        self._say(OutgoingEvent(EVERYONE, body, None))
        return taken

    def _run(self) -> None:
        while not self._stop.wait(_CHECK_INTERVAL_S):
            self.create_if_due()
