"""Events per second from Kafka into the state of all roles, compared with consume + Avro decode alone.

The log has jobs that are submitted, deployed on three TaskExecutors, run and finish, one after another, created by the
simulation of tests/services and written to Kafka. Each phase includes the one before, so the table shows where the time
goes.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import fastavro
from _report import conditions, median, report
from _scale import scaled
from confluent_kafka import Consumer, TopicPartition

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import avro
from tailrace.schemas.event import Event, Record
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import Replica, tune_gc_for_replay
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.job_master import JobMaster
from tailrace.services.log.clients import consumer_configuration
from tailrace.services.log.event_log import EventLog, read_to_end
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.topics import ensure_cluster_topics, log_topic
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.task_executor import TaskExecutor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from services.simulated_cluster.cluster import Cluster, graph

JOBS = scaled(1_500)
PARALLELISM = 4
ROUNDS = scaled(3)
BATCH = 10_000
HEAD = 10


def conversation() -> list[Record]:
    """Returns a cluster's log."""
    cluster = Cluster()
    cluster.start_master()
    for number in range(3):
        cluster.start_task_executor(f"te-{number}", 2)
    cluster.settle()
    job_graph = graph(PARALLELISM)
    for number in range(JOBS):
        cluster.submit(f"job-{number}", job_graph)
        cluster.settle()
        cluster.finish_all()
        cluster.settle()
    return cluster.log


class Timing(NamedTuple):
    """Seconds: wall clock, and CPU, which depends less on other load. Child processes that have ended are included."""

    clock: float
    cpu: float


def timed(run: Callable[[], object]) -> Timing:
    """Returns the time of a call."""
    clock, cpu = time.perf_counter(), sum(os.times()[:4])
    run()
    return Timing(time.perf_counter() - clock, sum(os.times()[:4]) - cpu)


def consume(bootstrap_servers: str, topic: str, end: int, take: Callable[[bytes], object]) -> None:
    """Reads a topic to its end; calls `take` with each value."""
    consumer = Consumer(
        consumer_configuration(
            KafkaConnection(bootstrap_servers), auto_offset_reset="error", queued_min_messages=50_000
        )
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while count < end:
        for message in consumer.consume(BATCH, 0.05):
            count += 1
            take(message.value() or b"")
    consumer.close()


def decoder() -> Callable[[bytes], object]:
    """Returns a fastavro decoder: from the value to a dict."""
    schemas = {avro.fingerprint(name): schema for name, schema in avro.parsed().items()}

    def decode(value: bytes) -> object:
        return fastavro.schemaless_reader(io.BytesIO(value[HEAD:]), schemas[value[2:HEAD]], None)

    return decode


def read(log: EventLog) -> None:
    """Reads every event as a record."""
    for _ in read_to_end(log):
        pass


def replay(log: EventLog) -> None:
    """Returns the state of all roles."""
    replica = Replica([Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()])
    for batch in read_to_end(log):
        for record in batch:
            replica.apply(record)


def main() -> None:
    records = conversation()
    tune_gc_for_replay()
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        configuration = Configuration({"cluster.id": "bench", "bootstrap.servers": servers})
        ensure_cluster_topics(create_admin_client(configuration), "bench")
        log = open_event_log(configuration)
        events = [Event(record.header, record.body) for record in records]
        for start in range(0, len(events), BATCH):
            log.append(events[start : start + BATCH])
        topic, end = log_topic("bench"), len(events)
        bytes_each = sum(len(log.codec.encode(event)) for event in events[:5_000]) / 5_000
        phases: dict[str, Callable[[], object]] = {
            "consume": lambda: consume(servers, topic, end, lambda _: None),
            "decode": lambda: consume(servers, topic, end, decoder()),
            "records": lambda: read(log),
            "replay": lambda: replay(log),
        }
        rounds = {phase: [timed(run) for _ in range(ROUNDS)] for phase, run in phases.items()}
    seconds = {
        phase: median([checkpoint.clock for checkpoint in checkpoints])
        for phase, checkpoints in rounds.items()
    }
    row = {phase: median([timing.cpu for timing in timings]) / end * 1e6 for phase, timings in rounds.items()}
    figures = {
        "events_per_s": end / seconds["replay"],
        "decode_per_s": end / seconds["decode"],
        "share_of_decode": seconds["decode"] / seconds["replay"],
        "consume_us": row["consume"],
        "avro_us": row["decode"] - row["consume"],
        "records_us": row["records"] - row["consume"],
        "fold_us": row["replay"] - row["records"],
    }
    notes = {
        "events_per_s": "Kafka -> the state of all roles",
        "decode_per_s": "raw limit: consume + fastavro decode",
        "share_of_decode": "aim: at least 0.5",
        "consume_us": "an event, of CPU: librdkafka and its Python objects",
        "avro_us": "an event: fastavro, to a dict, for comparison",
        "records_us": "an event: to a typed record, by the compiled functions",
        "fold_us": "an event: evolve of the roles concerned",
    }
    report("replay", figures, conditions(events=end, bytes_per_event=round(bytes_each), rounds=ROUNDS), notes)


if __name__ == "__main__":
    main()
