"""The socket text source: its StreamTask reads it without Spark (docs/notes/socket-source.md gives the reasons).

A separate thread reads the socket and wakes the task, so text is processed at once, also during a commit. The thread
stops reading while much text waits to be polled; then the socket blocks the sender.

A socket cannot be read again. When the task dies, the text that was read but not committed is lost, and so is what the
peer sent to the broken connection. Committed text is safe.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import pyarrow as pa

from ......infra import threads
from ......schemas.types import OperatorConfig
from ....common.failures import TaskError
from ....records.batch import Batch
from .lines import LineSplitter
from .source import UNTIL_WOKEN_S, PollResult, Source, SourceSetup

RETRY_DELAY_S: Final = 0.5
"""Flink's delay between attempts to connect."""
_CONNECT_TIMEOUT_S: Final = 10.0
_RECEIVE_BYTES: Final = 1 << 16
_CAPACITY_BYTES: Final = 8 << 20
"""The number of characters that may wait to be polled before the thread stops reading: enough for one commit."""


class SocketText(msgspec.Struct, frozen=True):
    """The address of the text server. `max_retries` is the number of retries of a refused connection; -1: no limit."""

    host: str
    port: int
    delimiter: str = "\n"
    max_retries: int = 0

    def connect(self, pause: Callable[[float], None]) -> socket.socket:
        """Returns a connection to the text server. `pause` waits for a number of seconds, and may raise to give up.

        Raises TaskError if the server cannot be reached.
        """
        tried = 0
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), _CONNECT_TIMEOUT_S)
            except OSError as error:
                if 0 <= self.max_retries <= tried:
                    raise TaskError(self._unreachable(error, tried)) from error
                tried += 1
                pause(RETRY_DELAY_S)
            else:
                connection.settimeout(None)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return connection

    def _unreachable(self, error: OSError, tried: int) -> str:
        again = f" (tried {tried + 1} times)" if tried else ""
        reason = error.strerror or str(error)
        return (
            f"socket_text_stream could not connect to {self.host}:{self.port}: {reason}{again};"
            " start the text server first, or give max_retries"
        )


class SocketTextSource(Source):
    """Emits the text records of one connection until the peer closes it."""

    def __init__(self, text: SocketText) -> None:
        self._text = text
        self._connection: socket.socket | None = None
        self._setup: SourceSetup | None = None
        self._records: deque[str] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._ended = False
        self._failure: str | None = None
        self._closed = False

    @classmethod
    def of(cls, config: OperatorConfig) -> SocketTextSource:
        """Reads the operator's parameters. Raises msgspec.ValidationError."""
        return cls(msgspec.convert(json.loads(config.parameters), SocketText))

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup
        self._connection = self._text.connect(setup.pause)
        threads.Thread(target=self._read, args=(self._connection,), name="socket").start()

    def poll(self, limit: int) -> PollResult:
        assert self._setup is not None
        with self._changed:
            values = [self._records.popleft() for _ in range(min(limit, len(self._records)))]
            self._size -= sum(map(len, values))
            ended = self._ended and not self._records
            self._changed.notify()
        if not values:
            if ended and self._failure is not None:
                raise TaskError(self._failure)
            return PollResult(has_ended=ended, wait_s=UNTIL_WOKEN_S)
        batch = Batch.from_rows(pa.repeat(self._setup.wall_clock(), len(values)), values)
        return PollResult(batch, has_ended=ended and self._failure is None)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._connection is not None:
            with contextlib.suppress(OSError):  # the peer may have closed it already
                self._connection.shutdown(socket.SHUT_RDWR)  # so that the thread's recv returns
            self._connection.close()

    def _read(self, connection: socket.socket) -> None:
        splitter = LineSplitter(self._text.delimiter)
        while True:
            try:
                data = connection.recv(_RECEIVE_BYTES)
            except OSError as error:
                self._add([], ended=True, failure=f"the connection to the source broke: {error.strerror}")
                return
            self._add(splitter.feed(data) if data else splitter.end(), ended=not data)
            with self._changed:
                self._changed.wait_for(lambda: self._size < _CAPACITY_BYTES or self._closed)
                if not data or self._closed:
                    return

    def _add(self, records: list[str], *, ended: bool, failure: str | None = None) -> None:
        assert self._setup is not None
        with self._changed:
            self._records.extend(records)
            self._size += sum(map(len, records))
            self._ended = ended
            self._failure = failure
        if records or ended:
            self._setup.wake()
