"""Asynchronous calls in real time: a thread with asyncio's loop, for functions that reach for servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ...runtime.stream_task.loop.event_loop_thread import EventLoopThread

T = TypeVar("T")

TURN_S: Final = 0.01


class RealAsyncCalls:
    """AsyncCalls of one task."""

    def __init__(self) -> None:
        self._thread = EventLoopThread()
        self._woken = threading.Event()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._thread.loop).result(timeout_s)

    def post(self, callback: Callable[[], object]) -> None:
        self._thread.loop.call_soon_threadsafe(callback)

    def wake(self) -> None:
        self._woken.set()

    def wait(self) -> None:
        self._woken.wait()
        self._woken.clear()

    def turn(self, *, passes: bool = True) -> None:
        """Waits a little for the result of a call."""
        self._woken.wait(TURN_S)

    def take_woken(self) -> bool:
        """Returns, once, whether the task was woken."""
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def close(self) -> None:
        self._thread.close()
