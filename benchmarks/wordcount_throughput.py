"""Lines per second from a Kafka topic of ten-word lines to a Kafka topic of counts, compared with three peers.

The main figure is the vectorised example: map_batches, key_by(field) and sum with mini-batches, from all tasks RUNNING
to JobFinished. The raw limit is one loop without an engine: consume, split and count in Arrow, produce. Spark counts
the same backlog in one query (its first batch takes all of it). PyFlink counts fewer lines, because it takes longer.
All counts are compared with the right ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from _flink import FlinkUnavailable, counting_s
from _jobs import Cluster, running_cluster
from _lines import PARTITIONS, check, create_topic, load
from _report import conditions, report
from _scale import scaled
from confluent_kafka import Consumer, Producer, TopicPartition

import tailrace
from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.api.build import build_file
from tailrace.schemas.types import JobGraph

LINES = scaled(4_000_000)
WARM_UP_LINES = scaled(100_000)
SPARK = Path(__file__).with_name("_peer_spark.py")
ISOLATED = {"execution.isolation": "vertex"}
"""Splitting and counting have a process each, also at parallelism 1."""
VECTORISED = Path(tailrace.__file__).parent / "pipelines" / "examples" / "vectorised_word_count.py"


def vectorised(source: str, sink: str, parallelism: int) -> JobGraph:
    """Returns the example, in two vertices at any parallelism."""
    arguments = ["--bounded", "--input", source, "--output", sink]
    return build_file(str(VECTORISED), arguments, parallelism, ISOLATED)


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


def in_python(source: str, sink: str, parallelism: int, *, mini_batch: bool) -> JobGraph:
    """Returns the same with a Python function for each word; without mini-batches each intermediate count is
    written."""
    env = StreamExecutionEnvironment(parallelism=parallelism, configuration=ISOLATED)
    env.configure("execution.mini-batch", str(mini_batch).lower())
    counts = env.from_source(KafkaSource(source, bounded=True)).flat_map(words).key_by(0).sum(1)
    counts.map(shown, str).sink_to(KafkaSink(sink, Formats.text(), key=word_of))
    return env.get_job_graph("word count in Python")


def shown(count: tuple[str, int]) -> str:
    return f"{count[0]} {count[1]}"


def word_of(text: str) -> str:
    return text.partition(" ")[0]


def by_hand_s(servers: str, source: str, sink: str) -> float:
    """Returns the seconds of the raw limit in one thread."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "raw",
            "enable.partition.eof": True,
            "fetch.min.bytes": 100_000,
        }
    )
    consumer.assign([TopicPartition(source, partition, 0) for partition in range(PARTITIONS)])
    start = time.perf_counter()
    open_ones, parts = PARTITIONS, []
    while open_ones:
        values = []
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                open_ones -= 1
            else:
                values.append(message.value())
        result = pc.list_flatten(pc.utf8_split_whitespace(pa.array(values, pa.string())))
        table = pa.table({"word": result, "count": pa.repeat(1, len(result))})
        parts.append(table.group_by("word").aggregate([("count", "sum")]))
    counts = pa.concat_tables(parts).group_by("word").aggregate([("count_sum", "sum")])
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for word, count in zip(counts["word"].to_pylist(), counts["count_sum_sum"].to_pylist(), strict=True):
        producer.produce(sink, str(count), key=word)
    producer.flush(60)
    consumer.close()
    return time.perf_counter() - start


def spark_s(servers: str, source: str, sink: str) -> float:
    """Returns the seconds of Spark's query, the second one of its process."""
    create_topic(servers, f"{sink}-warm-up")
    result = subprocess.run(
        [sys.executable, str(SPARK), "count", servers, source, sink],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    seconds: float = json.loads(result.stdout.splitlines()[-1])["seconds"]
    return seconds


class Measured:
    """Collects figures and checks the counts of each."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.figures: dict[str, float] = {}

    def ours(self, cluster: Cluster, key: str, graph: JobGraph, sink: str, lines: int) -> None:
        """Runs a tailrace job."""
        job = cluster.start(graph).wait_until_running().wait()
        check(self.servers, sink, lines)
        self.figures[f"{key}_lines_per_s"] = lines / job.run_s

    def sink(self, name: str) -> str:
        """Creates a topic for counts."""
        return create_topic(self.servers, f"counts-{name}")


def main() -> None:
    parser = ArgumentParser("wordcount_throughput")
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--python-lines", type=int, help="for our jobs in plain Python; default: a quarter")
    parser.add_argument("--flink-lines", type=int, help="default: one in sixty")
    parser.add_argument(
        "--without", nargs="*", default=[], help="what is left out: raw, spark, flink, python"
    )
    options = parser.parse_args()
    lines = options.lines
    python_lines = options.python_lines or lines // 4
    flink_lines = options.flink_lines or max(1_000, lines // 60)
    under = conditions(lines=lines, python_lines=python_lines, flink_lines=flink_lines)
    with EmbeddedKafka(heap="1g") as kafka:
        servers = kafka.bootstrap_servers
        measured = Measured(servers)
        load(servers, "lines", lines)
        load(servers, "lines-warm-up", WARM_UP_LINES)
        load(servers, "python-lines", python_lines)
        load(servers, "each-lines", python_lines // 10)
        if "raw" not in options.without:
            sink = measured.sink("raw")
            measured.figures["raw_lines_per_s"] = lines / by_hand_s(servers, "lines", sink)
            check(servers, sink, lines)
        with running_cluster(servers, slots=4) as cluster:
            cluster.start(vectorised("lines-warm-up", measured.sink("warm-up"), 2)).wait()
            for p in (1, 2):
                sink = measured.sink(f"p{p}")
                measured.ours(cluster, f"p{p}", vectorised("lines", sink, p), sink, lines)
                if "python" not in options.without:
                    sink = measured.sink(f"python-p{p}")
                    graph = in_python("python-lines", sink, p, mini_batch=True)
                    measured.ours(cluster, f"python_p{p}", graph, sink, python_lines)
            if "python" not in options.without:
                sink = measured.sink("each")
                graph = in_python("each-lines", sink, 2, mini_batch=False)
                measured.ours(cluster, "python_each_p2", graph, sink, python_lines // 10)
        if "spark" not in options.without:
            sink = measured.sink("spark")
            measured.figures["spark_lines_per_s"] = lines / spark_s(servers, "lines", sink)
            check(servers, sink, lines)
        if "flink" not in options.without:
            load(servers, "flink-lines", flink_lines)
            try:
                best = min(counting_s(servers, "flink-lines", measured.sink(f"flink-{p}"), p) for p in (1, 2))
                measured.figures["pyflink_lines_per_s"] = flink_lines / best
            except FlinkUnavailable as error:
                under["pyflink"] = f"not to be had here: {error}"
    notes = {
        "raw_lines_per_s": "raw limit: one thread that consumes, splits and counts in Arrow",
        "p1_lines_per_s": "vectorised: map_batches, key_by(field), sum with mini-batches; Flink in Java: 384,000",
        "p2_lines_per_s": "the same at parallelism 2; Flink in Java: 450,000",
        "python_p1_lines_per_s": "with flat_map in plain Python, and mini-batches",
        "python_each_p2_lines_per_s": "the same, a message out for each word, as PyFlink's job writes",
        "spark_lines_per_s": "peer: PySpark Structured Streaming, one query in SQL",
        "pyflink_lines_per_s": "peer: PyFlink 2.3 (thread mode), a message out for each word; the better of p 1 and 2",
    }
    report("wordcount_throughput", measured.figures, under, notes)


if __name__ == "__main__":
    main()
