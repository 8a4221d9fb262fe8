"""An EventLog whose long tails begin with what a child process has decoded.

The child is a help, and no more: where it can't be started or ends early, this process reads on by itself from where
the child has come to, and meets whatever the child has met.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Sequence

import structlog

from ...infra.interpreter import module_command
from ...schemas.event import Event, Record
from ..configuration import Configuration
from ..log import Codec, EventLog, Tail
from ..log.event_log import Concerns, OnUnreadable
from .child import LENGTH
from .frames import unpack

_FEWEST = 200_000
"""Offsets. A child takes half a second to begin, and saves 4 us an event."""
_PIPE = 1 << 20
_log = structlog.get_logger(__name__)


class ReadAheadLog:
    """The log of `configuration`. `fewest`: tails that begin closer to its end are read by this process alone."""

    def __init__(
        self, log: EventLog, codec: Codec, configuration: Configuration, *, fewest: int = _FEWEST
    ) -> None:
        self._log = log
        self._codec = codec
        self._environment = {**os.environ, **configuration.environment()}
        self._fewest = fewest if (os.cpu_count() or 1) > 1 else None

    @property
    def topic(self) -> str:
        return self._log.topic

    def append(self, events: Sequence[Event]) -> list[int]:
        return self._log.append(events)

    def end(self) -> int:
        return self._log.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """One with `concerns` is read by this process alone: most of the log is skipped, not decoded."""
        if concerns is None and self._fewest is not None:
            end = self._log.end()
            if end - start >= self._fewest:
                return _AheadTail(self._log, self._codec, self._environment, start, end, on_unreadable)
        return self._log.tail(start, concerns=concerns, on_unreadable=on_unreadable)

    def close(self) -> None:
        self._log.close()


class _AheadTail:
    def __init__(
        self,
        log: EventLog,
        codec: Codec,
        environment: dict[str, str],
        start: int,
        end: int,
        on_unreadable: OnUnreadable | None,
    ) -> None:
        self._log = log
        self._codec = codec
        self._on_unreadable = on_unreadable
        self._position = start
        self._bytes_read = 0
        self._tail: Tail | None = None
        """Behind what the child has read."""
        self._child: subprocess.Popen[bytes] | None = None
        try:
            self._child = subprocess.Popen(
                module_command("tailrace.services.read_ahead", str(start), str(end)),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pipesize=_PIPE,
            )
        except OSError as error:
            _log.warning("the log is read by one process: another can't be started", reason=str(error))
            self._go_on_alone()

    @property
    def position(self) -> int:
        return self._position if self._tail is None else self._tail.position

    @property
    def bytes_read(self) -> int:
        return self._bytes_read + (0 if self._tail is None else self._tail.bytes_read)

    def poll(self, timeout: float) -> list[Record]:
        if self._tail is None:
            data = self._frame(timeout)
            if data is not None:
                return self._taken(data) if data else []
        return (self._tail or self._go_on_alone()).poll(timeout)

    def close(self) -> None:
        self._end_child()
        if self._tail is not None:
            self._tail.close()

    def _taken(self, data: bytes) -> list[Record]:
        frame, records, unreadable = unpack(data, self._codec, self._log.topic)
        self._position = frame.position
        self._bytes_read += frame.bytes_read
        if self._on_unreadable is not None:
            for each in unreadable:
                self._on_unreadable(each)
        return records

    def _frame(self, timeout: float) -> bytes | None:
        """The next; empty if there is none yet, None if there will be none."""
        out = None if self._child is None else self._child.stdout
        if out is None:
            return None
        if not select.select([out], [], [], timeout)[0]:
            return b""
        head = self._exactly(LENGTH.size)
        return None if head is None else self._exactly(LENGTH.unpack(head)[0])

    def _exactly(self, size: int) -> bytes | None:
        out = None if self._child is None else self._child.stdout
        data = bytearray(size)
        view, at = memoryview(data), 0
        while out is not None and at < size:
            count = os.readv(out.fileno(), [view[at:]])
            if not count:
                return None
            at += count
        return bytes(data)

    def _go_on_alone(self) -> Tail:
        self._end_child()
        self._tail = self._log.tail(self._position, on_unreadable=self._on_unreadable)
        return self._tail

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with child:
                child.kill()
