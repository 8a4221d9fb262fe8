"""asyncio's loop of a process: one thread for all asynchronous operators of its tasks, begun with the first of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .....infra import threads
from .mailbox import Mailbox

T = TypeVar("T")


class EventLoopThread:
    """The thread, from its first use to `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threads.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threads.Thread(target=self._loop.run_forever, name="asyncio")
            self._thread.start()
        return self._loop

    def close(self) -> None:
        """Ends the thread, which is not blocked."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class TaskAsyncCalls:
    """The AsyncCalls of one task of the process."""

    def __init__(self, thread: EventLoopThread, mailbox: Mailbox, number: int) -> None:
        """`number`: the index of the task in the process."""
        self._thread = thread
        self._mailbox = mailbox
        self._number = number

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """See AsyncCalls."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._thread.loop).result(timeout_s)

    def post(self, callback: Callable[[], object]) -> None:
        """See AsyncCalls."""
        self._thread.loop.call_soon_threadsafe(callback)

    def wake(self) -> None:
        """See AsyncCalls."""
        self._mailbox.wake(self._number)

    def wait(self) -> None:
        """See AsyncCalls."""
        self._mailbox.wait_woken(self._number)
