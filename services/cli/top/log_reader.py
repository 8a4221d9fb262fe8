"""Reads a log on a thread of its own, so that the screen never waits for Kafka or a disk.

A log that has gone away is opened again every second until it is back, and read on from where it was: nothing is lost
of what was seen, and nothing is seen twice. What is wrong with a file stays wrong: then the reader waits until another
place is wanted.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import msgspec

from ....infra import threads
from ....schemas.event import Record
from ...core.role import Time
from ...history.archive.errors import ArchiveError
from ...history.job_history_store import JobHistoryStore
from ...history.log_position import InvalidPosition, LogPosition, PositionOutOfRange
from ...history.log_source import LogSource
from ...log import LogTruncated, LogUnavailable
from ...log.event_log import Tail, Unreadable
from ..exit_codes import to_failure
from .view_builder import ViewBuilder

_POLL_S = 0.25
_RETRY_S = 1.0
_QUIET_POLLS = 8
"""After so many that brought nothing it is asked whether the log is still there."""
_MAX_BATCHES = 8
_MAX_COPIES = 32
CONTEXT = 1_000
"""Events before the wanted place that are read even where a snapshot is nearer: what the screen tells of the log."""


class OpenLog(msgspec.Struct, frozen=True):
    """A log to read, and what is kept beside the snapshots of a live cluster."""

    source: LogSource
    histories: JobHistoryStore | None = None

    @property
    def live(self) -> bool:
        """Whether more may come."""
        return self.source.file is None


class ReadStarted(msgspec.Struct, frozen=True):
    """What comes next is for this Watch, in which nothing was told yet; None: for the one that is there."""

    term: int
    watch: ViewBuilder | None
    target: int
    """The offset whose moment is wanted."""
    time: Time | None
    """The time that was wanted, where it was one."""
    end: int
    """Of the log, as it is now."""


class RecordsRead(msgspec.Struct, frozen=True):
    """The next events; all below `position` have been given. `end`: of the log, as far as it is known."""

    term: int
    records: list[Record]
    position: int
    end: int
    unreadable: tuple[str, ...] = ()
    """Of each record among them that holds no event: where it is, and why."""


class SeekRejected(msgspec.Struct, frozen=True):
    """Nothing can be shown of the place that was wanted."""

    term: int
    why: str


class LogUnreachable(msgspec.Struct, frozen=True):
    """The log can't be read; `final`: nor is it waited for."""

    why: str
    final: bool


class LogReconnected(msgspec.Struct, frozen=True):
    """The log can be read again."""


class ReaderFailed(msgspec.Struct, frozen=True):
    """A mistake of ours: the thread has ended."""

    error: Exception


Message = ReadStarted | RecordsRead | SeekRejected | LogUnreachable | LogReconnected | ReaderFailed


class _SeekRequest(msgspec.Struct, frozen=True):
    term: int
    place: str | None
    """None: the end."""
    shown: int
    """The offset that is shown now; -1: none."""


class _Interrupted(Exception):
    """Another place is wanted, or nothing any more."""


class LogReader:
    """Gives Messages, in order, by `get`. Those of terms before the last one that was asked for are of no use."""

    def __init__(self, opened: OpenLog, reopen: Callable[[], OpenLog], *, retry_s: float = _RETRY_S) -> None:
        """`reopen` opens the log anew where it had gone away; it may raise what `explained` knows."""
        self._opened: OpenLog | None = opened
        self._reopen = reopen
        self._retry_s = retry_s
        self._messages: queue.Queue[Message] = queue.Queue(_MAX_BATCHES)
        self._wanted: queue.SimpleQueue[_SeekRequest] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._term = 0
        self._asked = 0
        self._watching = False
        self._tail: Tail | None = None
        self._position = 0
        self._end = 0
        self._unreadable: list[str] = []
        self._kept: queue.SimpleQueue[ViewBuilder] = queue.SimpleQueue()
        self._known: list[ViewBuilder] = []
        """Where to begin from, by offset."""
        self._thread = threads.Thread(target=self._run, name="top-reader")

    def start(self) -> None:
        """Begins to read, once a place is wanted."""
        self._thread.start()

    def seek_to(self, place: str | None, shown: int = -1) -> int:
        """Goes to OFFSET|TIME, or to the end; returns the term of what comes from there."""
        self._asked += 1
        self._wanted.put(_SeekRequest(self._asked, place, shown))
        return self._asked

    def store_builder(self, watch: ViewBuilder) -> None:
        """A moment to begin from when somebody goes back; nobody else is to use it."""
        self._kept.put(watch)

    def get(self, timeout_s: float = 0.0) -> Message | None:
        """The next one; None where there is none, also after waiting for it."""
        try:
            return self._messages.get(timeout=timeout_s) if timeout_s else self._messages.get_nowait()
        except queue.Empty:
            return None

    def stop(self) -> None:
        """Ends the thread; what it waits for in Kafka is not waited for."""
        self._stopped.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    if self._opened is None:
                        self._open_again()
                    self._run_once()
                except _Interrupted:
                    continue
                except Exception as error:
                    self._on_error(error)
        except _Interrupted:
            pass
        except Exception as error:
            self._put(ReaderFailed(error), anyway=True)
        finally:
            self._close_log()

    def _run_once(self) -> None:
        """Does what is wanted, or reads a little. Raises what reading raises."""
        wanted = self._newest_request()
        if wanted is not None:
            self._begin(wanted)
        elif not self._watching:
            self._stopped.wait(0.05)
        else:
            self._read()

    def _newest_request(self) -> _SeekRequest | None:
        found = None
        while not self._wanted.empty():
            found = self._wanted.get()
        return found

    def _begin(self, wanted: _SeekRequest) -> None:
        assert self._opened is not None
        source = self._opened.source
        self._term = wanted.term
        try:
            self._end = source.log.end()
            target, time = self._end - 1, None
            if wanted.place is not None:
                position = LogPosition.parse(wanted.place)
                target, time = source.at(position), position.time
            if self._watching and wanted.shown >= 0 and wanted.shown <= target:
                # What was read and not yet shown has gone with its term.
                self._seek(wanted.shown + 1)
                self._put(ReadStarted(wanted.term, None, target, time, self._end))
                return
            watch, start = self._watch_before(self._opened, target)
            if watch.offset > target:
                self._put(
                    SeekRejected(
                        wanted.term, f"the log's head is gone: nothing is known before offset {start}"
                    )
                )
                return
            self._seek(start)
        except (InvalidPosition, PositionOutOfRange) as error:
            self._put(SeekRejected(wanted.term, str(error)))
            return
        except (LogUnavailable, LogTruncated, ArchiveError):
            # Once more, when the log is back; but what is wanted next goes before.
            if self._opened.live:
                self._wanted.put(wanted)
            raise
        self._watching = True
        self._put(ReadStarted(wanted.term, watch, target, time, self._end))

    def _watch_before(self, opened: OpenLog, target: int) -> tuple[ViewBuilder, int]:
        """One that is told the log from an offset on, to see the moment of a later one."""
        while not self._kept.empty():
            self._known.append(self._kept.get())
        self._known.sort(key=lambda each: each.offset)
        if len(self._known) > _MAX_COPIES:
            del self._known[::2]
        near = [each for each in self._known if each.offset <= target]
        if near:
            return near[-1].copy(), near[-1].offset + 1
        watch = ViewBuilder(opened.source.cluster)
        return watch, watch.begin(opened.source.log, opened.source.store, opened.histories, target - CONTEXT)

    def _seek(self, position: int) -> None:
        assert self._opened is not None
        if self._tail is not None:
            self._tail.close()
        self._tail = None
        self._tail = self._tail_from(position)
        self._position = position

    def _tail_from(self, position: int) -> Tail:
        assert self._opened is not None
        self._unreadable.clear()
        return self._opened.source.log.tail(position, on_unreadable=self._met)

    def _met(self, found: Unreadable) -> None:
        self._unreadable.append(f"offset {found.offset}: {found.reason}")

    def _read(self) -> None:
        assert self._opened is not None
        log = self._opened.source.log
        if self._tail is None:
            self._tail = self._tail_from(self._position)
        if not self._opened.live and self._tail.position >= self._end:
            self._wait_for_request()
            return
        for _ in range(_QUIET_POLLS):
            records = self._tail.poll(_POLL_S)
            moved, self._position = self._tail.position > self._position, self._tail.position
            self._end = max(self._end, self._position)
            if moved:
                unreadable = tuple(self._unreadable)
                self._unreadable.clear()
                self._put(RecordsRead(self._term, records, self._position, self._end, unreadable))
                return
            if self._stopped.is_set() or not self._wanted.empty():
                return
        end = log.end()
        if end < self._position:
            raise LogUnavailable(
                f"{log.topic} ends before offset {end}, but was read up to {self._position}: it is another log now; "
                "run `tailrace top` anew"
            )
        self._end = end

    def _wait_for_request(self) -> None:
        while self._wanted.empty() and not self._stopped.wait(0.05):
            pass

    def _on_error(self, error: Exception) -> None:
        """Tells of it. Raises what nobody expects, _Interrupted."""
        known = to_failure(error)
        if known is None:
            raise error
        final = self._opened is not None and not self._opened.live
        self._put(LogUnreachable(" ".join(str(known).split()), final))
        if final:
            self._wait_for_request()
            return
        self._close_log()
        self._stopped.wait(self._retry_s)

    def _open_again(self) -> None:
        """Raises what opening raises."""
        opened = self._reopen()
        try:
            opened.source.log.end()
        except BaseException:
            opened.source.close()
            raise
        self._opened = opened
        self._put(LogReconnected())

    def _close_log(self) -> None:
        tail, opened = self._tail, self._opened
        self._tail = self._opened = None
        if tail is not None:
            tail.close()
        if opened is not None:
            opened.source.close()

    def _put(self, message: Message, *, anyway: bool = False) -> None:
        """Waits for room. Raises _Interrupted where nobody wants the message any more."""
        while not self._stopped.is_set():
            try:
                self._messages.put(message, timeout=0.1)
                return
            except queue.Full:
                if isinstance(message, RecordsRead) and not self._wanted.empty():
                    raise _Interrupted from None
        if not anyway:
            raise _Interrupted
