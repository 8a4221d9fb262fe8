"""Brokers are killed under load while their group coordinator has much to load: results are exact.

A restarted broker may answer with old positions of a consumer group, or none, while its coordinator loads more than
16,384 records of a partition of `__consumer_offsets` (seen with Kafka 4.2.1). Nobody may continue from those.
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


def test_results_are_exact_for_any_answer_of_restarted_group_coordinator(tmp_path: Path) -> None:
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
            for thread in running:
                thread.start()
            while any(thread.is_alive() for thread in running):
                for thread in running:
                    thread.join(1.0)
                if kills < KILLS and any(item.is_alive() for item in running):
                    kafka.kill()
                    kafka.start()
                    kills += 1
            assert [job.wrong() for job in jobs] == [""] * AT_A_TIME, f"after {kills} kills"


def keep_running(job: StandaloneJob, vertex: int) -> None:
    """Runs attempt after attempt until one finishes."""
    reports = [""]
    while reports[-1:] != ["TaskFinished"]:
        attempt = job.start(vertex)
        outcome = attempt.wait()
        while outcome.exit_code is None and outcome.killed_by is None:
            outcome = attempt.wait()
        reports = attempt.messages


def fill(servers: str, partition: int) -> None:
    """Commits many offsets of a group that is stored in one partition of `__consumer_offsets`."""
    group = next(name for name in map("fill-{}".format, itertools.count()) if partition_of(name) == partition)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    for number in range(COMMITS):
        at = [TopicPartition("filled", 0, number)]
        consumer.commit(offsets=at, asynchronous=number % 500 != 0)
    consumer.close()


def partition_of(group: str) -> int:
    """Returns Kafka's partition of the group: Java's hash of the name."""
    value = 0
    for character in group:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % PARTITIONS


def in_parallel(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
