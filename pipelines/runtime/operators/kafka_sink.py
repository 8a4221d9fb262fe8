"""The sink into Kafka topics: one message for each record, in the task's transaction.

So readers of committed records see each result once, together with the progress that it belongs to. A message with a
key goes to the partition that Java's clients would choose for it (murmur2), one without a key to any, unless the sink
has a partitioner. It has the record's timestamp, unless that is more than five minutes ahead: such a message has the
time of writing. Brokers refuse messages from the future (`message.timestamp.after.max.ms`, an hour by default;
KIP-937), so the results of a window that has not ended when the input ends could never be written.

A topic must exist when the task opens, or at the first record for it if a function chooses the topic. A missing topic
is refused, unless the broker creates it on request (`auto.create.topics.enable`). The number of partitions that a
partitioner gets is that of then.
"""

from __future__ import annotations

from typing import Final

from ..records.batch import Batch
from .kafka_message_writer import KafkaMessageWriter, SinkFunctions
from .kafka_sink_parameters import KafkaSinkParameters
from .operator import Operator, OperatorSetup
from .user_functions import close_function, load, open_function, user_code

AHEAD_MS: Final = 300_000
"""How far ahead of this machine's clock a message's timestamp may be."""


class KafkaSinkOperator(Operator):
    """Writes one message for each record."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._parameters = KafkaSinkParameters.from_config(setup.config)
        self._functions = SinkFunctions(*load(setup.config))
        self._writer = KafkaMessageWriter(
            setup.config, self._parameters, self._functions, setup.input_types[0], setup.require_topic
        )
        self._is_simple = self._writer.is_simple

    def open(self) -> None:
        setup = self._setup
        if self._parameters.topic is not None:
            self._writer.open_topic(self._parameters.topic)
        with user_code(setup.config):
            for function in self._functions:
                open_function(function, setup.context)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        send, now = self._setup.send, self._setup.wall_clock()
        topic = self._parameters.topic
        if topic is not None and self._is_simple:
            keys, values = self._writer.write_simple(batch)
            latest = now + AHEAD_MS
            for value, key, time in zip(values, keys, batch.timestamps, strict=True):
                send(topic, value, key=key, timestamp_ms=max(1, time) if time <= latest else now)
            return
        messages = self._writer.write(batch)
        for to, key, value, headers, partition, time in zip(*messages, strict=True):
            at = message_time(time, now)
            send(to, value, key=key, partition=partition, timestamp_ms=at, headers=headers)

    def close(self) -> None:
        with user_code(self._setup.config):
            for function in self._functions:
                close_function(function)


def message_time(timestamp: int, now: int) -> int:
    """Returns the timestamp of the message of a record (ms)."""
    # Kafka has no times before 1970 (-1 means none), and for 0 the client takes the time of sending.
    return max(1, timestamp) if timestamp <= now + AHEAD_MS else now
