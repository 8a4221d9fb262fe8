"""Topics that belong to no job, for integration tests."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from polling import TIMEOUT_S


class Topics:
    """The topics of one test."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})

    def add_partitions(self, topic: str, total: int) -> None:
        for added in self._admin.create_partitions([NewPartitions(topic, total)]).values():
            added.result(30)

    def new(self, partitions: int = 1, prefix: str = "topic") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.create(name, partitions)
        return name

    def create(self, name: str, partitions: int = 1) -> None:
        for created in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            created.result(30)

    def write(
        self, topic: str, values: list[bytes | None], partition: int = 0, timestamps: list[int] | None = None
    ) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 5})
        for index, value in enumerate(values):
            timestamp = 0 if timestamps is None else timestamps[index]
            while True:
                try:
                    producer.produce(topic, value, partition=partition, timestamp=timestamp)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0

    def write_message(
        self, topic: str, value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> None:
        producer = Producer({"bootstrap.servers": self._servers})
        producer.produce(topic, value, key, 0, headers=headers)  # type: ignore[arg-type]
        assert producer.flush(30) == 0

    def write_transaction(self, topic: str, values: list[bytes], *, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": group})
        (result,) = consumer.committed([TopicPartition(topic, partition)], 30)
        consumer.close()
        return int(result.offset)

    def first_offset(self, topic: str, partition: int = 0) -> int:
        """Deletes the records before the offset."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": f"test-{uuid.uuid4()}"})
        first, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=90)
        consumer.close()
        return int(first)

    def commit(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    def read(self, topic: str, count: int, *, beyond_s: float = 0.0) -> list[bytes]:
        """Returns the committed values of a topic: at least `count`, and what arrives within `beyond_s` seconds
        after those."""
        return [message.value() or b"" for message in self.read_messages(topic, count, beyond_s=beyond_s)]

    def read_messages(self, topic: str, count: int, *, beyond_s: float = 0.0) -> list[Message]:
        """Returns whole messages; see `read`."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"test-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "fetch.queue.backoff.ms": 5,
            }
        )
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        messages: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        enough = None
        while time.monotonic() < deadline and (enough is None or time.monotonic() < enough):
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                messages.append(message)
            if len(messages) >= count and enough is None:
                enough = time.monotonic() + beyond_s
        consumer.close()
        return messages
