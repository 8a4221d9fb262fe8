"""Submissions per second with ZooKeeper over those without it.

One jobmanager, elected by ZooKeeper or without an election, gets many jobs at once; the time is that until the last of
them is accepted, while the first accepted jobs are scheduled. A submission writes nothing to ZooKeeper, so the ratio
should be one, except for the CPU that the elections of jobs take. The peer is Flink 2.3: its submissions with and
without ZooKeeper differ by more than a factor of two.

The clusters run side by side on one Kafka and take turns; the ratio is the median over rounds, because other load on
the machine changes from minute to minute. Between two turns all jobs are cancelled, and the benchmark waits until the
masters are idle. `cpu_ratio` is the CPU of a jobmanager per turn, without over with ZooKeeper: it depends less on other
load.

ROUNDS=1 JOBS=50 in the environment makes it short.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

import psutil
from _masters import SLOTS, Follower, one_task, running_masters
from _report import conditions, median, report
from _scale import scaled
from confluent_kafka import Producer

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import client, dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import Header
from tailrace.services.cli.local.cluster import LocalCluster
from tailrace.services.core.role import DISPATCHER
from tailrace.services.log import Codec
from tailrace.services.log.clients import producer_configuration
from tailrace.services.log.topics import submissions_topic

ROUNDS = int(os.environ.get("ROUNDS", scaled(9)))
JOBS = int(os.environ.get("JOBS", scaled(500)))
WARM_UP = scaled(100)
ZOOKEEPER: Mapping[str, str] = {"high-availability.type": "zookeeper"}
KINDS: Mapping[str, tuple[Mapping[str, str], int]] = {
    "none": ({}, 1),
    "zookeeper": (ZOOKEEPER, 1),
    "standby": (ZOOKEEPER, 2),
}
LOOK_S = 0.25
IDLE = 0.25
PATIENCE_S = 10.0


class Turn(NamedTuple):
    """A turn of one cluster: submissions per second, and the seconds of CPU of its masters."""

    rate: float
    cpu: float


class LoadedCluster:
    """A running cluster that gets jobs repeatedly."""

    def __init__(self, cluster: LocalCluster, bootstrap_servers: str) -> None:
        self._cluster = cluster
        self._topic = submissions_topic(cluster.configuration.cluster_id)
        self._codec, self._producer = (
            Codec(self._topic),
            Producer(producer_configuration(KafkaConnection(bootstrap_servers))),
        )
        self._follower = Follower(cluster)
        self._graph = one_task()
        self._turns = 0

    def turn(self, count: int) -> Turn:
        """Submits so many jobs at once, and ends them."""
        self._turns += 1
        jobs = [f"job-{self._turns}-{number}" for number in range(count)]
        before = self._cpu()
        start = time.time()
        last = self._say_all(
            [dispatcher.SubmitJob(job_id=job, job_graph=self._graph) for job in jobs], client.JobAccepted
        )
        cpu = self._cpu() - before
        rate = count / (last.header.time / 1e6 - start)
        self._say_all([dispatcher.CancelJob(job_id=job) for job in jobs], client.JobFinished)
        self._rest()
        return Turn(rate, cpu)

    def close(self) -> None:
        self._follower.close()

    def _say_all(self, bodies: list[Body], answer: type[Body]) -> Record:
        """Returns the last of as many answers."""
        values = []
        for number, body in enumerate(bodies):
            header = Header(
                event_id=f"{self._turns}-{body.AVRO_NAME}-{number}",
                time=time.time_ns() // 1000,
                sender="client/bench",
                sender_epoch=0,
                recipient=DISPATCHER,
            )
            values.append(self._codec.encode(Event(header, body)))
        answers = 0

        def is_last(record: Record) -> bool:
            nonlocal answers
            answers += isinstance(record.body, answer)
            return answers == len(bodies) and isinstance(record.body, answer)

        for value in values:
            self._producer.produce(self._topic, value, key="client/bench")
        self._producer.flush()
        return self._follower.until(is_last, f"{len(bodies)} {answer.__name__}")

    def _cpu(self) -> float:
        times = [psutil.Process(master.record.pid).cpu_times() for master in self._cluster.masters.values()]
        return sum(time_.user + time_.system for time_ in times)

    def _rest(self) -> None:
        """Waits until the masters are idle, so that no turn pays for another one."""
        deadline = time.monotonic() + PATIENCE_S
        idle = 0
        while idle < 6 and time.monotonic() < deadline:
            before = self._cpu()
            time.sleep(LOOK_S)
            idle = idle + 1 if self._cpu() - before < IDLE * LOOK_S * len(self._cluster.masters) else 0


def main() -> None:
    turns: dict[str, list[Turn]] = {name: [] for name in KINDS}
    with EmbeddedKafka() as kafka, ExitStack() as stack:
        clusters: dict[str, LoadedCluster] = {}
        for name, (values, masters) in KINDS.items():
            workers = JOBS // SLOTS + 1
            cluster = stack.enter_context(
                running_masters(kafka.bootstrap_servers, name, masters, values, workers)
            )
            clusters[name] = LoadedCluster(cluster, kafka.bootstrap_servers)
            stack.callback(clusters[name].close)
        for loaded_cluster in clusters.values():
            loaded_cluster.turn(WARM_UP)
        for number in range(ROUNDS):
            for name in sorted(KINDS, reverse=number % 2 == 1):
                turns[name].append(clusters[name].turn(JOBS))
    rates = {name: [turn.rate for turn in results] for name, results in turns.items()}
    cpu = {name: [turn.cpu for turn in results] for name, results in turns.items()}
    ratios = [one / other for one, other in zip(rates["zookeeper"], rates["none"], strict=True)]
    figures = {
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "cpu_ratio": median([one / other for one, other in zip(cpu["none"], cpu["zookeeper"], strict=True)]),
        **{f"{name}_per_s": median(found) for name, found in rates.items()},
        **{f"{name}_job_ms": median(found) / JOBS * 1e3 for name, found in cpu.items()},
    }
    notes = {
        "ratio": "with ZooKeeper over without, median of rounds; aim: at least 0.9",
        "cpu_ratio": "the jobmanager's CPU without over with ZooKeeper",
        "standby_per_s": "with a second jobmanager that folds all of it too",
        "none_job_ms": "CPU of the jobmanager for a submission",
        "standby_job_ms": "of both jobmanagers",
    }
    report("submission_ha", figures, conditions(rounds=ROUNDS, jobs=JOBS), notes)


if __name__ == "__main__":
    main()
