"""Runs an iterator that blocks in a thread, ahead of the task: by at most MOST_BYTES, or one item."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from ......infra import threads

T = TypeVar("T")
MOST_BYTES: Final = 32 << 20


class ReadAhead(Generic[T]):
    """An iterator over the items of another one. It yields None if the next item is not there yet, and calls `wake`
    when it is."""

    def __init__(self, items: Iterator[T], size_of: Callable[[T], int], wake: Callable[[], None]) -> None:
        self._items = items
        self._size_of = size_of
        self._wake = wake
        self._ready: deque[T] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._has_ended = False
        self._closed = False
        threads.Thread(target=self._read, name="read-ahead").start()

    def __iter__(self) -> Iterator[T | None]:
        return self

    def __next__(self) -> T | None:
        with self._changed:
            if self._ready:
                item = self._ready.popleft()
                self._size -= self._size_of(item)
                self._changed.notify()
                return item
            if self._failure is not None:
                raise self._failure
            if self._has_ended:
                raise StopIteration
            return None

    def close(self) -> None:
        """Ends the thread when it has its next item."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _read(self) -> None:
        failure: Exception | None = None
        try:
            for item in self._items:
                with self._changed:
                    self._changed.wait_for(lambda: self._size < MOST_BYTES or self._closed)
                    if self._closed:
                        return
                    self._ready.append(item)
                    self._size += self._size_of(item)
                self._wake()
        except Exception as error:
            failure = error
        with self._changed:
            self._failure, self._has_ended = failure, True
        self._wake()
