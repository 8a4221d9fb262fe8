"""The sink into another Kafka cluster, exactly once: two transactions, one after the other.

The task's own transaction commits the messages as state of the sink, with the progress (pending_messages.py). After it
the sink writes them to the other cluster, in a transaction there that also has the mark, how far it has come
(external_kafka.py). A crash before the second transaction leaves the messages in the state, and the next attempt writes
them; a crash after it leaves the mark, and the next attempt leaves out what the mark says. This is Flink's two-phase
commit with a log of the first phase: a transaction of Kafka cannot be continued by another process (KIP-939 would allow
it), but its messages can be sent again.

The cost: messages travel through the task's changelog, and a result is visible after two commits instead of one.

The other cluster forgets the mark `offsets.retention.minutes` (a week) after the last message. A task that continues
later, and whose last commit was not recorded as delivered, writes the messages of that commit again, with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ....infra.kafka_connection import KafkaConnection, UnusableProperties
from ...graph.physical_plan import external_sink_id
from ..common.failures import RecordError, TaskError
from ..records.batch import Batch
from ..state_backend.stateful import Origin
from .external_kafka import ExternalKafka, ExternalKafkaClient
from .kafka_message_writer import KafkaMessageWriter, SinkFunctions
from .kafka_sink import message_time
from .kafka_sink_parameters import KafkaSinkParameters
from .operator import Operator, OperatorSetup
from .pending_messages import Began, Mark, OutgoingMessage, PendingMessages
from .user_functions import close_function, load, open_function, user_code

_log = logging.getLogger(__name__)

Connect = Callable[[KafkaConnection, str], ExternalKafka]
MOST_IN_TRANSACTION: Final = 100_000
"""Messages of one transaction in the other cluster."""


class ExternalKafkaSinkOperator(Operator):
    """Writes one message for each record."""

    def __init__(self, setup: OperatorSetup, connect: Connect = ExternalKafkaClient) -> None:
        self._setup = setup
        self._parameters = KafkaSinkParameters.from_config(setup.config)
        kafka = self._parameters.connection
        if kafka is None:
            raise ValueError(f"operator {setup.config.name!r} names no other cluster")
        self._kafka = kafka
        self._owner = external_sink_id(
            setup.cluster, setup.job_id, setup.config.operator_id, setup.context.subtask_index
        )
        self._functions = SinkFunctions(*load(setup.config))
        self._connect = connect
        self._external: ExternalKafka | None = None
        self._writer = KafkaMessageWriter(
            setup.config, self._parameters, self._functions, setup.input_types[0], self._partitions_of
        )
        self._pending = PendingMessages()
        self._origins: list[PendingMessages] = []
        self._from_origin = False

    def restore(self, message: bytes) -> None:
        change = (self._origins[-1] if self._from_origin else self._pending).restore(message)
        if isinstance(change, Began) and not self._from_origin:
            self._origins.clear()  # an earlier attempt has taken them over

    def restore_from(self, origin: Origin | None) -> None:
        self._from_origin = origin is not None
        if origin is not None:
            self._origins.append(PendingMessages())

    def open(self) -> None:
        setup, topic = self._setup, self._parameters.topic
        with self._errors_named():
            self._external = self._connect(self._kafka, self._owner)
            self._external.open(topic or self._pending.began.topic)
        if topic is not None:
            self._writer.open_topic(topic)
        with self._errors_named():
            self._take_over(topic)
        with user_code(setup.config):
            for function in self._functions:
                open_function(function, setup.context)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        messages = self._writer.write(batch)
        now = self._setup.wall_clock()
        if not self._pending.began.topic:
            self._pending.name_topic(messages.topics[0])
        for topic, key, value, headers, partition, timestamp in zip(*messages, strict=True):
            self._pending.add(
                OutgoingMessage(topic, value, key, partition, message_time(timestamp, now), headers)
            )

    @property
    def wants_commit(self) -> bool:
        return self._pending.is_dirty

    def take_changes(self) -> Iterable[bytes]:
        return self._pending.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._pending.full())

    def committed(self) -> None:
        external, pending = self._external, self._pending
        assert external is not None
        while messages := pending.committed()[:MOST_IN_TRANSACTION]:
            mark = Mark(self._setup.generation, pending.first_number + len(messages))
            with self._errors_named():
                external.deliver(messages, pending.began.topic, mark)
            pending.record_delivery(len(messages))

    def close(self) -> None:
        if self._external is not None:
            self._external.close()
        with user_code(self._setup.config):
            for function in self._functions:
                close_function(function)

    def _partitions_of(self, topic: str) -> int:
        assert self._external is not None
        with self._errors_named():
            return self._external.partitions_of(topic)

    def _take_over(self, topic: str | None) -> None:
        """Leaves out what is delivered, and begins the generation, or takes over the state of other owners."""
        pending, generation = self._pending, self._setup.generation
        began = pending.began
        if began.owner == self._owner and not self._origins:
            undelivered = self._undelivered(pending)
            if began.generation == generation:
                pending.record_delivery(len(pending) - len(undelivered))
            else:
                begin = Began(self._owner, generation, pending.next_number - len(undelivered), began.topic)
                pending.begin(begin, undelivered)
            return
        earlier = [pending, *self._origins]
        messages = [message for origin in earlier for message in self._undelivered(origin)]
        known = topic or next((origin.began.topic for origin in earlier if origin.began.topic), "")
        pending.begin(Began(self._owner, generation, 0, known), messages)
        self._origins.clear()

    def _undelivered(self, pending: PendingMessages) -> list[OutgoingMessage]:
        """Returns the messages that the owner has not delivered, by its mark."""
        assert self._external is not None
        if not len(pending):
            return []
        owner, topic = pending.began.owner, pending.began.topic
        mark = self._external.read_mark(owner, topic)
        if mark is None and (pending.has_delivered or owner != self._owner):
            _log.warning(
                "%s has no offset of the group %s any more: %d messages of the last commit are written again",
                self._kafka,
                owner,
                len(pending),
            )
        return pending.undelivered(mark)

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Adds the sink and the other cluster to an error."""
        try:
            yield
        except RecordError:
            raise
        except (TaskError, UnusableProperties) as error:
            raise TaskError(
                f"the Kafka sink {self._setup.config.name!r} to {self._kafka}: {error}; no record is lost: its messages"
                " are written when the task restarts"
            ) from error
