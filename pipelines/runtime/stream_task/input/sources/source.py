"""The contract of a source that its StreamTask reads: the task requests records when it has room for them.

All calls come from the task thread: `restore` for the messages of the changelog, `open`, then `poll` and `take_changes`
in turn, then `close` (always, also after a failed `open`). The position that `take_changes` returns is committed in the
same transaction as the results of the records polled before it. So a source that can be rewound puts each record into
exactly one committed transaction, whatever the limits of its polls were.

A record carries the time of its poll. That time never decreases within an attempt (`wall_clock` does not), so
processing time may advance to the millisecond before the last poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ......schemas.types import OperatorConfig
from .....functions import RuntimeContext
from ....records.batch import Batch
from ....spark.file_requests import SparkFiles
from ....state_backend.stateful import Origin

UNTIL_WOKEN_S: Final = 3600.0
"""`PollResult.wait_s` of a source that calls `wake` when it has records."""


class PollResult(msgspec.Struct, frozen=True):
    """The result of a poll."""

    batch: Batch | None = None
    """One or more records; None: there are none now."""
    has_ended: bool = False
    """Whether no batch follows this one."""
    wait_s: float = 0.0
    """The seconds until a poll may return records, unless the source calls `wake` before."""


class SourceSetup(msgspec.Struct, frozen=True):
    """The environment that a source runs in."""

    config: OperatorConfig
    context: RuntimeContext
    wall_clock: Callable[[], int]
    """Milliseconds since the epoch; never decreases."""
    wake: Callable[[], None] = lambda: None
    """Ends the task's wait for `PollResult.wait_s`; any thread may call it."""
    spark: SparkFiles | None = None
    """Reads files; None: there is no Spark."""
    reads_ahead: bool = True
    """Whether a thread may read before the records are requested."""
    pause: Callable[[float], None] = lambda _: None
    """Waits for a number of seconds in `open`; raises if the task is cancelled meanwhile."""


class Source:
    """One subtask of a source. Raises UserCodeError for errors of the user's code, and TaskError for all others."""

    def restore(self, message: bytes) -> None:
        """Applies the changes of an earlier attempt (`take_changes`), in order. Raises ValueError for an invalid
        one."""
        raise ValueError(f"{type(self).__name__} has no position")

    def open(self, setup: SourceSetup) -> None:
        """Called before the first poll. The position, if there is one, is already restored."""
        raise NotImplementedError

    def poll(self, limit: int) -> PollResult:
        """Returns at most `limit` (at least 1) records, without waiting. Not called after the source has ended."""
        raise NotImplementedError

    def place(self, index: int | None) -> str | None:
        """Returns the location of a record of the last poll in the source's input, for messages; None: unknown.
        `index`: in its batch."""
        return None

    def take_changes(self) -> Iterable[bytes]:
        """Returns the changes of the position since the last call, for the changelog."""
        return ()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """Returns the whole position as messages for `restore`, as of the last `take_changes` (state/stateful.py)."""
        return iter(())

    def restore_from(self, origin: Origin | None) -> None:
        """Sets the old subtask that wrote the messages that are restored next, before a change of parallelism; None:
        this one."""

    def close(self) -> None:
        """Called at the end, also after a failure."""
