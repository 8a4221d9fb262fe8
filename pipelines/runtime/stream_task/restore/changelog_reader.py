"""Reads the data that a new attempt needs before it starts: its progress, state in storage, and the changelog to its
exact end.

The last progress entry is at the end of the changelog, possibly before messages of aborted transactions. The search for
it starts at the end, in growing steps, so a long changelog costs nothing.

If the changelog lacks a part between the required offset and its former end, progress is lost (ProgressLost): the job
rolls back to a checkpoint. Such a changelog is never read as an empty one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaError, TopicPartition

from .....infra.retry import ABSENT
from .....infra.storage.errors import CheckpointError, StorageError
from .....infra.storage.storage import Storage
from ....checkpoint.redistribution import StateAssignment
from ....checkpoint.state_files import read_messages
from ...common.failures import ProgressLostError, TaskError
from ...common.kafka_clients import connected
from ...common.offset_bounds import bounds
from ...state_backend.stateful import Origin, origin_message
from ..state.progress_entry import KEY as PROGRESS_KEY
from ..state.progress_entry import ProgressEntry, decode_progress

_TIMEOUT_S: Final = 30.0
_SETTLES_S: Final = 10.0
"""How long the markers of a fenced attempt's transaction may take to become visible."""
_FIRST_STEP: Final = 16
"""In offsets: a small commit is within them, with its marker."""
_STEPS_GROW: Final = 16


def restored_state(
    storage: Storage, operators: Mapping[str, Sequence[StateAssignment]], subtask_index: int, parallelism: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yields key and message of all state that a subtask takes from a checkpoint, for SubtaskState.restore.

    `operators`: by operator id, the parts to take of each old subtask. State of the subtask's own predecessor comes
    unchanged; otherwise each origin is named before its messages (state/stateful.py). Raises ProgressLost if a file is
    missing or corrupt, TaskError if storage cannot be reached.
    """
    for operator_id, pieces in operators.items():
        key = operator_id.encode()
        moved = not is_own(pieces, subtask_index, parallelism)
        for piece in pieces:
            if moved:
                origin = Origin(piece.subtask_index, piece.parallelism, piece.max_parallelism)
                yield origin_message(operator_id, origin)
            for file in piece.state.files:
                try:
                    for message in read_messages(storage, file, operator_id):
                        yield key, message
                except StorageError as error:
                    raise TaskError(f"state cannot be restored: {error}") from error
                except CheckpointError as error:
                    raise ProgressLostError(f"state cannot be restored: {error}") from error
        if moved:
            yield origin_message(operator_id, None)


def is_own(pieces: Sequence[StateAssignment], subtask_index: int, parallelism: int) -> bool:
    """Whether an operator's state was written by the same subtask, at the same parallelism, and by no other."""
    return [(piece.subtask_index, piece.parallelism) for piece in pieces] == [(subtask_index, parallelism)]


class ChangelogTail(msgspec.Struct, frozen=True):
    """The end of a changelog."""

    entry: ProgressEntry | None
    """The last entry; None if there is none."""
    offset: int
    """The offset of the entry; -1 if there is none."""
    end: int
    """The offset after the last committed message."""
    damage: str | None = None
    """The reason why no attempt may continue from the entry: the changelog had later messages."""


def read_tail(consumer: Consumer, topic: str, partition: int, written_to: int | None = None) -> ChangelogTail:
    """Returns the last committed progress entry. Call it after the fencing of older attempts.

    `written_to`: the end of the partition for readers of uncommitted messages, if known. Raises ProgressLost if there
    is no such topic, TaskError if it cannot be read to that end.
    """
    connected(consumer, topic)
    low, high = _settled_bounds(consumer, topic, partition, written_to)
    if low == high:
        return ChangelogTail(None, -1, high)  # without a fetch, which waits for messages
    back = _FIRST_STEP
    while True:
        begin = max(low, high - back)
        last, damage, is_empty = None, None, True
        for offset, key, value in _messages(consumer, topic, partition, begin):
            is_empty = False
            if key == PROGRESS_KEY:
                try:
                    last, damage = (decode_progress(value), offset), None
                except ValueError as error:
                    damage = f"the changelog {topic} [{partition}] at offset {offset}: {error}"
        if last is not None:
            return ChangelogTail(*last, high, damage)
        if begin == low:
            if not is_empty and damage is None:
                damage = (
                    f"the changelog {topic} [{partition}] holds messages at offsets {low} to {high}, and no progress"
                    " entry: an earlier release wrote it, or some were deleted; the job must roll back to a checkpoint"
                )
            return ChangelogTail(None, -1, high, damage)
        back *= _STEPS_GROW


def _settled_bounds(
    consumer: Consumer, topic: str, partition: int, written_to: int | None
) -> tuple[int, int]:
    """Returns the bounds once everything written before can be read, that is, when no transaction is open any more."""
    deadline = time.monotonic() + _SETTLES_S
    while True:
        low, high = bounds(consumer, topic, partition)
        if written_to is None or high >= written_to:
            return low, high
        if time.monotonic() > deadline:
            raise TaskError(
                f"the changelog {topic} [{partition}] ends at offset {written_to}, and can be read to {high} only,"
                " although older attempts are fenced: the broker has not completed a transaction there"
            )
        time.sleep(0.05)


def read_changelog(
    consumer: Consumer, topic: str, partition: int, begin: int = 0
) -> Iterator[tuple[bytes, bytes]]:
    """Yields key and value of every committed message from the offset `begin` to the current end of the partition.

    Call it after the fencing of older attempts: from then on nobody else writes. The end is partition EOF, not a last
    offset, because control records take offsets too. Raises ProgressLost if the changelog no longer holds that offset,
    TaskError if it cannot be read.
    """
    changelog_end(consumer, topic, partition, begin)
    for _, key, value in _messages(consumer, topic, partition, begin):
        yield key, value


def _messages(
    consumer: Consumer, topic: str, partition: int, begin: int
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields offset, key and value of every committed message from an offset to the end."""
    consumer.assign([TopicPartition(topic, partition, begin)])
    try:
        while True:
            message = consumer.poll(_TIMEOUT_S)
            if message is None:
                raise TaskError(
                    f"the changelog {topic} returned nothing for {_TIMEOUT_S:.0f} s: is Kafka up?"
                )
            error = message.error()
            if error is None:
                yield message.offset() or 0, message.key() or b"", message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.code() in ABSENT:
                raise ProgressLostError(
                    f"the changelog {topic} [{partition}] does not exist any more: {error.str()}"
                )
            elif not error.retriable():
                raise TaskError(f"the changelog {topic} could not be read: {error.str()}")
    finally:
        consumer.unassign()


def changelog_end(consumer: Consumer, topic: str, partition: int, begin: int = 0) -> int:
    """Returns the offset after the last message. Raises ProgressLost if the changelog does not reach from `begin` to
    it; TaskError."""
    start, end = bounds(consumer, topic, partition)
    if not start <= begin <= end:
        raise ProgressLostError(
            f"the changelog {topic} [{partition}] holds offsets {start} to {end}, but is needed from {begin}"
        )
    return end
