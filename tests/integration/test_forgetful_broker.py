"""Brokers that are killed under load, once their group coordinator has much to load: results are exact.

A broker that starts again may answer old positions of a consumer group, or none, while its coordinator loads more than
16,384 records of a partition of `__consumer_offsets` (seen with Kafka 4.2.1). Nobody may go on from those.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.infra.kafka import EmbeddedKafka

from ..fault_injection import result_topics
from ..fault_injection.jobs import Shape
from ..fault_injection.standalone_attempt import StandaloneAttempts
from ..fault_injection.standalone_job import COUNT, SOURCE, StandaloneJob

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]

KILLS = 10
AT_A_TIME = 3
COMMITS = 26_000
"""Of each partition of `__consumer_offsets`."""
PARTITIONS = 4
"""Of the embedded broker."""
SHAPE = Shape(records=3_000, keys=4, parallelism=1, rate=200)


def test_results_are_exact_whatever_the_group_coordinator_answers_after_a_kill(tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka, StandaloneAttempts(tmp_path) as lone:
        result_topics.make_exactly(kafka.bootstrap_servers, {"filled": 1})
        in_parallel([partial(fill, kafka.bootstrap_servers, n) for n in range(PARTITIONS)])
        kills = 0
        while kills < KILLS:
            jobs = [StandaloneJob(lone, kafka.bootstrap_servers, SHAPE) for _ in range(AT_A_TIME)]
            running = [
                threading.Thread(target=keep_running, args=(job, vertex))
                for job in jobs
                for vertex in (SOURCE, COUNT)
            ]
            for each in running:
                each.start()
            while any(each.is_alive() for each in running):
                for each in running:
                    each.join(1.0)
                if kills < KILLS and any(each.is_alive() for each in running):
                    kafka.kill()
                    kafka.start()
                    kills += 1
            assert [job.wrong() for job in jobs] == [""] * AT_A_TIME, f"after {kills} kills"


def keep_running(job: StandaloneJob, vertex: int) -> None:
    """Attempt after attempt, until one finishes."""
    told = [""]
    while told[-1:] != ["TaskFinished"]:
        attempt = job.start(vertex)
        outcome = attempt.wait()
        while outcome.exit_code is None and outcome.killed_by is None:
            outcome = attempt.wait()
        told = attempt.messages


def fill(servers: str, partition: int) -> None:
    """Many commits of a group whose offsets are kept in a partition of `__consumer_offsets`."""
    group = next(name for name in map("fill-{}".format, itertools.count()) if partition_of(name) == partition)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    for number in range(COMMITS):
        at = [TopicPartition("filled", 0, number)]
        consumer.commit(offsets=at, asynchronous=number % 500 != 0)
    consumer.close()


def partition_of(group: str) -> int:
    """As Kafka has it: Java's hash of the name."""
    value = 0
    for character in group:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % PARTITIONS


def in_parallel(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
