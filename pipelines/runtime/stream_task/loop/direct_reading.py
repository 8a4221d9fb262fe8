"""When a StreamTask reads its partitions itself: whenever no query of Spark delivers them.

    from                                                       to
    the start, or SwitchQuery(reads_directly)                  a message of the query that is NEAR the task's position
    the end of the last connection of Spark's workers, in      or OVERLAP_S after QueryConnected, if nothing has
    real-time mode: a batch, or the query, has ended           arrived

So a task runs as soon as it is open. When the query takes over, it begins at a position that the task had before, so it
delivers everything that a closed reader has read and that does not count any more.

In other modes a query delivers ranges of offsets. A reader might end within one, so there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ...common.protocol import SwitchQuery
from ..input.direct_reader import Reader

NEAR: Final = 500
"""A query that repeats at most so many messages of a partition takes over. It never quite catches up with a reader, and
while it repeats messages nothing is processed."""
OVERLAP_S: Final = 1.0
"""How long the reader continues after the tasks of a query have started: their consumers need a moment."""


class DirectReading:
    """Belongs to the mailbox loop's thread."""

    def __init__(
        self, open_reader: Callable[[int], Reader] | None = None, *, from_the_start: bool = False
    ) -> None:
        """`open_reader` receives the reader's number, and reads from the task's positions; None: there is nothing to
        read."""
        self._open_reader = open_reader
        self._from_the_start = from_the_start
        self._real_time_from: int | None = 0 if from_the_start else None
        """The number of the first query in real-time mode; None: the present one is in another mode."""
        self._reader: Reader | None = None
        self._number = 0
        self._ends_at = float("inf")

    def start(self) -> None:
        """Called when the task is open."""
        if self._from_the_start:
            self._open()

    def counts(self, number: int) -> bool:
        """Whether messages of that reader count."""
        return self._reader is not None and number == self._number

    def on_query_delivers(self, behind: int) -> None:
        """A query has delivered a message that is so far behind the task's position."""
        if behind <= NEAR:
            self.close()
        else:
            self._ends_at = float("inf")  # it will come near

    @property
    def is_open(self) -> bool:
        """Whether a reader reads."""
        return self._reader is not None

    def on_query_switched(self, switch: SwitchQuery) -> None:
        """The next query is on its way."""
        if switch.overlap is not None:
            # A reader may continue for that long. A later one might end within a range.
            self._real_time_from = None
            return
        if switch.reads_directly or not switch.at_once:
            self._real_time_from = switch.query
        else:
            self._real_time_from = None
            self.close()
        if switch.reads_directly:
            self._open()

    def on_query_connected(self) -> None:
        """The tasks of a query have started."""
        self._ends_at = time.monotonic() + OVERLAP_S

    def on_connections_closed(self, query: int) -> None:
        """No worker is connected any more; `query` is the number of the query that counts."""
        if self._real_time_from is not None and query >= self._real_time_from:
            self._open()

    @property
    def ends_at(self) -> float:
        """Returns when the reading ends even if the query has delivered nothing; of the monotonic clock."""
        return float("inf") if self._reader is None else self._ends_at

    def close(self) -> None:
        """Ends the reading."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> None:
        self._ends_at = float("inf")
        if self._reader is None and self._open_reader is not None:
            self._number += 1
            self._reader = self._open_reader(self._number)
