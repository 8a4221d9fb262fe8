"""Shows the progress of commands that take longer than a second, on stderr.

A terminal gets one line that is updated; elsewhere a line is printed at intervals.
"""

from __future__ import annotations

import sys
import time

from ....infra.closing import Closeable

_DELAY_S = 1.0
_PATIENCE_ELSEWHERE_S = 3.0
_TERMINAL_S = 0.2
_ELSEWHERE_S = 10.0


class ProgressLine(Closeable):
    """`with Progress("reads", total) as progress: ... progress(done)`; the call costs next to nothing."""

    def __init__(self, doing: str, total: int | None = None, unit: str = "events") -> None:
        """`doing`: such as "checks FILE"; `total`: how many units there are, if that is known."""
        self._doing = doing
        self.total = total
        self._unit = unit
        self._start = time.monotonic()
        self._next = self._start + (_DELAY_S if sys.stderr.isatty() else _PATIENCE_ELSEWHERE_S)
        self._shown = False

    def __call__(self, done: int) -> None:
        """Shows that `done` units of the total are done."""
        now = time.monotonic()
        if now < self._next:
            return
        terminal = sys.stderr.isatty()
        self._next = now + (_TERMINAL_S if terminal else _ELSEWHERE_S)
        rate = done / max(now - self._start, 1e-9)
        if self.total:
            share = f"{min(done, self.total) / self.total:4.0%}, {done:,} of {self.total:,} {self._unit}"
        else:
            share = f"{done:,} {self._unit}"
        line = f"{self._doing}: {share}, {rate:,.0f}/s"
        if terminal:
            self._shown = True
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Removes the line."""
        if self._shown:
            self._shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
