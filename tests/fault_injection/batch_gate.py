"""A gate at the end of a batch. While it is closed, Spark cannot commit a batch that it has handed over.

Spark's Python end of a query returns when the StreamTasks have read the whole batch
(pipelines/runtime/spark/partition_forwarder.py). A user function that runs there, before them, holds the batch at this
point, in the same process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class BatchGate(NamedTuple):
    """Open unless a file exists. `path` is that file; the gate also uses the path with the suffix `.reached`."""

    path: str

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Closes the gate for the block: no batch ends that has a record which passed this gate."""
        Path(self.path).touch()
        try:
            yield
        finally:
            Path(self.path).unlink()

    @property
    def is_holding(self) -> bool:
        """Returns whether the gate holds a batch that StreamTasks have read completely."""
        return Path(f"{self.path}.reached").exists()

    def pass_on(self, record: T) -> T:
        """Passes a value through the gate; the function for `map`."""
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
