"""How long a process may trust its ZooKeeper session, measured by its own clock.

ZooKeeper ends a session when it received nothing for the session timeout, and can tell the holder only after a
reconnect: too late. So the holder counts from the moment when it *sent* the last request that was answered: the session
can't have ended before that moment plus the timeout.

- *fresh*, for two thirds of the timeout: nobody else can be elected, whatever happens to the network. The last third
  covers what a server of the ensemble knows of a session and has not yet told its leader.
- *held*, for the whole timeout: the process decides nothing, and gives nothing back. If it reconnects in time, it
  continues as before.
- *expired* after that, for good: nothing that was held under this lease returns, even if ZooKeeper kept the session,
  because another process may have seen it as gone. The next lease is a new one.

The clock continues while the process is stopped (SIGSTOP) and while the machine sleeps.
"""

from __future__ import annotations

import threading
import time

FRESH = 2 / 3
"""The part of the session timeout for which a lease is fresh."""


def uptime() -> float:
    """Seconds since some moment, sleep of the machine included where the system counts it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """Of one session. Times are seconds of one clock that never goes back; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lapsed = True
        self._since = 0.0
        self._timeout = 0.0

    def begin(self, sent: float, timeout: float) -> None:
        """A lease that nothing is held under yet: a request that was sent then has been answered."""
        with self._lock:
            self._since, self._timeout, self._lapsed = sent, timeout, False

    def confirm(self, sent: float, now: float) -> None:
        """A request that was sent then has been answered; too late for a lease that has lapsed meanwhile."""
        with self._lock:
            if self._is_held(now):
                self._since = max(self._since, sent)

    def expire(self) -> None:
        """The session is known to be gone."""
        with self._lock:
            self._lapsed = True

    def renew_at(self, now: float) -> bool:
        """Whether nobody else can have been elected."""
        with self._lock:
            return self._is_held(now) and now < self._since + self._timeout * FRESH

    def is_held_until(self, now: float) -> bool:
        """Whether what is held under the lease is not given up."""
        with self._lock:
            return self._is_held(now)

    def _is_held(self, now: float) -> bool:
        if now >= self._since + self._timeout:
            self._lapsed = True
        return not self._lapsed
