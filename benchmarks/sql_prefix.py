"""What a message costs that a filter drops: 99 % of a topic, by a condition in SQL and by a Python function.

At a backlog, read in bulk, and in real time at a steady rate. Figures are the CPU time of all processes of a cluster,
not the broker's, per message: other work of the machine changes times more. The peer is the same job with `filter`.
In real time the figures have what a cluster uses without messages, too.
"""

from __future__ import annotations

import json
import time
from typing import NamedTuple

from _jobs import Cluster, running_cluster
from _lines import create_topic
from _report import conditions, median, report
from _scale import scaled, scaled_s
from confluent_kafka import Consumer, Producer, TopicPartition
from metrics_overhead import cpu_s

from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.types import JobGraph

MESSAGES = scaled(1_000_000)
ROUNDS = 3
RATE = 300
"""Below the rate from which several messages are handed over together."""
WARM_UP_S = scaled_s(15.0, least=2.0)
MEASURED_S = scaled_s(20.0, least=2.0)
HITS = 100
"""Every hundredth message is kept."""
WAYS = ("sql", "python")
PATIENCE_S = 120.0


class Order(NamedTuple):
    """The record of a message in JSON."""

    user: str
    item: str
    amount: int
    price: float


def message(number: int) -> bytes:
    """Returns the n-th message."""
    order = Order(f"user-{number % 997}", f"item-{number % 89}", number % HITS, number / 8)
    return json.dumps(order._asdict()).encode()


def graph(way: str, form: str, source: str, sink: str, *, bounded: bool) -> JobGraph:
    """Returns Kafka -> filter -> Kafka."""
    env = StreamExecutionEnvironment()
    if form == "json":
        orders = env.from_source(KafkaSource(source, Formats.json(), bounded=bounded, output_type=Order))
        kept = orders.where("amount = 0") if way == "sql" else orders.filter(lambda order: order.amount == 0)
        texts = kept.map(lambda order: order.user, str)
    else:
        lines = env.from_source(KafkaSource(source, Formats.text(), bounded=bounded))
        hit = '"amount": 0,'
        texts = (
            lines.where(f"contains(value, '{hit}')")
            if way == "sql"
            else lines.filter(lambda line: hit in line)
        )
    texts.sink_to(KafkaSink(sink, Formats.text()))
    return env.get_job_graph(f"{way} {form}")


class Bench:
    """Measures jobs on a cluster."""

    def __init__(self, servers: str, cluster: Cluster) -> None:
        self._servers = servers
        self._cluster = cluster
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._topics = 0

    def topic(self) -> str:
        """Creates a topic of one partition."""
        self._topics += 1
        return create_topic(self._servers, f"sql-{self._topics}", 1)

    def write(self, topic: str, begin: int, end: int, per_s: float = 0) -> None:
        """Writes messages, at a rate if there is one."""
        start = time.monotonic()
        for number in range(begin, end):
            if per_s:
                time.sleep(max(0.0, start + (number - begin) / per_s - time.monotonic()))
            self._producer.produce(topic, message(number))
            if number % 1_000 == 0:
                self._producer.poll(0)
                if not per_s:
                    self._producer.flush(60)
        self._producer.flush(60)

    def wait_for(self, topic: str, messages: int) -> None:
        """Waits until a topic has so many committed messages. Raises TimeoutError."""
        consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "bench", "isolation.level": "read_committed"}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline, found = time.monotonic() + PATIENCE_S, 0
        while found < messages:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has {found} of {messages} messages")
            found += sum(not m.error() for m in consumer.consume(1_000, 0.2))
        consumer.close()

    def in_bulk_us(self, way: str, form: str, source: str) -> float:
        """Returns the CPU time for a message of a backlog."""
        sink, before = self.topic(), cpu_s(self._cluster)
        self._cluster.start(graph(way, form, source, sink, bounded=True)).wait_until_running().wait()
        used = cpu_s(self._cluster) - before
        self.wait_for(sink, MESSAGES // HITS)
        return used / MESSAGES * 1e6

    def in_real_time_us(self, way: str, form: str) -> float:
        """Returns the CPU time for a message at a steady rate."""
        source, sink = self.topic(), self.topic()
        job = self._cluster.start(graph(way, form, source, sink, bounded=False)).wait_until_running()
        warm, all_ = round(RATE * WARM_UP_S), round(RATE * (WARM_UP_S + MEASURED_S))
        self.write(source, 0, warm, RATE)
        before = cpu_s(self._cluster)
        self.write(source, warm, all_, RATE)
        used = cpu_s(self._cluster) - before
        self.wait_for(sink, all_ // HITS)
        job.cancel()
        return used / (all_ - warm) * 1e6


def main() -> None:
    figures: dict[str, float] = {}
    with EmbeddedKafka(heap="1g") as kafka, running_cluster(kafka.bootstrap_servers, slots=1) as cluster:
        bench = Bench(kafka.bootstrap_servers, cluster)
        for form in ("json", "text"):
            taken: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(ROUNDS):
                for way in WAYS if number % 2 else reversed(WAYS):
                    taken[way].append(bench.in_real_time_us(way, form))
            figures.update({f"{form}_real_time_{way}_us": median(taken[way]) for way in WAYS})
        source = bench.topic()
        bench.write(source, 0, MESSAGES)
        for form in ("json", "text"):
            found: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(-1, ROUNDS):  # the first round warms up
                for way in WAYS if number % 2 else reversed(WAYS):
                    cost = bench.in_bulk_us(way, form, source)
                    if number >= 0:
                        found[way].append(cost)
            figures.update({f"{form}_bulk_{way}_us": median(found[way]) for way in WAYS})
    for key in [key for key in figures if "_sql_" in key]:
        figures[key.replace("sql_us", "ratio")] = figures[key.replace("sql", "python")] / figures[key]
    notes = {"json_real_time_ratio": "aim: 5"}
    report("sql_prefix", figures, conditions(messages=MESSAGES, rate=RATE, seconds=MEASURED_S), notes)


if __name__ == "__main__":
    main()
