"""Sinks that users write, for a system with transactions or with writes that may be repeated (Flink's two-phase commit
sinks).

Records are state of the sink until their transaction is closed and that is committed with the progress of the task.
Then the sink gets them by `commit`, which is repeated after a failure: with the same id and the same records.

`tailrace.testing.check_sink` tests a sink.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from .context import RuntimeContext

IN = TypeVar("IN", contravariant=True)


class TransactionalSink(ABC, Generic[IN]):
    """Writes records in transactions. The object is pickled with the program: make connections in `open`.

    A transaction is closed when it has `roll_records` records, `roll_interval` after its first record, and at the end
    of the job.
    """

    roll_records: int = 10_000
    roll_interval: timedelta = timedelta(seconds=1)

    def open(self, context: RuntimeContext) -> None:
        """Called once in each attempt, before the first commit."""

    @abstractmethod
    def commit(self, transaction_id: str, records: Sequence[IN]) -> Any:
        """Writes the records, all or none.

        It must have an effect once for each id: it is called again with an id if a failure hides whether the first
        call succeeded, and a task that was replaced may make its last call while its successor makes the same one. An
        id names the sink, the subtask, the number of the transaction, and the number of rollbacks of the job. The ids
        of one subtask come in order, one at a time.
        """

    def close(self) -> None:
        """Called at the end, also after a failure."""
