"""The thread of a TaskRuntime: it runs what other threads post, handles readable sockets, and wakes at deadlines.

Everything that it calls runs in this one thread. An error that a handler raises ends the process (infra/threads.py).
"""

from __future__ import annotations

import queue
import selectors
import socket
from collections.abc import Callable
from typing import Any, cast

from ....infra import threads


class EventLoop:
    """Call `start` once, and `stop` in an action of the loop; then `join` and `close`."""

    def __init__(self, *, next_deadline_s: Callable[[], float | None], on_wake: Callable[[], None]) -> None:
        """`next_deadline_s`: the seconds until the next deadline; None if there is none. `on_wake` is called after
        each wake-up, also for deadlines."""
        self._next_deadline_s = next_deadline_s
        self._on_wake = on_wake
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._stopped = False
        self._thread = threads.Thread(target=self._run, name="task-runtime")

    def start(self) -> None:
        """Starts the thread."""
        self.register(self._wake_in, self._take_posted)
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        """Whether it handles nothing more."""
        return self._stopped

    def post(self, action: Callable[[], None]) -> None:
        """Lets the loop run an action; returns at once. After the end of the loop it does nothing. From any thread."""
        self._posted.put(action)
        try:
            self._wake_out.send(b"w")
        except OSError:
            if not self._stopped:
                raise

    def register(self, source: socket.socket, handle: Callable[[], Any]) -> None:
        """Calls `handle` when the socket is readable."""
        self._selector.register(source, selectors.EVENT_READ, handle)

    def unregister(self, source: socket.socket) -> None:
        """Forgets a socket."""
        self._selector.unregister(source)

    def stop(self) -> None:
        """Ends the loop after the handler that runs now."""
        self._stopped = True

    def join(self, timeout_s: float) -> None:
        """Waits for the end of the thread."""
        self._thread.join(timeout_s)

    def close(self) -> None:
        """Closes its own sockets and all that are registered. The thread has ended."""
        for each in list(self._selector.get_map().values()):
            cast(socket.socket, each.fileobj).close()
        self._selector.close()
        for end in (self._wake_in, self._wake_out):
            end.close()

    def _run(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(self._next_deadline_s()):
                # An earlier handler may have closed the sockets.
                if not self._stopped:
                    key.data()
            self._on_wake()

    def _take_posted(self) -> None:
        self._wake_in.recv(4096)
        while not self._stopped and not self._posted.empty():
            self._posted.get_nowait()()
