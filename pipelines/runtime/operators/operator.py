"""The contract of an operator."""

from __future__ import annotations

from ..buffers import EMPTY, Batch


class Operator:
    """One operator of one subtask. `open` comes first, `close` last, all in one thread."""

    def open(self) -> None:
        """Called once before the first record; the state, if any, is restored."""

    def process(self, batch: Batch) -> Batch:
        """Takes records, gives those that follow from them at once."""
        raise NotImplementedError

    def advance(self, watermark: int) -> Batch:
        """Gives the records that are due because no record with a timestamp <= watermark follows (ms)."""
        del watermark
        return EMPTY

    def close(self) -> None:
        """Called once at the end, also after a failure."""
