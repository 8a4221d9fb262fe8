"""The writing of state in the caller's thread, where a task uses another thread or a child process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from ...runtime.stream_task.state.fork_worker import ForkedWork


class HeldBack:
    """The work of a child process: done at once, reported later."""

    def __init__(self, work: ForkedWork) -> None:
        self._done = work(lambda: None)
        self.result: Future[bytes] = Future()

    def release(self) -> None:
        """Reports the end of the work."""
        self.result.set_result(self._done)

    def kill(self) -> None:
        """Drops the report."""


class AtOnce(Executor):
    """Runs in the caller's thread, at once, what a thread runs in this order."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
