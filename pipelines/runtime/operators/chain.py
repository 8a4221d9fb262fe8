"""A chain of operators as one: batches and watermarks pass through all of them in order."""

from __future__ import annotations

from collections.abc import Sequence

from ..buffers import EMPTY, Batch, all_of
from .operator import Operator


class Chain(Operator):
    """Operators, each fed with what the one before it gives; an empty chain gives what it takes."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._operators = tuple(operators)

    def open(self) -> None:
        # Flink opens from the end of the chain, so that an operator that emits in open() finds it ready.
        for operator in reversed(self._operators):
            operator.open()

    def process(self, batch: Batch) -> Batch:
        for operator in self._operators:
            if not batch.values:
                return EMPTY
            batch = operator.process(batch)
        return batch

    def advance(self, watermark: int) -> Batch:
        given = EMPTY
        for operator in self._operators:
            passed = operator.process(given) if given.values else EMPTY
            given = all_of([passed, operator.advance(watermark)])
        return given

    def close(self) -> None:
        first: BaseException | None = None
        for operator in self._operators:
            try:
                operator.close()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
