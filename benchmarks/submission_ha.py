"""Submissions a second with ZooKeeper over those without it.

One jobmanager, elected by ZooKeeper or by nobody, is asked for many jobs at once; the clock runs until the last of them
is accepted, and meanwhile those that were accepted first are scheduled. Nothing is written to ZooKeeper on the way of
a submission, so the ratio should be one, but for the CPU that latches of jobs take beside it. The peer is Flink 2.3:
its submissions with and without ZooKeeper differ by more than a factor of two.

ROUNDS=1 JOBS=50 in the environment makes it brief.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from _masters import SLOTS, Follower, one_task, running_masters
from _report import conditions, median, report
from confluent_kafka import Producer

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import Header
from tailrace.services.log import Codec
from tailrace.services.log.clients import writer
from tailrace.services.log.topics import submissions_topic
from tailrace.services.roles import DISPATCHER

ROUNDS = int(os.environ.get("ROUNDS", "5"))
JOBS = int(os.environ.get("JOBS", "500"))
WARM_UP = 50
WITHOUT: Mapping[str, str] = {}
ZOOKEEPER: Mapping[str, str] = {"high-availability.type": "zookeeper"}


def per_s(bootstrap_servers: str, cluster_id: str, values: Mapping[str, str], masters: int) -> float:
    """Submissions a second of a fresh cluster, once it is warm."""
    taskexecutors = (WARM_UP + JOBS) // SLOTS + 1
    with running_masters(bootstrap_servers, cluster_id, masters, values, taskexecutors) as cluster:
        follower = Follower(cluster)
        submitted(bootstrap_servers, cluster_id, follower, "warm-up", WARM_UP)
        rate = submitted(bootstrap_servers, cluster_id, follower, "job", JOBS)
        follower.close()
        return rate


def submitted(bootstrap_servers: str, cluster_id: str, follower: Follower, name: str, count: int) -> float:
    """So many jobs are asked for at once; how many a second were accepted."""
    topic, graph = submissions_topic(cluster_id), one_task()
    codec, producer = Codec(topic), Producer(writer(bootstrap_servers))
    requests = []
    for number in range(count):
        now = time.time_ns() // 1000
        header = Header(
            event_id=f"{name}-{number}", time=now, sender="client/bench", sender_epoch=0, recipient=DISPATCHER
        )
        body = dispatcher.SubmitJob(job_id=f"{name}-{number}", job_graph=graph)
        requests.append(codec.encode(Event(header, body)))
    accepted = 0

    def last(record: Record) -> bool:
        nonlocal accepted
        accepted += isinstance(record.body, client.JobAccepted)
        return accepted == count

    begun = time.time()
    for request in requests:
        producer.produce(topic, request, key="client/bench")
    producer.flush()
    return count / (follower.until(last, "acceptance of all jobs").header.time / 1e6 - begun)


def main() -> None:
    rates: dict[str, list[float]] = {"none": [], "zookeeper": [], "standby": []}
    kinds = {"none": (WITHOUT, 1), "zookeeper": (ZOOKEEPER, 1), "standby": (ZOOKEEPER, 2)}
    with EmbeddedKafka() as kafka:
        # The broker's JVM is slow at first, and who comes first would pay for it.
        per_s(kafka.bootstrap_servers, "first", WITHOUT, 1)
        for number in range(ROUNDS):
            for name in sorted(kinds, reverse=number % 2 == 1):
                values, masters = kinds[name]
                rates[name].append(per_s(kafka.bootstrap_servers, f"{name}-{number}", values, masters))
    none, zookeeper, standby = (median(rates[name]) for name in kinds)
    figures = {
        "ratio": zookeeper / none,
        "none_per_s": none,
        "zookeeper_per_s": zookeeper,
        "standby_per_s": standby,
    }
    notes = {
        "ratio": "with ZooKeeper over without; aim: at least 0.9",
        "standby_per_s": "with a second jobmanager that folds all of it too",
    }
    report("submission_ha", figures, conditions(rounds=ROUNDS, jobs=JOBS), notes)


if __name__ == "__main__":
    main()
