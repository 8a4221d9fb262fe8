"""Submissions a second with ZooKeeper over those without it.

One jobmanager, elected by ZooKeeper or by nobody, is given jobs as fast as a client can produce them; the clock runs
from the first request to the last JobAccepted, both as the log has them. Nothing is written to ZooKeeper on the way of
a submission, so the ratio should be one, but for the CPU that latches of jobs take beside it. The peer is Flink 2.3:
its submissions with and without ZooKeeper differ by more than a factor of two.

ROUNDS=1 JOBS=50 in the environment makes it brief.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from _masters import SLOTS, Follower, one_task, running_masters
from _report import conditions, median, report

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Record
from tailrace.services.client import Client

ROUNDS = int(os.environ.get("ROUNDS", "5"))
JOBS = int(os.environ.get("JOBS", "500"))
WITHOUT: Mapping[str, str] = {}
ZOOKEEPER: Mapping[str, str] = {"high-availability.type": "zookeeper"}


def per_s(bootstrap_servers: str, cluster_id: str, values: Mapping[str, str], masters: int) -> float:
    """Submissions a second of a fresh cluster."""
    taskexecutors = JOBS // SLOTS + 1
    with running_masters(bootstrap_servers, cluster_id, masters, values, taskexecutors) as cluster:
        follower, graph = Follower(cluster), one_task()
        first = accepted = 0

        def last(record: Record) -> bool:
            nonlocal first, accepted
            if isinstance(record.body, dispatcher.SubmitJob):
                first = first or record.header.time
            accepted += isinstance(record.body, client.JobAccepted)
            return accepted == JOBS

        with Client(cluster.configuration) as asking:
            for number in range(JOBS):
                asking.submit(graph, job_id=f"job-{number}")
            took = (follower.until(last, "acceptance of all jobs").header.time - first) / 1e6
        follower.close()
        return JOBS / took


def main() -> None:
    rates: dict[str, list[float]] = {"none": [], "zookeeper": [], "standby": []}
    kinds = {"none": (WITHOUT, 1), "zookeeper": (ZOOKEEPER, 1), "standby": (ZOOKEEPER, 2)}
    with EmbeddedKafka() as kafka:
        for number in range(ROUNDS):
            for name, (values, masters) in kinds.items():
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
