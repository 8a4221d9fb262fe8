"""What a new attempt reads before it begins: committed offsets, and the changelog to its exact end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from ....schemas.types import OperatorState
from ..failures import TaskError
from ..state.stateful import Origin
from .kafka import connected
from .transaction import ConsumedOffset

_TIMEOUT_S: Final = 30.0


def restored_state(
    uri: str, operators: Sequence[tuple[Origin, OperatorState]], subtask_index: int, parallelism: int
) -> Iterator[tuple[bytes, bytes]]:
    """Key and message of all state that a subtask takes from the checkpoint at `uri`, for Subtask.restore.

    `operators` are, for each operator, the old subtasks that have something of it. Where the subtask takes the state of
    its own predecessor, it is the messages as they were; else each origin's begin with an Origin. Raises TaskError
    where a file is missing or torn.
    """
    raise NotImplementedError


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


def read_changelog(consumer: Consumer, topic: str, partition: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every committed message, to the end that the partition has now.

    Call after the fencing of older attempts: from then on nobody else writes. The end is partition EOF, not
    a last offset: control records take offsets too. Raises TaskError.
    """
    connected(consumer, topic)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
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
            elif not error.retriable():
                raise TaskError(f"the changelog {topic} could not be read: {error.str()}")
    finally:
        consumer.unassign()
