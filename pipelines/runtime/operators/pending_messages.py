"""The messages of a sink for another Kafka cluster that are not known to be written there, and their changelog.

Messages are numbered. A message is *queued* in a commit of the task, *delivered* to the other cluster after that commit
in a transaction there, which also has the *mark*: the number after the last delivered message. A later commit of the
task records the delivery. Applying the changelog in order to an empty state gives all messages that are not recorded as
delivered; the mark says which of them are.

Numbers and mark belong to an *owner*, a subtask of an operator of a job. After a rollback the numbers continue from
those of the checkpoint, so the same numbers mean other messages than before: a mark of an older generation counts up to
the first number of the present one only. State of another owner (a savepoint, another parallelism) is numbered anew by
its new owner, who reads the old owner's mark once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

_MAX_MESSAGE_BYTES: Final = 900_000
"""Bytes of a part of a change in one message of the changelog, below Kafka's usual limit of 1 MiB."""
_MAX_MESSAGES: Final = 1_000
"""Messages in one change."""


class Mark(NamedTuple):
    """How far an owner's messages are delivered."""

    generation: int
    number: int
    """The first message that is not delivered."""


class OutgoingMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message for the other cluster."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]] | None


class Began(msgspec.Struct, frozen=True, tag="b", array_like=True):
    """An owner or a generation begins, with no messages; those that it takes over are queued next."""

    owner: str
    generation: int
    base: int
    """The number of its first message."""
    topic: str
    """The mark is committed for this topic; empty until there is one."""


class Queued(msgspec.Struct, frozen=True, tag="q", array_like=True):
    """A part of some encoded messages with consecutive numbers; `last` completes them."""

    data: bytes
    last: bool


class Delivered(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """All messages below this number are delivered."""

    number: int


Change = Began | Queued | Delivered
_CHANGE: Final = msgspec.msgpack.Decoder(Change)
_MESSAGES: Final = msgspec.msgpack.Decoder(list[OutgoingMessage])


class PendingMessages:
    """The messages of one owner."""

    def __init__(self) -> None:
        self._began = Began("", 0, 0, "")
        self._messages: deque[OutgoingMessage] = deque()
        self._first = 0
        """The number of the first message in the queue, which follow one another."""
        self._changes: list[Change] = []
        self._queued = 0
        """How many messages at the end of the queue are in no change yet."""
        self._committed = 0
        """The number after the last message that `take_changes` has returned."""
        self._parts: list[bytes] = []

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def began(self) -> Began:
        """The owner, its generation, and the number that it began with; an empty owner if there is no state."""
        return self._began

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes that no commit has."""
        return bool(self._changes or self._queued)

    @property
    def first_number(self) -> int:
        """The number of the first message that is not recorded as delivered."""
        return self._first

    @property
    def next_number(self) -> int:
        """The number of the next message."""
        return self._first + len(self._messages)

    @property
    def has_delivered(self) -> bool:
        """Whether messages of this owner are recorded as delivered."""
        return self._first > 0

    def undelivered(self, mark: Mark | None) -> list[OutgoingMessage]:
        """Returns the messages that are not delivered by a mark."""
        delivered = self._first
        if mark is not None:
            end = self._began.base if mark.generation < self._began.generation else self.next_number
            delivered = max(delivered, min(mark.number, end))
        return list(self._messages)[delivered - self._first :]

    def begin(self, began: Began, messages: Iterable[OutgoingMessage]) -> None:
        """Begins an owner or a generation, with these messages in the queue."""
        self._apply_begin(began)
        self._changes.append(began)
        self._messages.extend(messages)
        self._queued = len(self._messages)

    def name_topic(self, topic: str) -> None:
        """Sets the topic of the mark, before the first message of the owner."""
        self.begin(msgspec.structs.replace(self._began, topic=topic), list(self._messages))

    def add(self, message: OutgoingMessage) -> None:
        """Queues a message."""
        self._messages.append(message)
        self._queued += 1

    def committed(self) -> list[OutgoingMessage]:
        """Returns the messages that `take_changes` has returned: they may be delivered once that is committed."""
        return list(self._messages)[: self._committed - self._first]

    def record_delivery(self, count: int) -> None:
        """Records that the first messages of the queue are delivered."""
        for _ in range(count):
            self._messages.popleft()
        self._first += count
        self._changes.append(Delivered(self._first))

    def take_changes(self) -> Iterator[bytes]:
        """Yields the changes since the last call."""
        changes, self._changes = self._changes, []
        fresh = list(self._messages)[len(self._messages) - self._queued :]
        self._queued = 0
        self._committed = self.next_number
        return map(msgspec.msgpack.encode, [*changes, *_queue(fresh)])

    def full(self) -> Iterator[bytes]:
        """Yields the whole state as changes, as of the last `take_changes`."""
        yield msgspec.msgpack.encode(self._began)
        yield msgspec.msgpack.encode(Delivered(self._first))
        yield from map(msgspec.msgpack.encode, _queue(self.committed()))

    def restore(self, message: bytes) -> Change:
        """Applies a change, and returns it. Raises msgspec.DecodeError if it is invalid."""
        change: Change = _CHANGE.decode(message)
        match change:
            case Began():
                self._apply_begin(change)
            case Queued(data, last):
                self._parts.append(data)
                if last:
                    self._messages.extend(_MESSAGES.decode(b"".join(self._parts)))
                    self._parts.clear()
            case Delivered(number):
                while self._messages and self._first < number:
                    self._messages.popleft()
                    self._first += 1
                self._first = max(self._first, number)
        self._committed = self.next_number
        return change

    def _apply_begin(self, began: Began) -> None:
        self._began = began
        self._messages.clear()
        self._first = began.base
        self._queued = 0
        self._committed = began.base


def _queue(messages: list[OutgoingMessage]) -> Iterator[Queued]:
    for start in range(0, len(messages), _MAX_MESSAGES):
        data = msgspec.msgpack.encode(messages[start : start + _MAX_MESSAGES])
        for begin in range(0, len(data), _MAX_MESSAGE_BYTES):
            end = begin + _MAX_MESSAGE_BYTES
            yield Queued(data[begin:end], end >= len(data))
