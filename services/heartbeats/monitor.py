"""Detects heartbeat timeouts (Flink's HeartbeatMonitor).

Times are arguments, in microseconds of a monotonic clock. Targets are kept in the order of their last heartbeats, so
that the cost of a query depends on the late targets only. A target times out only if it could have been heard:

1. After a pause between two `tick`s longer than `stall`, in which this process did not read, all targets get a new
   timeout; also after `refresh`, when the topic could not be read or written.
2. `now` in `expired` is a time up to which every heartbeat has been read: the caller reads the topic to its end first.

Not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from ...infra.config.option_types import Duration

K = TypeVar("K", bound=Hashable)


class HeartbeatMonitor(Generic[K]):
    """Targets and the time of the last heartbeat of each."""

    def __init__(self, *, timeout: Duration, stall: Duration) -> None:
        self._timeout = timeout
        self._stall = stall
        self._last_heartbeats: OrderedDict[K, int] = OrderedDict()
        self._now = 0
        self._fresh = 0
        """No silence counts from before this time."""
        self._ticked: int | None = None

    def __contains__(self, target: K) -> bool:
        return target in self._last_heartbeats

    def __iter__(self) -> Iterator[K]:
        return iter(self._last_heartbeats)

    def __len__(self) -> int:
        return len(self._last_heartbeats)

    def watch(self, target: K, now: int) -> None:
        """Starts to monitor the target with a new timeout, also if it was monitored before."""
        self._last_heartbeats[target] = self._later(now)
        self._last_heartbeats.move_to_end(target)

    def forget(self, target: K) -> None:
        """Stops monitoring the target; unknown targets are ignored."""
        self._last_heartbeats.pop(target, None)

    def on_heartbeat(self, target: K, now: int) -> None:
        """Records a heartbeat; unknown targets are ignored."""
        if target in self._last_heartbeats:
            self.watch(target, now)

    def tick(self, now: int) -> None:
        """Records that the caller is running; call it more often than every `stall`."""
        if self._ticked is not None and now - self._ticked > self._stall:
            self.refresh(now)
        self._ticked = self._later(now)

    def refresh(self, now: int) -> None:
        """Records that no heartbeat could be received until now."""
        self._fresh = self._later(now)

    def silence(self, target: K, now: int) -> Duration:
        """Returns for how long the target has been silent. Raises KeyError."""
        return now - max(self._last_heartbeats[target], self._fresh)

    def deadline(self) -> int | None:
        """Returns when the first target will time out without a heartbeat; None: never."""
        if not self._last_heartbeats:
            return None
        return max(next(iter(self._last_heartbeats.values())), self._fresh) + self._timeout

    def expired(self, now: int) -> list[K]:
        """Returns the targets that have timed out, the longest silent first. Everything sent up to `now` has been read.

        They stay timed out until the caller forgets them, or watches them again.
        """
        if self._fresh + self._timeout > now:
            return []
        late = []
        for target, heard in self._last_heartbeats.items():
            if heard + self._timeout > now:
                break
            late.append(target)
        return late

    def _later(self, now: int) -> int:
        """Keeps time monotonic, which keeps the order."""
        self._now = max(self._now, now)
        return self._now
