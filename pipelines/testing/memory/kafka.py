"""Kafka in one process: logs are lists, and transactions of one attempt at a time count."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from ...runtime.common.failures import ProgressLostError, TaskError
from ...runtime.operators.operator import MessageHeaders
from ...runtime.stream_task.restore.changelog_reader import ChangelogTail
from ...runtime.stream_task.restore.group_offsets import CommittedGroupOffset
from ...runtime.stream_task.state.progress_entry import KEY, decode_progress

BEGIN_MS = 1_700_000_000_000
AFTER_MAX_MS = 3_600_000
"""Brokers' default of message.timestamp.after.max.ms."""

Place = tuple[str, int]
"""A subtask: vertex id and index."""
Sent = tuple[str, int, "Message"]
"""A message, and the topic and partition that it went to."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a topic."""

    value: bytes
    key: bytes | None = None
    timestamp_ms: int = BEGIN_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class MemoryKafka:
    """Logs of messages, and the offsets of consumer groups."""

    logs: dict[str, dict[int, list[Message]]] = field(default_factory=dict)
    groups: dict[Place, list[CommittedGroupOffset]] = field(default_factory=dict)
    """All that a subtask's group was ever told: a broker may answer any of it, or nothing."""
    owners: dict[Place, MemoryTransaction] = field(default_factory=dict)
    """Whose transactions count: those of the attempt that came last."""
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    """What lies below these offsets is deleted, by (topic, partition); it is kept here, and nobody may read it."""
    sent: dict[Place, list[Sent]] = field(default_factory=dict)
    """What each subtask has committed, in its order."""
    late: list[Sent] = field(default_factory=list)
    """Ticks that are under way: they arrive at any moment, also after their sender's end."""

    def append(self, topic: str, partition: int, message: Message) -> None:
        self.logs.setdefault(topic, {}).setdefault(partition, []).append(message)

    def deliver_late(self, rng: random.Random) -> None:
        """Delivers one of the ticks in flight, now and then."""
        if self.late and rng.random() < 0.2:
            self.append(*self.late.pop(rng.randrange(len(self.late))))

    def partition_of(self, topic: str, key: bytes | None) -> int:
        """Returns the partition that Kafka's clients choose for a key; without a key, that with the fewest messages."""
        logs = self.logs.get(topic) or {0: []}
        if key is None:
            return min(logs, key=lambda partition: (len(logs[partition]), partition))
        return murmur2(key) % len(logs)

    def log(self, topic: str, partition: int) -> list[Message]:
        return self.logs.get(topic, {}).get(partition, [])

    def trim(self, topic: str, partition: int, below: int) -> None:
        """Deletes what is before an offset; the offset of a zombie may be old."""
        self.starts[topic, partition] = max(below, self.starts.get((topic, partition), 0))

    def tail(self, topic: str, partition: int) -> ChangelogTail:
        """Returns the tail as restore.read_tail finds it."""
        log, start = self.log(topic, partition), self.starts.get((topic, partition), 0)
        for offset in range(len(log) - 1, start - 1, -1):
            if log[offset].key == KEY:
                return ChangelogTail(decode_progress(log[offset].value), offset, len(log))
        if log:
            raise ProgressLostError(f"{topic} [{partition}] holds messages, and no progress entry")
        return ChangelogTail(None, -1, 0)

    def group_answer(self, place: Place, rng: random.Random | None) -> CommittedGroupOffset | None:
        """Returns a broker's answer about a subtask's group: the newest one; with `rng` any older one, or none."""
        offsets: list[CommittedGroupOffset | None] = [None, *self.groups.get(place, ())]
        return offsets[-1] if rng is None else rng.choice(offsets)


class MemoryTransaction:
    """The transaction of one attempt; messages of a fenced attempt are dropped."""

    def __init__(
        self,
        kafka: MemoryKafka,
        owner: Place,
        rng: random.Random | None = None,
        now: Callable[[], int] = lambda: BEGIN_MS,
    ) -> None:
        """With `rng`, ticks are lost or late now and then. `now`: the broker's clock."""
        self._kafka = kafka
        self._owner = owner
        self._rng = rng
        self._now = now
        self.is_zombie = False
        """Whether nothing arrives any more but ticks, at any moment."""
        self._open: list[Sent] = []
        self._in_flight: list[tuple[int, Callable[[int], None]]] = []
        """Who wants to know where a message of the open transaction comes to lie."""
        kafka.owners[owner] = self

    @property
    def sent(self) -> int:
        """Returns how many messages the subtask has sent, including uncommitted ones."""
        return len(self._kafka.sent.get(self._owner, ())) + len(self._open)

    @property
    def active(self) -> bool:
        return bool(self._open)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        headers: MessageHeaders | None = None,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        if partition is None:
            partition = self._kafka.partition_of(topic, key)
        if timestamp_ms > self._now() + AFTER_MAX_MS:
            raise TaskError(f"a message was not delivered: {timestamp_ms} is too far ahead for {topic}")
        self._open.append(
            (topic, partition, Message(cast(bytes, value), key, timestamp_ms, tuple(headers or ())))
        )
        if delivered is not None:
            self._in_flight.append((len(self._open) - 1, delivered))

    def require_topic(self, topic: str) -> int:
        """Returns the partitions that are there; a topic that is not is created when it is written to."""
        return len(self._kafka.logs.get(topic, ())) or 1

    def tell(self, topic: str, partition: int, value: bytes) -> None:
        fate = 1.0 if self._rng is None else self._rng.random()
        if fate > 0.4 and not self.is_zombie:
            self._kafka.append(topic, partition, Message(value))
        elif fate > 0.2 or self.is_zombie:
            self._kafka.late.append((topic, partition, Message(value)))

    def require_owner(self) -> None:
        """Raises TaskError if the attempt is fenced."""
        if self._kafka.owners.get(self._owner) is not self:
            raise TaskError("a newer attempt of this subtask has fenced this one")

    def commit(self) -> None:
        self.require_owner()
        self._kafka.sent.setdefault(self._owner, []).extend(self._open)
        report = dict(self._in_flight)
        for i, (topic, partition, message) in enumerate(self._open):
            if i in report:
                report[i](len(self._kafka.log(topic, partition)))
            self._kafka.append(topic, partition, message)
        self._in_flight.clear()
        self._open.clear()

    def abort(self) -> None:
        self._open.clear()
        self._in_flight.clear()


class JointTransaction:
    """The transactions of several subtasks as one: all of them are committed, or none."""

    def __init__(self, parts: Sequence[MemoryTransaction]) -> None:
        self._parts = parts

    @property
    def active(self) -> bool:
        return any(part.active for part in self._parts)

    def abort(self) -> None:
        for part in self._parts:
            part.abort()

    def commit(self) -> None:
        for part in self._parts:
            part.require_owner()
        for part in self._parts:
            part.commit()


def murmur2(data: bytes) -> int:
    """Returns the hash of a key as Java's clients of Kafka compute it, without its sign."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        found = (found * multiplier & mask) ^ word
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return (found ^ found >> 15) & 0x7FFFFFFF
