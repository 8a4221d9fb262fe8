"""Detects within milliseconds that a process of this machine has exited, whichever process started it.

On Linux it uses pidfds: an open pidfd refers to its process for ever, even if another process gets the same pid.
Without pidfds it polls twice a second, and identifies processes by pid and creation time.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from . import threads
from .logging_setup import logger
from .processes import ProcessIdentity

K = TypeVar("K", bound=Hashable)
_POLL_S = 0.5
_log = logger(__name__)


class ProcessExitWatcher(Generic[K]):
    """Watches processes, each under a key. Thread-safe."""

    def __init__(self, on_exit: Callable[[K], None], *, use_pidfd: bool = hasattr(os, "pidfd_open")) -> None:
        """`on_exit` is called on the watching thread, once for each key that was not dropped before."""
        self._on_exit = on_exit
        self._use_pidfd = use_pidfd
        self._lock = threading.Lock()
        self._watched: dict[K, int | ProcessIdentity] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._closed = False
        self._thread = threads.Thread(target=self._run, name="process exits")
        self._thread.start()

    def watch(self, key: K, process: ProcessIdentity) -> bool:
        """Starts to watch a process; returns whether it is alive. A key that is already watched is replaced."""
        self.drop(key)
        watched: int | ProcessIdentity = process
        if self._use_pidfd:
            try:
                watched = os.pidfd_open(process.pid)
            except ProcessLookupError:
                return False
            except OSError as error:
                # The kernel has no support, or a sandbox forbids it.
                _log.warning("pidfds are not available; polls twice a second", error=str(error))
                self._use_pidfd = False
        # Check it after opening the descriptor: from then on it cannot refer to another process.
        if process.process() is None:
            if isinstance(watched, int):
                os.close(watched)
            return False
        with self._lock:
            if self._closed:
                if isinstance(watched, int):
                    os.close(watched)
                return True
            self._watched[key] = watched
            if isinstance(watched, int):
                self._selector.register(watched, selectors.EVENT_READ, key)
        self._wake()
        return True

    @property
    def watched(self) -> frozenset[K]:
        """Returns the watched keys."""
        with self._lock:
            return frozenset(self._watched)

    def drop(self, key: K) -> None:
        """Stops watching the key; unknown keys are ignored."""
        with self._lock:
            self._take(key)

    def close(self) -> None:
        """Stops watching everything. Do not call it in `on_exit`."""
        with self._lock:
            self._closed = True
        self._wake()
        self._thread.join()
        with self._lock:
            for key in list(self._watched):
                self._take(key)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_out.send(b"w")

    def _take(self, key: K) -> bool:
        """Removes the key; returns whether it was still watched."""
        watched = self._watched.pop(key, None)
        if isinstance(watched, int):
            self._selector.unregister(watched)
            os.close(watched)
        return watched is not None

    def _run(self) -> None:
        while not self._closed:
            looking = [watched for watched in self._watched.copy().values() if not isinstance(watched, int)]
            ready = self._selector.select(_POLL_S if looking else None)
            ended: list[K] = [key.data for key, _ in ready if key.fileobj is not self._wake_in]
            with contextlib.suppress(BlockingIOError):
                self._wake_in.recv(4096)
            for key, watched in self._watched.copy().items():
                if not isinstance(watched, int) and watched.process() is None:
                    ended.append(key)
            for key in ended:
                self._notify(key)

    def _notify(self, key: K) -> None:
        with self._lock:
            watched = self._watched.get(key)
            # The number of a descriptor that was just closed may already belong to another process.
            if self._closed or (isinstance(watched, int) and not _is_readable(watched)):
                return
            if not self._take(key):
                return
        try:
            self._on_exit(key)
        except Exception:
            _log.exception("cannot report the exit of a process")


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
