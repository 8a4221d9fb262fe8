"""The heartbeats topic in memory, for tests and simulations."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ...schemas.event import Event, Record
from ..log import Codec, LogUnavailable
from .topic import MASTERS, TASK_EXECUTORS, Wanted


class MemoryHeartbeats:
    """Both partitions; `end_of` returns the view of one process. It can be made unavailable, like Kafka."""

    def __init__(self) -> None:
        self._codec = Codec("memory.heartbeats")
        self._partitions: dict[int, list[bytes]] = {MASTERS: [], TASK_EXECUTORS: []}
        self._grown = threading.Condition()
        self._broken = False

    def end_of(self, reads: int, wanted: Wanted) -> MemoryTopic:
        """Returns a topic that reads partition `reads` from its end on and writes the other."""
        return MemoryTopic(self, reads, wanted)

    def break_down(self, *, broken: bool = True) -> None:
        """Makes the topic unavailable, or available again."""
        with self._grown:
            self._broken = broken
            self._grown.notify_all()

    @property
    def broken(self) -> bool:
        return self._broken

    def append(self, partition: int, events: Sequence[Event]) -> bool:
        """Returns False if the topic is unavailable."""
        with self._grown:
            if self._broken:
                return False
            self._partitions[partition] += self._codec.encode_all(events)
            self._grown.notify_all()
            return True

    def end(self, partition: int) -> int:
        with self._grown:
            return len(self._partitions[partition])

    def values_from(self, partition: int, offset: int, timeout_s: float) -> list[Event]:
        """Waits up to `timeout_s` seconds for the first value."""
        with self._grown:
            self._grown.wait_for(
                lambda: not self._broken and offset < len(self._partitions[partition]), timeout_s
            )
            values = [] if self._broken else self._partitions[partition][offset:]
        return [self._codec.decode(value) for value in values]


class MemoryTopic:
    """A HeartbeatTopic."""

    def __init__(self, topic: MemoryHeartbeats, reads: int, wanted: Wanted) -> None:
        self._topic = topic
        self._reads = reads
        self._wanted = wanted
        self._position = topic.end(reads)
        self._interrupted = False

    def send(self, events: Sequence[Event]) -> None:
        self._interrupted |= not self._topic.append(1 - self._reads, events)

    def interrupted(self) -> bool:
        was_interrupted, self._interrupted = self._interrupted, False
        return was_interrupted or self._topic.broken

    def poll(self, timeout_s: float) -> list[Record]:
        events = self._topic.values_from(self._reads, self._position, timeout_s)
        start = self._position
        self._position += len(events)
        return [
            Record(start + index, event.header, event.body)
            for index, event in enumerate(events)
            if self._wanted(event.header.recipient)
        ]

    @property
    def position(self) -> int:
        return self._position

    def end(self) -> int:
        if self._topic.broken:
            raise LogUnavailable("the heartbeats topic in memory is broken")
        return self._topic.end(self._reads)

    def close(self) -> None:
        pass
