"""Sources that users write: splits, and for each split a reader that reads from a position on (Flink's Source).

A position is durable: it is committed in the same transaction as the results of the records before it. So after a
failure, and at another parallelism, each split continues behind its last committed record, and each record has its
effect once. That needs two things of a source: what `poll` returns depends on the split and the position only, and the
position that it returns lies behind the records that it returns.

`tailrace.testing.check_source` tests both.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from .context import RuntimeContext

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """A part of the input, such as a partition, a shard or a file."""

    split_id: str
    """Names the same part in all attempts and subtasks."""
    value: Any = None
    """What its reader needs to know: a small value that can be pickled. It is stored with the position."""


@dataclass(frozen=True, slots=True)
class SourceRecords(Generic[T]):
    """The result of a poll."""

    records: Sequence[T]
    """May be empty."""
    position: Any
    """Behind these records: a small value that can be pickled, for the next poll."""
    timestamps: Sequence[int] | None = None
    """Of the records, in milliseconds since the epoch. None: the time of the poll."""
    has_ended: bool = False
    """Whether the split has no records behind these."""
    wait_s: float = 1.0
    """If there are no records: the seconds until the next poll, unless `SourceReaderContext.wake` is called before."""


@dataclass(frozen=True, slots=True)
class SourceReaderContext:
    """What a reader may use."""

    runtime_context: RuntimeContext
    wake: Callable[[], None]
    """Ends the wait of this reader's split. Any thread may call it."""


class SourceReader(ABC, Generic[T]):
    """Reads one split. All calls come from the thread of the task, so a call should not take long: meanwhile the task
    neither takes checkpoints nor can be cancelled."""

    @abstractmethod
    def poll(self, position: Any, limit: int) -> SourceRecords[T]:
        """Returns the next records, without waiting for them, and the position behind them.

        `position`: that of the last poll, or of the last commit after a failure; None: the beginning of the split.
        `limit`: about how many records there should be, at least 1. All records of a poll are committed together.
        """

    def close(self) -> None:
        """Called when the split has ended, and when the task ends, also after a failure."""


class Source(ABC, Generic[T]):
    """A source of records. The object is pickled with the program: make connections in `open` or in the reader.

    Each subtask lists the splits, and reads those that belong to it. So `splits` should return the same splits in all
    subtasks.
    """

    bounded: bool = True
    """Whether all splits end. An unbounded source keeps its job running."""
    discovery_interval: timedelta | None = None
    """After which `splits` is called again, for splits that are new. None: it is called once, and its result is
    stored. With an interval the source is unbounded."""
    output_type: object = None
    """The type of the records; None: the type argument of the class, `Source[Order]`."""

    def open(self, context: RuntimeContext) -> None:
        """Called once in each attempt, before all other methods."""

    def splits(self) -> Iterable[SourceSplit]:
        """Returns the splits that there are now. The default is one split, which one subtask reads."""
        return (SourceSplit("0"),)

    def split_number(self, split: SourceSplit) -> int:
        """Returns a number that is always the same for a split: it belongs to subtask `number % parallelism`.

        The default is a hash of its id. Splits that are numbered are divided more evenly by their number.
        """
        return zlib.crc32(split.split_id.encode())

    @abstractmethod
    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[T]:
        """Returns a reader of the split. Called when the first records of the split are needed."""

    def close(self) -> None:
        """Called at the end, also after a failure."""
