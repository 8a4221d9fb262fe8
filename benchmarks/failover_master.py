"""From SIGKILL of the leading jobmanager to the next one's first decision, beyond the session timeout.

Three jobmanagers over Kafka and ZooKeeper, with jobs whose tasks run; as soon as the leader is killed another job is
submitted, and that it is accepted is the decision that counts. Times are those of the log. ZooKeeper takes a session
for lost one timeout after it last heard of it, which is before the kill: a figure may be below zero. The peer is Flink
2.3 on this kind of machine with a session of 10 s: RUNNING again 10.7 s after the kill, with every task restarted.

ROUNDS=3 in the environment makes it brief.
"""

from __future__ import annotations

import os
import time

import psutil
from _masters import Follower, one_task, options, running_masters
from _report import conditions, median, percentile, report
from _scale import scaled

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import client, everyone, job_master, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState
from tailrace.services.cli.local.cluster import LocalCluster
from tailrace.services.client import Client
from tailrace.services.core.role import DISPATCHER

ROUNDS = int(os.environ.get("ROUNDS", scaled(30)))
MASTERS = 3
JOBS = 5
SESSION_S = 2.0
VALUES = {
    "high-availability.type": "zookeeper",
    "high-availability.zookeeper.client.session-timeout": f"{SESSION_S:g} s",
}


class Watch:
    """Who leads the Dispatcher, when it last changed, and what was restarted."""

    def __init__(self) -> None:
        self.leader = ""
        self.claimed = 0.0
        self.restarts = 0
        self.running = 0

    def __call__(self, record: Record) -> None:
        match record.body:
            case everyone.LeaderElected(role=role, address=address) if role == DISPATCHER:
                self.leader, self.claimed = address, record.header.time / 1e6
            case task_executor.SubmitTask(attempt_number=number):
                self.restarts += number > 0
            case job_master.UpdateTaskExecutionState(execution_state=ExecutionState.RUNNING):
                self.running += 1
            case _:
                pass


def killed(cluster: LocalCluster, follower: Follower, asking: Client, watch: Watch) -> tuple[float, float]:
    """Seconds from the kill to the next leader's claim, and to its decision."""
    before = watch.leader
    victim = next(each for each in cluster.masters.values() if each.address == before)
    at = time.time()
    psutil.Process(victim.record.pid).kill()
    job_id = asking.submit(one_task())

    def accepted(record: Record) -> bool:
        watch(record)
        return isinstance(record.body, client.JobAccepted) and record.body.job_id == job_id

    decided = follower.until(accepted, "JobAccepted").header.time / 1e6
    return watch.claimed - at, decided - at


def main() -> None:
    watch, rounds = Watch(), []
    with (
        EmbeddedKafka() as kafka,
        running_masters(kafka.bootstrap_servers, "bench", MASTERS, VALUES) as cluster,
    ):
        follower = Follower(cluster, from_start=True)
        with Client(cluster.configuration) as asking:
            for _ in range(JOBS):
                asking.submit(one_task())

            def all_run(record: Record) -> bool:
                watch(record)
                return watch.running == JOBS

            follower.until(all_run, "jobs that run")
            for _ in range(ROUNDS):
                rounds.append(killed(cluster, follower, asking, watch))
                cluster.start(options(MASTERS))
        follower.close()
    claims, decisions = ([1e3 * (each - SESSION_S) for each in times] for times in zip(*rounds, strict=True))
    figures = {
        "p50_ms": median(decisions),
        "p99_ms": percentile(decisions, 99),
        "claim_p50_ms": median(claims),
        "claim_p99_ms": percentile(claims, 99),
        "task_restarts": watch.restarts,
    }
    notes = {
        "p50_ms": "SIGKILL -> a job is accepted by the next leader, beyond the session timeout; aim: below 1,000",
        "claim_p50_ms": "SIGKILL -> LeaderElected, beyond the session timeout",
        "task_restarts": "Flink 2.3: every task",
    }
    report(
        "failover_master",
        figures,
        conditions(rounds=ROUNDS, masters=MASTERS, session_s=SESSION_S, jobs=JOBS),
        notes,
    )


if __name__ == "__main__":
    main()
