"""A server of real text: Python's manual and the sources of its standard library, at a steady rate of words.

It records every line before it sends it, so that the counted words can be compared with the sent ones.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ....infra import threads
from ....infra.closing import Closeable

_TICK_S = 0.02


class TextServer(Closeable):
    """Serves one client after another on a free loopback port. Each client continues where the last one stopped."""

    def __init__(self, words_per_s: int) -> None:
        self._rate = words_per_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = threading.Event()
        self._paused = threading.Event()
        self._lock = threading.Lock()
        self._sent: list[tuple[str, ...]] = []
        self.port: int = self._listener.getsockname()[1]
        self._thread = threads.Thread(target=self._serve, name="text server")
        self._thread.start()

    def sent_words(self) -> list[tuple[str, ...]]:
        """The words of each line that was sent, in order."""
        with self._lock:
            return list(self._sent)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Sends no line while the context lasts; `sent_words` then has all that were sent."""
        with self._lock:
            self._paused.set()
        try:
            yield
        finally:
            self._paused.clear()

    def close(self) -> None:
        """Ends the connection and the server."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        lines = standard_library_lines()
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                self._send_to(client, lines)

    def _send_to(self, client: socket.socket, lines: Iterator[str]) -> None:
        start, count = time.monotonic(), 0
        while not self._closing.wait(_TICK_S):
            while count < (time.monotonic() - start) * self._rate:
                with self._lock:
                    if self._paused.is_set():
                        break
                    line = next(lines)
                    words = tuple(line.split())
                    self._sent.append(words)
                client.sendall(f"{line}\n".encode())
                count += len(words)


def standard_library_lines() -> Iterator[str]:
    """Lines with words: the topics of the manual as `help()` shows them, then the modules; again and again."""
    while True:
        for text in itertools.chain(_manual(), _modules()):
            yield from (line for line in text.split("\n") if line.split())


def _manual() -> Iterator[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave it out
        return
    yield from topics.values()


def _modules() -> Iterator[str]:
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        yield path.read_text("utf-8", "replace")
