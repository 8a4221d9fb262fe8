"""A history up to an offset, and a log that continues it after that offset with simulated events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ....schemas.event import Event, Record
from ....schemas.job_master import StartJob
from ...core.replica import Replica
from ...core.role import JOB_MASTER, address
from ...history.log_position import first_offset
from ...history.log_source import LogSource
from ...history.time_travel import replica_at
from ...log import EventLog, LogUnavailable, Tail
from ...log.event_log import Concerns, OnUnreadable, read_to_end

LOOK_BACK_EVENTS = 100_000
"""Events before the place from which it is learnt how long things take."""


class SourceHistory:
    """A History of a log that is folded from its beginning. Its methods raise what reading the source raises."""

    def __init__(
        self, source: LogSource, offset: int, on_read: Callable[[int], object] = lambda _: None
    ) -> None:
        """`on_read` is told how many events have been read."""
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


class ContinuedLog:
    """An EventLog: another one up to a place, and then what was simulated. It is not written to."""

    def __init__(self, log: EventLog, offset: int, records: Sequence[Record]) -> None:
        """`records` have the offsets that follow."""
        self._log = log
        self._offset = offset
        self.records = records

    @property
    def topic(self) -> str:
        return f"{self._log.topic} (what if)"

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        raise LogUnavailable(f"{self.topic} is not written to: nothing of it has happened")

    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else self._offset + 1

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        tail = self._log.tail(min(start, self._offset + 1), concerns=concerns, on_unreadable=on_unreadable)
        return _Tail(tail, self._offset, self.records, start, concerns)

    def close(self) -> None:
        pass


class _Tail:
    def __init__(
        self, tail: Tail, offset: int, records: Sequence[Record], start: int, concerns: Concerns | None
    ) -> None:
        self._tail = tail
        self._offset = offset
        self._records = records
        self._next = max(0, start - offset - 1)
        self._concerns = concerns

    @property
    def position(self) -> int:
        if self._tail.position <= self._offset:
            return self._tail.position
        return self._offset + 1 + self._next

    @property
    def bytes_read(self) -> int:
        return self._tail.bytes_read

    def poll(self, timeout: float) -> list[Record]:
        if self._tail.position <= self._offset:
            found = self._tail.poll(timeout)
            return [each for each in found if each.offset <= self._offset]
        batch = self._records[self._next : self._next + 1_000]
        self._next += len(batch)
        wants = self._concerns
        return [each for each in batch if wants is None or wants(each.header.sender, each.header.recipient)]

    def close(self) -> None:
        self._tail.close()
