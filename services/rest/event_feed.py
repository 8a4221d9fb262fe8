"""The events of the log as server-sent events, to any number of clients.

A stream is a position in the log and a filter, and no queue. New events are encoded once, and kept for all streams in a
buffer with a bound; a stream that is behind it reads pages of the log. So a slow client costs nothing but its
connection, and one that takes nothing for some time is disconnected: it continues with `Last-Event-ID`.

Streams are coroutines on the event loop of the server. What waits for the log runs in threads, a few at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...infra.redaction import redacted
from ...schemas.event import Record
from ..history.log_source import LogSource, OpenSource
from .api.events import (
    EncodedEvent,
    EventSelection,
    encode_event,
    find_selection,
    find_start,
    log_errors,
    read_page,
)
from .errors import BadRequest, RestError, Unavailable
from .log_index import LogIndex
from .moment import Moment

_log = logger(__name__)
MAX_STREAMS = 100
MAX_BUFFERED = 4 << 20
"""Bytes of the newest events that are kept for all streams."""
_MAX_PART = 64
"""Events that a stream takes at once."""
_PAGE = 200
_READERS = 4
"""Streams that read the log at the same time."""
KEEP_ALIVE_S = 15.0
SEND_TIMEOUT_S = 30.0


class EventReplica(Protocol):
    """What a feed needs of a server's replica: its moment, and a call for each part of new events."""

    on_events: Callable[[Sequence[Record]], object] | None

    @property
    def offset(self) -> int:
        """The offset of the last event."""
        ...

    def read(self) -> AbstractContextManager[Moment]:
        """Yields the present moment."""
        ...


class EventFeed(Closeable):
    """Gives the events of the log to streams. `open`, and the streams, belong to one event loop."""

    def __init__(
        self,
        open_source: OpenSource,
        replica: EventReplica,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        send_timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:
        self._open_source = open_source
        self._replica = replica
        self.index = LogIndex(open_source, self._notify)
        """Where the events of a job and of a type are."""
        self.keep_alive_s = keep_alive_s
        self.send_timeout_s = send_timeout_s
        self.is_closed = False
        self._lock = threading.Lock()
        self._streams: dict[EventStream, asyncio.AbstractEventLoop] = {}
        self._buffer: deque[EncodedEvent] = deque()
        self._buffered = 0
        self._first = self._end = 0
        """The buffer has all events from `first` up to `end`."""
        self._readers = asyncio.Semaphore(_READERS)
        replica.on_events = self._on_events

    @property
    def count(self) -> int:
        """The number of streams."""
        return len(self._streams)

    async def open(self, parameters: Mapping[str, Any], last_event_id: str | None) -> Response:
        """GET /events/stream: the events from an offset or time on, and new ones as they come, as server-sent events"""
        start, wanted = await run_in_threadpool(self._find_start, parameters, last_event_id)
        stream = EventStream(self, start, wanted)
        with self._lock:
            if len(self._streams) >= MAX_STREAMS or self.is_closed:
                raise Unavailable(f"The server has {MAX_STREAMS} streams already.", {"Retry-After": "10"})
            if not self._streams:
                self._buffer.clear()
                self._buffered = 0
                self._first = self._end = self._replica.offset + 1
            self._streams[stream] = asyncio.get_running_loop()
        return stream

    def remove(self, stream: EventStream) -> None:
        """Forgets a stream that has ended."""
        with self._lock:
            self._streams.pop(stream, None)

    async def read(self, position: int, wanted: EventSelection) -> tuple[Sequence[EncodedEvent], int]:
        """Returns the next wanted events from a position on, maybe none yet, and the position after them."""
        recent = self._read_buffer(position, wanted)
        if recent is not None:
            return recent
        async with self._readers:
            return await run_in_threadpool(self._read_log, position, wanted)

    def close(self) -> None:
        """Ends all streams, and the thread of the index."""
        self.is_closed = True
        self._notify()
        self.index.close()

    def _find_start(
        self, parameters: Mapping[str, Any], last_event_id: str | None
    ) -> tuple[int, EventSelection]:
        with self._replica.read() as moment:
            end = moment.offset + 1
        wanted = EventSelection(None, parameters.get("type"))
        begin = parameters.get("from")
        if last_event_id is None and begin is None and parameters.get("job") is None:
            return end, wanted
        with log_errors(), self._open_source() as source:
            wanted = find_selection(source, self.index, parameters)
            if last_event_id is not None:
                return _continue_after(source, last_event_id), wanted
            return end if begin is None else find_start(source, begin), wanted

    def _read_buffer(
        self, position: int, wanted: EventSelection
    ) -> tuple[Sequence[EncodedEvent], int] | None:
        """Returns None if the buffer does not reach back to the position."""
        with self._lock:
            if position < self._first:
                return None
            end = self._end
            later = []
            for event in reversed(self._buffer):
                if event.offset < position:
                    break
                later.append(event)
        later.reverse()
        # The index knows the job of an event a moment after it has come.
        known = end if wanted.job is None else max(position, min(end, self.index.position))
        found: list[EncodedEvent] = []
        for event in later:
            if event.offset >= known:
                break
            if wanted.has_type(event.type) and wanted.job in (None, self.index.events.job_of(event.offset)):
                found.append(event)
                if len(found) == _MAX_PART:
                    return found, event.offset + 1
        return found, max(position, known)

    def _read_log(self, position: int, wanted: EventSelection) -> tuple[Sequence[EncodedEvent], int]:
        with log_errors(), self._open_source() as source:
            return read_page(source, position, _PAGE, wanted, self.index)

    def _on_events(self, records: Sequence[Record]) -> None:
        """Called by the thread of the replica, after each part that it has folded."""
        with self._lock:
            if not self._streams:
                return
        events = [encode_event(record) for record in records]
        with self._lock:
            for event in events:
                if event.offset >= self._end:
                    self._buffer.append(event)
                    self._buffered += len(event.data)
                    self._end = event.offset + 1
            while self._buffered > MAX_BUFFERED:
                oldest = self._buffer.popleft()
                self._buffered -= len(oldest.data)
                self._first = oldest.offset + 1
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            streams = list(self._streams.items())
        for stream, loop in streams:
            # The loop may be closed already when a server ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stream.has_news.set)


class EventStream(Response):
    """The response with the events of one stream. It ends with the connection, or with the server."""

    media_type = "text/event-stream"

    def __init__(self, feed: EventFeed, start: int, wanted: EventSelection) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.has_news = asyncio.Event()
        self._feed = feed
        self._position = start
        self._wanted = wanted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [
            asyncio.create_task(self._send_events(send)),
            asyncio.create_task(_await_disconnect(receive)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, (TimeoutError, RestError)):
                    _log.error("a stream of events failed", exc_info=error)
        finally:
            self._feed.remove(self)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_events(self, send: Send) -> None:
        feed, loop = self._feed, asyncio.get_running_loop()

        async def write(text: str) -> None:
            async with asyncio.timeout(feed.send_timeout_s):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await write(": the events of the log\n\n")
        sent, written = self._position, loop.time()
        while not feed.is_closed:
            self.has_news.clear()
            events, following = await feed.read(self._position, self._wanted)
            for event in events:
                # Redacted as every answer.
                await write(f"id: {event.offset}\nevent: log\ndata: {redacted(event.data.decode())}\n\n")
                sent, written = event.offset + 1, loop.time()
            is_current, self._position = following <= self._position, following
            if is_current:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(written + feed.keep_alive_s):
                        await self.has_news.wait()
            if loop.time() >= written + feed.keep_alive_s:
                # An id without data moves a client past events that its filter skips.
                skipped = "" if sent == self._position else f"id: {self._position - 1}\n"
                sent, written = self._position, loop.time()
                await write(f": keep-alive\n{skipped}\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _continue_after(source: LogSource, last_event_id: str) -> int:
    """Returns the offset after `Last-Event-ID`. Raises BadRequest, PositionOutOfRange."""
    if not last_event_id.isascii() or not last_event_id.isdecimal() or len(last_event_id) > 18:
        raise BadRequest("Last-Event-ID is the offset of an event.")
    return find_start(source, str(int(last_event_id) + 1))
