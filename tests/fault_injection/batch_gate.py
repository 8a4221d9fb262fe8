"""A gate at the end of a batch: while it is closed, what Spark has handed over it cannot note as done.

Spark's Python end of a query returns when StreamTasks have read all that a batch held
(pipelines/runtime/spark/partition_forwarder.py). A function of the user's that runs there, in front of them, holds it
at that very point, in the process that it is in.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class BatchGate(NamedTuple):
    """Open but while a file is there. `path`: the file; the name beside it that ends with `.reached` is its own too."""

    path: str

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """While it lasts no batch with a record that was passed on here comes to its end."""
        Path(self.path).touch()
        try:
            yield
        finally:
            Path(self.path).unlink()

    @property
    def is_holding(self) -> bool:
        """Whether a batch was held: StreamTasks have read all of it."""
        return Path(f"{self.path}.reached").exists()

    def pass_on(self, record: T) -> T:
        """The function, for `map`."""
        from tailrace.pipelines.runtime.spark.partition_forwarder import SubtaskConnections

        finish = SubtaskConnections.finish
        # A worker of Spark's serves one query after the other.
        if getattr(finish, "gate", None) != self:

            def held(connections: SubtaskConnections) -> None:
                finish(connections)
                while Path(self.path).exists():
                    Path(f"{self.path}.reached").touch()
                    time.sleep(0.01)

            held.gate = self  # type: ignore[attr-defined]
            SubtaskConnections.finish = held  # type: ignore[method-assign]
        return record
