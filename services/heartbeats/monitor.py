"""Detects targets without a heartbeat for longer than the timeout (Flink's HeartbeatMonitor).

Times are arguments, in microseconds of a monotonic clock. Targets are ordered by their last heartbeat, so a check costs
O(expired targets). Only time in which a heartbeat could have been received counts:

1. After a pause longer than `stall` between two `tick`s, in which this process did not listen, and after `refresh`,
   when the topic could not be read or written, every target has a full timeout.
2. Callers pass `expired` a time up to which they have received everything: they read the topic to its end first.

Not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class HeartbeatMonitor(Generic[K]):
    """Targets and when each was last heard."""

    def __init__(self, *, timeout: int, stall: int) -> None:
        """In microseconds."""
        self._timeout = timeout
        self._stall = stall
        self._heard: OrderedDict[K, int] = OrderedDict()
        self._now = 0
        self._fresh = 0
        """Nobody counts as silent since before this time."""
        self._ticked: int | None = None

    def __contains__(self, target: K) -> bool:
        return target in self._heard

    def __iter__(self) -> Iterator[K]:
        return iter(self._heard)

    def __len__(self) -> int:
        return len(self._heard)

    def watch(self, target: K, now: int) -> None:
        """Expects the target from now on, with a fresh timeout, also if it was expected before."""
        self._heard[target] = self._later(now)
        self._heard.move_to_end(target)

    def forget(self, target: K) -> None:
        """Expects the target no more; one that is not expected is passed over."""
        self._heard.pop(target, None)

    def on_heartbeat(self, target: K, now: int) -> None:
        """The target lives; one that is not expected is passed over."""
        if target in self._heard:
            self.watch(target, now)

    def tick(self, now: int) -> None:
        """The caller is at work; to be called more often than every `stall`."""
        if self._ticked is not None and now - self._ticked > self._stall:
            self.refresh(now)
        self._ticked = self._later(now)

    def refresh(self, now: int) -> None:
        """Nobody could be heard until now."""
        self._fresh = self._later(now)

    def silence(self, target: K, now: int) -> int:
        """For how long the target has been silent. Raises KeyError."""
        return now - max(self._heard[target], self._fresh)

    def deadline(self) -> int | None:
        """When the first target will be late if nothing is heard; None: never."""
        if not self._heard:
            return None
        return max(next(iter(self._heard.values())), self._fresh) + self._timeout

    def expired(self, now: int) -> list[K]:
        """Who is late, the longest silent first; `now` is a time up to which everything was heard.

        They stay targets, and stay late: the caller forgets them, or gives them another timeout with `watch`.
        """
        if self._fresh + self._timeout > now:
            return []
        late = []
        for target, heard in self._heard.items():
            if heard + self._timeout > now:
                break
            late.append(target)
        return late

    def _later(self, now: int) -> int:
        """Time does not go back: that keeps the order."""
        self._now = max(self._now, now)
        return self._now
