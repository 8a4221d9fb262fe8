"""The latency of a record from a Kafka topic to a reader of committed records in another, compared with plain
PySpark.

Two jobs: a map in one vertex, and a running count by key over a shuffle; each at two rates. The first seconds of a rate
are excluded: the JVMs' compilers and caches need that time to warm up. The raw limit is a loop that consumes, and
produces in one transaction all records of a poll.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from _heartbeats import Pulse
from _jobs import Cluster, running_cluster
from _lines import create_topic
from _report import conditions, median, percentile, report
from _scale import scaled_s
from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.types import JobGraph

RATES = (50, 1_000)
WARM_UP_S = scaled_s(20.0, least=2.0)
MEASURED_S = scaled_s(15.0, least=2.0)
SPARK = Path(__file__).with_name("_peer_spark.py")


def with_one(text: str) -> str:
    return f"{text},1"


def counted(text: str) -> tuple[str, str, int]:
    key, sent = text.split(",")
    return key, sent, 1


def added(a: tuple[str, str, int], b: tuple[str, str, int]) -> tuple[str, str, int]:
    return b[0], b[1], a[2] + b[2]


def joined(count: tuple[str, str, int]) -> str:
    return f"{count[0]},{count[1]},{count[2]}"


def map_only(source: str, sink: str, parallelism: int = 1) -> JobGraph:
    """Returns Kafka -> map -> Kafka."""
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    env.from_source(KafkaSource(source)).map(with_one).sink_to(KafkaSink(sink, Formats.text()))
    return env.get_job_graph("map")


def keyed(source: str, sink: str, parallelism: int = 1, isolation: str = "vertex") -> JobGraph:
    """Returns Kafka -> key_by -> running count -> Kafka: two vertices, a channel between them."""
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    env.configure("execution.isolation", isolation)
    counts = env.from_source(KafkaSource(source)).map(counted).key_by(0).reduce(added)
    counts.map(joined).sink_to(KafkaSink(sink, Formats.text()))
    return env.get_job_graph("running count")


def chained(source: str, sink: str) -> JobGraph:
    """Returns the same in one vertex."""
    return keyed(source, sink, isolation="slot")


class Bench:
    """Topics, and the jobs between two of them."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.figures: dict[str, float] = {}

    def topics(self, name: str) -> tuple[str, str]:
        """Creates an input and an output topic."""
        return tuple(create_topic(self.servers, f"{name}-{end}", 1) for end in ("in", "out"))  # type: ignore[return-value]

    def measure(self, name: str, source: str, sink: str, rates: tuple[int, ...] = RATES) -> None:
        """Measures the job between the topics; the figures of the highest rate have no rate in their names."""
        pulse = Pulse(self.servers, source, sink, 1)
        for rate in rates:
            pulse.latencies_ms(rate, WARM_UP_S)
            latencies = pulse.latencies_ms(rate, MEASURED_S)
            at = "" if rate == rates[-1] else f"_at_{rate}"
            self.figures[f"{name}{at}_p50_ms"] = median(latencies)
            self.figures[f"{name}{at}_p99_ms"] = percentile(latencies, 99)

    def ours(self, cluster: Cluster, name: str, graph: Callable[[str, str], JobGraph]) -> None:
        """Measures a tailrace job."""
        source, sink = self.topics(name)
        job = cluster.start(graph(source, sink)).wait_until_running()
        self.measure(name, source, sink)
        job.cancel()

    def spark(self, what: str) -> None:
        """Measures the same in plain PySpark, in micro-batches."""
        source, sink = self.topics(f"spark-{what}")
        with subprocess.Popen(
            [sys.executable, str(SPARK), what, self.servers, source, sink],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the peer did not start")
            self.measure(f"spark_{what}", source, sink)
            if process.stdin is not None:
                process.stdin.close()

    def raw(self) -> None:
        """Measures a loop that consumes and produces in transactions."""
        source, sink = self.topics("raw")
        with relay(self.servers, source, sink):
            self.measure("raw", source, sink, RATES[-1:])


@contextmanager
def relay(servers: str, source: str, sink: str) -> Iterator[None]:
    """Runs a loop in a thread that copies messages."""
    stopped = threading.Event()

    def loop() -> None:
        own = {"bootstrap.servers": servers, "fetch.wait.max.ms": 5, "fetch.queue.backoff.ms": 5}
        consumer = Consumer({**own, "group.id": "raw"})
        consumer.assign([TopicPartition(source, 0, 0)])
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "raw", "linger.ms": 0})
        producer.init_transactions(30)
        while not stopped.is_set():
            messages = [message for message in consumer.consume(10_000, 0.001) if not message.error()]
            if messages:
                producer.begin_transaction()
                for message in messages:
                    producer.produce(sink, (message.value() or b"") + b",1")
                producer.commit_transaction(30)
        consumer.close()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(30)


def main() -> None:
    under = conditions(rates=list(RATES), seconds=MEASURED_S, parallelism=1)
    with EmbeddedKafka() as kafka:
        bench = Bench(kafka.bootstrap_servers)
        with running_cluster(kafka.bootstrap_servers, slots=2) as cluster:
            bench.ours(cluster, "map", map_only)
            bench.ours(cluster, "keyed", keyed)
            bench.ours(cluster, "chained", chained)
        for what in ("map", "keyed"):
            bench.spark(what)
        bench.raw()
    notes = {
        "map_at_50_p50_ms": "50 records a second; aim: below 20",
        "map_p50_ms": "1,000 records a second; aim: below 20",
        "map_p99_ms": "aim: below 100",
        "keyed_p50_ms": "1,000 records a second, over a shuffle; aim: below 50",
        "keyed_p99_ms": "aim: below 100",
        "chained_p50_ms": "the same in one vertex, as parallelism 1 is by default",
        "spark_map_p50_ms": "peer: PySpark in micro-batches, in SQL",
        "raw_p50_ms": "raw limit: consume, produce in a transaction, by hand",
    }
    report("latency", bench.figures, under, notes)


if __name__ == "__main__":
    main()
