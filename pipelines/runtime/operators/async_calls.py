"""What asynchronous operators need of their process: asyncio's loop, and the mailbox of the task."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class AsyncCalls(Protocol):
    """The loop of the process, and the mailbox of one task. The task thread calls all methods but `wake`."""

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Returns the result of a coroutine. Raises what it raises, and TimeoutError if that takes too long."""

    def post(self, callback: Callable[[], object]) -> None:
        """Lets the loop's thread call this."""

    def wake(self) -> None:
        """Makes the task call `on_woken` of its operators. Any thread may call it."""

    def wait(self) -> None:
        """Waits until the task is woken. Raises what the mailbox raises if the task is canceled."""
