"""The history of a log up to an offset, from which a simulation continues it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ....schemas.event import Record
from ....schemas.job_master import StartJob
from ...core.replica import Replica
from ...core.role import JOB_MASTER, address
from ...history.log_position import first_offset
from ...history.log_source import LogSource
from ...history.time_travel import replica_at
from ...log.event_log import read_to_end

LOOK_BACK_EVENTS = 100_000
"""The number of events before the place from which latencies are learned."""


class SourceHistory:
    """The History of a log. Its methods raise what reading the source raises."""

    def __init__(
        self, source: LogSource, offset: int, on_read: Callable[[int], object] = lambda _: None
    ) -> None:
        """`on_read` is called with the number of events read."""
        self.cluster = source.cluster
        self._source = source
        self._offset = offset
        self._end = source.log.end()
        self._on_read = on_read

    def replica(self) -> Replica:
        return replica_at(self._source, self._offset, lambda done, _: self._on_read(done))

    def before(self) -> Iterable[Sequence[Record]]:
        log = self._source.log
        start = max(first_offset(log), self._offset + 1 - LOOK_BACK_EVENTS)
        return self._counted(read_to_end(log, start, end=self._offset + 1))

    def after(self) -> Iterable[Sequence[Record]]:
        return self._counted(read_to_end(self._source.log, self._offset + 1, end=self._end))

    def start_of(self, job_id: str) -> StartJob | None:
        log, own = self._source.log, address(JOB_MASTER, job_id)
        tail = log.tail(first_offset(log), concerns=lambda _, recipient: recipient == own)
        try:
            while tail.position < self._end:
                for record in tail.poll(1.0):
                    if isinstance(record.body, StartJob):
                        return record.body
        finally:
            tail.close()
        return None

    def _counted(self, batches: Iterable[list[Record]]) -> Iterator[list[Record]]:
        count = 0
        for batch in batches:
            yield batch
            count += len(batch)
            self._on_read(count)
