"""How long a process trusts its ZooKeeper session, or its Lease in Kubernetes, by the local clock alone.

ZooKeeper ends a session when it has heard nothing for the session timeout, but can report that only after a reconnect,
which is too late. The holder therefore measures from the moment at which it *sent* the last request that was answered:
the session cannot end earlier than the arrival of that request plus the timeout.

- *fresh*, for two thirds of the timeout: no other process can have been elected, whatever happens to the network. The
  last third covers the time in which a server knows of the session and has not yet informed the ensemble's leader.
- *held*, for the whole timeout: the process decides nothing, but gives nothing up. A master that reconnects in time
  continues as before.
- *lapsed* after that, for good: grants under this lease do not come back, even if ZooKeeper kept the session, because
  another process may have seen it end. The next lease is a new one.

For a Lease in Kubernetes the timeout is the lease duration, and a request is a renewal.

The clock continues while the process is stopped (SIGSTOP) and while the machine sleeps.
"""

from __future__ import annotations

import threading
import time

FRESH = 2 / 3
"""The fraction of the session timeout for which a lease is fresh."""


def uptime() -> float:
    """Returns seconds since an arbitrary moment, including the machine's sleep where the system counts it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """The lease of one session. Times are seconds of one monotonic clock. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lapsed = True
        self._since = 0.0
        self._timeout = 0.0

    def begin(self, sent: float, timeout_s: float) -> None:
        """Starts a new lease: a request that was sent at `sent` has been answered."""
        with self._lock:
            self._since, self._timeout, self._lapsed = sent, timeout_s, False

    def confirm(self, sent: float, now: float) -> None:
        """Extends the lease: a request that was sent at `sent` has been answered. Has no effect on a lapsed lease."""
        with self._lock:
            if self._is_held(now):
                self._since = max(self._since, sent)

    def expire(self) -> None:
        """Ends the lease: the session is known to be gone."""
        with self._lock:
            self._lapsed = True

    def renew_at(self, now: float) -> bool:
        """Returns whether no other process can have been elected."""
        with self._lock:
            return self._is_held(now) and now < self._since + self._timeout * FRESH

    def is_held_until(self, now: float) -> bool:
        """Returns whether the grants under the lease are still held."""
        with self._lock:
            return self._is_held(now)

    def _is_held(self, now: float) -> bool:
        if now >= self._since + self._timeout:
            self._lapsed = True
        return not self._lapsed
