"""The source of from_collection: its records travel with the program. Its position is the number of emitted records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ......schemas.types import OperatorConfig
from ....operators.user_functions import load
from ....records.batch import Batch
from .source import PollResult, Source, SourceSetup


class CollectionSource(Source):
    """Emits the records in order, in one subtask."""

    def __init__(self, config: OperatorConfig) -> None:
        records: Any
        (records,) = load(config)
        self._records: list[Any] = records
        self._position = self._written_position = self._polled_from = 0

    def restore(self, message: bytes) -> None:
        self._position = self._written_position = msgspec.msgpack.decode(message, type=int)

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup

    def poll(self, limit: int) -> PollResult:
        self._polled_from = self._position
        values = self._records[self._position : self._position + limit]
        self._position += len(values)
        ended = self._position == len(self._records)
        if not values:
            return PollResult(has_ended=ended)
        return PollResult(
            Batch.from_rows(pa.repeat(self._setup.wall_clock(), len(values)), values), has_ended=ended
        )

    def place(self, index: int | None) -> str | None:
        return None if index is None else f"index {self._polled_from + index} of the collection"

    def take_changes(self) -> Iterable[bytes]:
        if self._position != self._written_position:
            self._written_position = self._position
            yield msgspec.msgpack.encode(self._position)

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        if self._written_position:
            yield None, msgspec.msgpack.encode(self._written_position)
