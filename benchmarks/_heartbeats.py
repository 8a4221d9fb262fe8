"""Sends messages at a steady rate into a topic, and measures the time until each appears in another topic.

A message is `key,time`: one of KEYS keys in turn, and the time of sending (ns). The job between the topics emits one
message per input that begins with both. Readers are `read_committed`: the measured time is that at which a reader may
trust a record.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

PATIENCE_S = 30.0
KEYS = 10_000
"""So many that no two messages of a key are in one batch of a peer, which would give one for both."""


class Pulse:
    """Measures from one topic to another; `partitions` of the first one get messages in turn.

    `linger_ms`: how long the producer gathers messages; with 0 each is a request of its own.
    """

    def __init__(self, servers: str, source: str, sink: str, partitions: int, linger_ms: int = 0) -> None:
        self._servers = servers
        self._source = source
        self._sink = sink
        self._partitions = partitions
        self._linger_ms = linger_ms
        self._sent = 0

    def latencies_ms(self, per_s: float, seconds: float) -> list[float]:
        """Sends for so many seconds, and returns the latency of each message. Raises TimeoutError if some do not
        arrive."""
        wanted = max(1, round(per_s * seconds))
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "pulse",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "fetch.queue.backoff.ms": 5,
            }
        )
        ends = []
        for partition in consumer.list_topics(self._sink).topics[self._sink].partitions:
            _, high = consumer.get_watermark_offsets(TopicPartition(self._sink, partition))
            ends.append(TopicPartition(self._sink, partition, high))
        consumer.assign(ends)
        sending = threading.Thread(target=self._send, args=(wanted, 1 / per_s), daemon=True)
        sending.start()
        results: list[float] = []
        deadline = time.monotonic() + seconds + PATIENCE_S
        while len(results) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._sink}: {len(results)} of {wanted} messages came")
            # One by one: consume() waits for its timeout unless as many came as were asked for.
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                results.append((time.time_ns() - int((message.value() or b"").split(b",")[1])) / 1e6)
        sending.join()
        consumer.close()
        return results

    def _send(self, wanted: int, every_s: float) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": self._linger_ms})
        due = time.perf_counter()
        for _ in range(wanted):
            due += every_s
            time.sleep(max(0.0, due - time.perf_counter()))
            text = f"{self._sent % KEYS},{time.time_ns()}"
            producer.produce(self._source, text, partition=self._sent % self._partitions)
            producer.poll(0)
            self._sent += 1
        producer.flush(PATIENCE_S)
