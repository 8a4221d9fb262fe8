"""How long a session is believed in, by this machine's clock alone.

ZooKeeper ends a session when it has heard nothing of it for the session timeout, and can tell its holder only once they
are connected again: too late. So the holder counts for itself, from the moment at which it *sent* the last request that
was answered: before that request's arrival plus the timeout the session cannot have ended.

- *fresh*, for two thirds of the timeout: nobody else can have been elected, whatever happened to the network. The third
  that is left covers what a server of the ensemble knows of a session and has not yet told its leader.
- *held*, for the whole timeout: nothing is decided any more, but nothing is given up either: a master that comes back
  in time finds everything as it was (document 000).
- *lapsed* after that, for good: what was held under this lease does not come back, even if ZooKeeper turns out to have
  kept the session, because somebody may have seen it gone. The next lease is another.

The clock goes on while the process is stopped (SIGSTOP) and while the machine sleeps.
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
