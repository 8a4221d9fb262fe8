"""What a new attempt reads before it begins: committed offsets, state in storage, and the changelog to its exact end.

Nothing is taken for granted of what lies in Kafka: a changelog that does not reach from where it is needed to where it
ended is lost progress (ProgressLost), and the job goes back to a checkpoint; it is never taken for an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ....infra.kafka_waits import ABSENT
from ...checkpoint.errors import CheckpointError, StorageError
from ...checkpoint.redistribution import Piece
from ...checkpoint.state_files import read_messages
from ...checkpoint.storage import Storage
from ..failures import ProgressLost, TaskError
from ..state.stateful import Origin, origin_message
from .kafka import connected
from .reach import bounds
from .transaction import ConsumedOffset

_TIMEOUT_S: Final = 30.0


def restored_state(
    storage: Storage, operators: Mapping[str, Sequence[Piece]], subtask_index: int, parallelism: int
) -> Iterator[tuple[bytes, bytes]]:
    """Key and message of all state that a subtask takes from a checkpoint, for KeptState.restore.

    `operators`: by operator id, what is to be taken of each old subtask. What the subtask's own predecessor wrote comes
    as it is; else each origin is named before its messages (state/stateful.py). Raises ProgressLost where a file is
    missing or torn, TaskError where storage cannot be reached.
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
                    raise ProgressLost(f"state cannot be restored: {error}") from error
        if moved:
            yield origin_message(operator_id, None)


def is_own(pieces: Sequence[Piece], subtask_index: int, parallelism: int) -> bool:
    """Whether an operator's state is what the same subtask wrote, at the same parallelism, and nothing else."""
    return [(each.subtask_index, each.parallelism) for each in pieces] == [(subtask_index, parallelism)]


def read_committed(consumer: Consumer, partitions: Sequence[tuple[str, int]]) -> list[ConsumedOffset]:
    """What the consumer's group has committed of these (topic, partition)s. Raises TaskError."""
    if not partitions:
        return []
    try:
        committed = consumer.committed([TopicPartition(*each) for each in partitions], _TIMEOUT_S)
    except KafkaException as error:
        raise TaskError(f"the committed offsets could not be read: {error.args[0].str()}") from error
    for each in committed:
        if each.error is not None:
            raise TaskError(f"the committed offset of {each.topic} could not be read: {each.error.str()}")
    return [
        ConsumedOffset(each.topic, each.partition, each.offset, each.metadata or "")
        for each in committed
        if each.offset >= 0
    ]


def read_changelog(
    consumer: Consumer, topic: str, partition: int, begin: int = 0
) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every committed message from the offset `begin` to the end that the partition has now.

    Call after the fencing of older attempts: from then on nobody else writes. The end is partition EOF, not
    a last offset: control records take offsets too. Raises ProgressLost where the changelog does not hold that offset
    (any more), TaskError where it cannot be read.
    """
    connected(consumer, topic)
    changelog_end(consumer, topic, partition, begin)
    consumer.assign([TopicPartition(topic, partition, begin)])
    try:
        while True:
            message = consumer.poll(_TIMEOUT_S)
            if message is None:
                raise TaskError(f"the changelog {topic} gave nothing for {_TIMEOUT_S:.0f} s: is Kafka up?")
            error = message.error()
            if error is None:
                yield message.key() or b"", message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.code() in ABSENT:
                raise ProgressLost(f"the changelog {topic} [{partition}] is gone: {error.str()}")
            elif not error.retriable():
                raise TaskError(f"the changelog {topic} could not be read: {error.str()}")
    finally:
        consumer.unassign()


def changelog_end(consumer: Consumer, topic: str, partition: int, begin: int = 0) -> int:
    """The offset behind the last message. Raises ProgressLost where it does not reach from `begin` on, TaskError."""
    start, end = bounds(consumer, topic, partition)
    if not start <= begin <= end:
        raise ProgressLost(
            f"the changelog {topic} [{partition}] holds offsets {start} to {end}, and is needed from {begin}"
        )
    return end
