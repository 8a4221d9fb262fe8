"""The contract of a source that its StreamTask reads: the task asks for records when it has room for them.

All calls come from the task's thread: `restore` for what the changelog holds, `open`, then `poll` and `take_changes`
in turns, then `close` (always, also after a failed `open`). The position that `take_changes` gives is committed in the
same transaction as what became of the records polled before it; so a source that can be rewound gives each record to
exactly one committed transaction, whatever the limits of its polls were.

Records carry the time at which they were polled. That time never falls within an attempt (`wall_clock` does not), so
that processing time may be told up to the millisecond before the last poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ......schemas.types import OperatorConfig
from .....functions import RuntimeContext
from ....records.batch import Batch
from ....state_backend.stateful import Origin

UNTIL_WOKEN_S: Final = 3600.0
"""`PollResult.wait_s` of a source that calls `wake` when it has something."""


class PollResult(msgspec.Struct, frozen=True):
    """What a poll brought."""

    batch: Batch | None = None
    """Records, never none of them; None: nothing at the moment."""
    has_ended: bool = False
    """Nothing follows this batch, ever."""
    wait_s: float = 0.0
    """Polling again is in vain for so long (seconds), unless the source calls `wake` before."""


class SourceSetup(msgspec.Struct, frozen=True):
    """What a source works with."""

    config: OperatorConfig
    context: RuntimeContext
    wall_clock: Callable[[], int]
    """Milliseconds since the epoch; never falls."""
    wake: Callable[[], None] = lambda: None
    """Ends the task's waiting for `PollResult.wait_s`; may be called by any thread."""
    pause: Callable[[float], None] = lambda _: None
    """Waits for so many seconds in `open`; raises where the task is cancelled meanwhile."""


class Source:
    """One subtask of a source. Raises TaskError for what is not the user's code, else UserCodeError."""

    def restore(self, message: bytes) -> None:
        """Applies what `take_changes` gave to an earlier attempt, in order. Raises ValueError for what is none."""
        raise ValueError(f"{type(self).__name__} keeps no position")

    def open(self, setup: SourceSetup) -> None:
        """Before the first poll; the position, if any, is restored."""
        raise NotImplementedError

    def poll(self, limit: int) -> PollResult:
        """At most `limit` (at least 1) records, without waiting for any; not called any more once it has ended."""
        raise NotImplementedError

    def place(self, index: int | None) -> str | None:
        """Where a record of the last poll is in what is read, for people; None: not known. `index`: in its batch."""
        return None

    def take_changes(self) -> Iterable[bytes]:
        """What has changed of the position since the last call, for the changelog."""
        return ()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """The whole position as messages for `restore`, as of the last `take_changes` (state/stateful.py)."""
        return iter(())

    def restore_from(self, origin: Origin | None) -> None:
        """What is restored from here on was written by that subtask, before a change of parallelism; None: by this."""

    def close(self) -> None:
        """At the end, also after a failure."""
