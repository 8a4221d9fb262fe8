"""From SIGKILL of the leading jobmanager to the next leader's first decision, beyond the session timeout; and from
SIGTERM.

Three jobmanagers over Kafka and ZooKeeper, with running jobs; as soon as the leader has the signal another job is
submitted, and its acceptance is the decision that counts. Times are those of the log. ZooKeeper expires a session one
timeout after its last message, which is before the kill: a figure may be below zero. The peer is Flink 2.3 on this kind
of machine with a session of 10 s: RUNNING again 10.7 s after the kill, with every task restarted.

ROUNDS=3 in the environment makes it short.
"""

from __future__ import annotations

import os
import signal
import time

import psutil
from _masters import PATIENCE_S, Follower, one_task, options, running_masters
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
    """The leader of the Dispatcher, the time of the last change, and restarted tasks."""

    def __init__(self) -> None:
        self.leader = ""
        self.claimed = 0.0
        self.restarts = 0
        self.running = 0

    def __call__(self, record: Record) -> None:
        match record.body:
            case everyone.LeaderElected(role=role, address=address) if role == DISPATCHER:
                self.leader, self.claimed = address, record.header.time / 1e6
            case task_executor.SubmitTask(subtasks=subtasks):
                self.restarts += sum(subtask.attempt_number > 0 for subtask in subtasks)
            case job_master.UpdateTaskExecutionState(execution_state=ExecutionState.RUNNING):
                self.running += 1
            case _:
                pass


def signalled(
    how: signal.Signals, cluster: LocalCluster, follower: Follower, asking: Client, watch: Watch
) -> tuple[float, float]:
    """Returns the seconds from a signal to the leader until the next leader's claim, and until its decision."""
    before = watch.leader
    victim = next(master for master in cluster.masters.values() if master.address == before)
    at = time.time()
    process = psutil.Process(victim.record.pid)
    process.send_signal(how)
    asked = {asking.submit(one_task())}

    def accepted(record: Record) -> bool:
        watch(record)
        if not isinstance(record.body, client.JobAccepted) or record.body.job_id not in asked:
            return False
        if watch.leader == before:
            # The leader that ends has accepted it.
            asked.add(asking.submit(one_task()))
        return watch.leader != before

    decided = follower.until(accepted, "JobAccepted").header.time / 1e6
    process.wait(PATIENCE_S)
    return watch.claimed - at, decided - at


def main() -> None:
    watch = Watch()
    kills, ends = list[tuple[float, float]](), list[tuple[float, float]]()
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
                for how, times in ((signal.SIGKILL, kills), (signal.SIGTERM, ends)):
                    times.append(signalled(how, cluster, follower, asking, watch))
                    cluster.start(options(MASTERS))
        follower.close()
    claims, decisions = ([1e3 * (time_ - SESSION_S) for time_ in times] for times in zip(*kills, strict=True))
    orderly_claims, orderly_decisions = (
        [1e3 * time_ for time_ in times] for times in zip(*ends, strict=True)
    )
    figures = {
        "p50_ms": median(decisions),
        "p99_ms": percentile(decisions, 99),
        "claim_p50_ms": median(claims),
        "claim_p99_ms": percentile(claims, 99),
        "sigterm_p50_ms": median(orderly_decisions),
        "sigterm_p99_ms": percentile(orderly_decisions, 99),
        "sigterm_claim_p50_ms": median(orderly_claims),
        "sigterm_claim_p99_ms": percentile(orderly_claims, 99),
        "task_restarts": watch.restarts,
    }
    notes = {
        "p50_ms": "SIGKILL -> a job is accepted by the next leader, beyond the session timeout; aim: below 1,000",
        "claim_p50_ms": "SIGKILL -> LeaderElected, beyond the session timeout",
        "sigterm_p50_ms": "SIGTERM -> a job is accepted by the next leader; aim: below 1,000",
        "sigterm_claim_p50_ms": "SIGTERM -> LeaderElected",
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
