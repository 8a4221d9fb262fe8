"""Lists watched paths again and again, an interval apart, when the task has read all that it has.

A thread lists, because a large or remote directory takes time; it waits until the task has taken the last list. Without
threads the list is made when it is requested and due.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from .read_ahead import MOST_BYTES, ReadAhead
from .source import UNTIL_WOKEN_S, SourceSetup

T = TypeVar("T")


class DirectoryWatch(Generic[T]):
    """Calls `list_all`, first an interval after its creation."""

    def __init__(self, list_all: Callable[[], T], interval_ms: int, setup: SourceSetup) -> None:
        self._list_all = list_all
        self._interval_ms = interval_ms
        self._wall_clock = setup.wall_clock
        self._due = setup.wall_clock() + interval_ms
        self._closed = threading.Event()
        self._listings = (
            ReadAhead(self._list_repeatedly(), lambda _: MOST_BYTES, setup.wake)
            if setup.reads_ahead
            else None
        )

    def take(self) -> T | None:
        """Returns the next list; None if it is not there yet. Raises as `list_all`."""
        if self._listings is not None:
            return next(self._listings)
        now = self._wall_clock()
        if now < self._due:
            return None
        self._due = now + self._interval_ms
        return self._list_all()

    @property
    def wait_s(self) -> float:
        """The seconds until there may be a list, unless the task is woken before."""
        if self._listings is not None:
            return UNTIL_WOKEN_S
        return max(0, self._due - self._wall_clock()) / 1000

    def close(self) -> None:
        """Ends the listing."""
        self._closed.set()
        if self._listings is not None:
            self._listings.close()

    def _list_repeatedly(self) -> Iterator[T]:
        while not self._closed.wait(self._interval_ms / 1000):
            yield self._list_all()
