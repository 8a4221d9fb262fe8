"""asyncio's loop in the thread of the task, with a time of its own: it passes when nothing else is to do.

While functions have sockets, it passes as real time does: else a timeout would be over before an answer can come.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_PATIENCE_S: Final = 0.01
"""How long a turn waits for sockets."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that never sleeps. It waits only for threads, and no time passes meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.in_threads = 0
        """The calls that run in threads."""
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now

    @property
    def has_sockets(self) -> bool:
        """Whether something waits for a socket; the loop has one of its own."""
        return len(self._selector.get_map()) > 1  # type: ignore[attr-defined]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self.in_threads += 1
        future.add_done_callback(self._on_thread_done)
        return future

    def _on_thread_done(self, future: asyncio.Future[Any]) -> None:
        self.in_threads -= 1

    def turn(self, *, passes: bool = True) -> None:
        """Calls what is ready now. `passes`: if nothing is ready, waits for a thread, or time passes up to the next
        call."""
        if passes and not self._ready:  # type: ignore[attr-defined]
            if self.in_threads:
                self._process_events(self._selector.select(None))  # type: ignore[attr-defined]
            elif self.has_sockets:
                self._process_events(self._selector.select(_PATIENCE_S))  # type: ignore[attr-defined]
            elif self._scheduled:  # type: ignore[attr-defined]
                self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        self.call_soon(self.stop)
        self.run_forever()


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._of = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout and self._of.in_threads:
            timeout = None
        elif timeout and self._of.has_sockets:
            begun = time.monotonic()
            ready = super().select(timeout)
            self._of.now += time.monotonic() - begun
            return ready
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout:
            self._of.now += timeout
        return ready


class VirtualAsyncCalls:
    """AsyncCalls of one task."""

    def __init__(self) -> None:
        self._loop: VirtualLoop | None = None
        self._is_closed = False
        self._woken = asyncio.Event()

    @property
    def loop(self) -> VirtualLoop:
        if self._loop is None:
            self._loop = VirtualLoop()
        return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, timeout_s))

    def post(self, callback: Callable[[], object]) -> None:
        if not self._is_closed:  # an attempt that has crashed may still hear of a checkpoint
            self.loop.call_soon(callback)

    def wake(self) -> None:
        self._woken.set()

    def wait(self) -> None:
        self.loop.run_until_complete(self._woken.wait())
        self._woken.clear()

    def turn(self, *, passes: bool = True) -> None:
        """See VirtualLoop."""
        self.loop.turn(passes=passes)

    def take_woken(self) -> bool:
        """Returns, once, whether the task was woken."""
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def close(self) -> None:
        self._is_closed = True
        if self._loop is not None:
            self._loop.close()
