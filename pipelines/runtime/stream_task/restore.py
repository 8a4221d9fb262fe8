"""What a new attempt reads before it begins: committed offsets, and the changelog to its exact end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ...checkpoint.errors import CheckpointError
from ...checkpoint.layout import base_of
from ...checkpoint.redistribution import Piece
from ...checkpoint.state_files import read_messages
from ...checkpoint.storage import Storage
from ..failures import ProgressLost, TaskError
from ..state.stateful import Origin, origin_message
from .kafka import connected
from .transaction import ConsumedOffset

_TIMEOUT_S: Final = 30.0
_GONE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


def restored_state(
    uri: str, operators: Mapping[str, Sequence[Piece]], subtask_index: int, parallelism: int
) -> Iterator[tuple[bytes, bytes]]:
    """Key and message of all state that a subtask takes from the checkpoint at `uri`, for Subtask.restore.

    `operators` are, by id, the old subtasks that have something of each. Where the subtask takes the state of its own
    predecessor, it is the messages as they were; else each origin's begin with an Origin. Raises ProgressLost where a
    file is missing or torn.
    """
    storage = Storage.open(base_of(uri))
    for operator_id, pieces in operators.items():
        own = all((each.subtask_index, each.parallelism) == (subtask_index, parallelism) for each in pieces)
        for piece in pieces:
            if not own:
                origin = Origin(piece.subtask_index, piece.parallelism, piece.max_parallelism)
                yield origin_message(operator_id, origin)
            try:
                for file in piece.state.files:
                    for message in read_messages(storage, file, operator_id):
                        yield operator_id.encode(), message
            except CheckpointError as error:
                raise ProgressLost(f"state of the checkpoint at {uri} cannot be read: {error}") from error
        if not own:
            yield origin_message(operator_id, None)


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


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the one that follows the last committed record now.

    Raises ProgressLost where there is no such topic (any more), TaskError where Kafka does not answer.
    """
    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=_TIMEOUT_S, cached=False
        )
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() in _GONE:
            raise ProgressLost(
                f"the topic {topic} is gone: the job has to go back to a checkpoint"
            ) from error
        raise TaskError(
            f"{topic}-{partition} could not be looked at: {reason.str()}; is Kafka up?"
        ) from error
    return int(low), int(high)


def require_offset(consumer: Consumer, topic: str, partition: int, offset: int) -> None:
    """Raises ProgressLost where a partition cannot be read on from an offset, since it holds less than it did."""
    low, high = bounds(consumer, topic, partition)
    if not low <= offset <= high:
        raise ProgressLost(
            f"{topic}-{partition} holds the offsets {low} to {high}, and is to be read on from {offset}: something was"
            " deleted; the job has to go back to a checkpoint"
        )


def read_changelog(
    consumer: Consumer, topic: str, partition: int, start: int = 0
) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every committed message from an offset on, to the end that the partition has now.

    Call after the fencing of older attempts: from then on nobody else writes. The end is partition EOF, not
    a last offset: control records take offsets too. Raises TaskError, ProgressLost where it begins behind `start`.
    """
    connected(consumer, topic)
    require_offset(consumer, topic, partition, start)
    consumer.assign([TopicPartition(topic, partition, start)])
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
            elif error.code() == KafkaError.OFFSET_OUT_OF_RANGE or error.code() in _GONE:
                raise ProgressLost(
                    f"the changelog {topic}-{partition} cannot be read any more: {error.str()}; the job has to go back"
                    " to a checkpoint"
                )
            elif not error.retriable():
                raise TaskError(f"the changelog {topic} could not be read: {error.str()}")
    finally:
        consumer.unassign()
