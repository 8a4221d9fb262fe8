"""A cluster on three hosts that share nothing but Kafka, ZooKeeper and a directory: nothing assumes one machine.

Kafka is on the first host, which is never cut off.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from polling import wait_until

from .cluster import PROGRAM, HostCluster
from .network import Host, Network
from .program import KEYS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

NAMES = ("node-1", "node-2", "node-3")
HOUR_S = 3_600
RATE = 600.0
SETTINGS = {
    "TAILRACE_HEARTBEAT_TIMEOUT": "4 s",
    "TAILRACE_HEARTBEAT_INTERVAL": "1 s",
    "TAILRACE_RESTART_STRATEGY_TYPE": "fixed-delay",  # a bounded job has none by default
    "TAILRACE_RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS": "100",
}


def start_cluster(network: Network, masters: Sequence[str], task_executors: Sequence[str]) -> HostCluster:
    """Starts a cluster with the processes of these hosts. Two slots are enough for the job."""
    cluster = HostCluster(network, SETTINGS)
    for name in masters:
        cluster.start_master(network.hosts[name])
    for name in task_executors:
        cluster.start_task_executor(network.hosts[name], slots=2 // len(task_executors))
    return cluster


def expected(records: int) -> Counter[str]:
    """Returns the counts of program.py."""
    return Counter(f"k{key} {count}" for key in range(KEYS) for count in range(1, records // KEYS + 1))


def submit(cluster: HostCluster, host: Host, records: int) -> str:
    """Submits the program from a host, when the slots are there; returns the id of its job."""
    wait_until(lambda: "2 of 2 slots free" in status(cluster, host), "two free slots")
    cluster.create_topic(host, "counts")
    (accepted,) = cluster.read_json(host, "run", "-d", str(PROGRAM), "counts", str(records), str(RATE))
    return str(accepted["job_id"])


def wait_for_results(cluster: HostCluster, host: Host) -> None:
    """Waits until the job has written some."""
    wait_until(lambda: len(cluster.read_topic(host, "counts")) > 500, "results")


def wait_for_end(cluster: HostCluster, host: Host, job_id: str, records: int) -> None:
    """Waits until the job has finished, and checks its results."""
    wait_until(lambda: job(cluster, host, job_id)["status"] == "FINISHED", "the end of the job")
    assert cluster.read_topic(host, "counts") == expected(records)


def status(cluster: HostCluster, host: Host) -> str:
    """Returns what `cluster status` prints; empty if no master has created the topics yet."""
    try:
        return cluster.tailrace(host, "cluster", "status")
    except AssertionError:
        return ""


def job(cluster: HostCluster, host: Host, job_id: str) -> dict[str, Any]:
    """Returns what `list` says of the job on a host."""
    (found,) = (each for each in cluster.read_json(host, "list") if each["job_id"] == job_id)
    return dict(found)


def leader(cluster: HostCluster, host: Host) -> str:
    """Returns the name of the host whose master leads; empty if none has led yet."""
    try:
        claims = cluster.read_json(host, "log", "--type", "LeaderElected")
    except AssertionError:
        # No master has created the topics yet.
        return ""
    bodies = [each["body"] for each in claims if not each["ignored"]]
    names = [each["address"].partition(":")[0] for each in bodies if each["role"] == "dispatcher"]
    return names[-1] if names else ""


def types(cluster: HostCluster, host: Host) -> set[str]:
    """Returns the types of all events."""
    return {each["type"].rpartition(".")[2] for each in cluster.read_json(host, "log")}


def test_job_is_exact_and_events_have_one_time_if_clocks_of_hosts_differ_by_hours(tmp_path: Path) -> None:
    clocks = {"node-2": 3 * HOUR_S, "node-3": -2 * HOUR_S}
    with Network(tmp_path / "network", NAMES, clocks=clocks) as network:
        one, two, three = network.hosts.values()
        began = time.time()
        cluster = start_cluster(network, ["node-2"], ["node-3"])
        job_id = submit(cluster, two, 1_200)
        wait_for_end(cluster, three, job_id, 1_200)
        times = [each["header"]["time"] / 1e6 for each in cluster.read_json(one, "log")]
        assert began - 1 < min(times) <= max(times) < time.time() + 1
        cluster.tailrace(three, "cluster", "stop")
        assert {*two.wait_for_processes(), *three.wait_for_processes()} == {0}


@pytest.mark.soak
def test_job_survives_loss_of_one_host_and_isolation_of_another(tmp_path: Path) -> None:
    with Network(tmp_path / "network", NAMES) as network:
        one, two, three = network.hosts.values()
        cluster = start_cluster(network, ["node-1", "node-2"], ["node-2", "node-3"])
        job_id = submit(cluster, three, 6_000)
        wait_for_results(cluster, three)
        two.lose_power()
        two.boot()
        cluster.start_master(two)
        cluster.start_task_executor(two)
        three.cut_off()
        wait_until(lambda: "node-3" not in cluster.tailrace(one, "cluster", "status"), "the loss of node-3")
        three.reconnect()
        wait_for_end(cluster, one, job_id, 6_000)
        cluster.tailrace(three, "cluster", "stop")
        assert {*two.wait_for_processes(), *three.wait_for_processes()} == {0}


@pytest.mark.soak
def test_no_task_restarts_if_host_of_leading_master_is_lost_and_host_joins_after_reboot(
    tmp_path: Path,
) -> None:
    with Network(tmp_path / "network", NAMES) as network:
        one, two, three = network.hosts.values()
        cluster = start_cluster(network, ["node-2"], ["node-1", "node-3"])
        wait_until(lambda: leader(cluster, one) == "node-2", "the lead of node-2")
        cluster.start_master(three)
        job_id = submit(cluster, three, 12_000)
        wait_for_results(cluster, three)
        lost = time.monotonic()
        two.lose_power()
        wait_until(lambda: leader(cluster, one) == "node-3", "the lead of node-3")
        print(f"the next leader took {time.monotonic() - lost:.1f} s")
        two.boot()
        cluster.start_master(two)
        cluster.start_task_executor(two)
        wait_until(lambda: "node-2" in cluster.tailrace(one, "cluster", "status"), "the return of node-2")
        wait_for_end(cluster, one, job_id, 12_000)
        assert not types(cluster, one) & {"RestartScheduled", "TaskExecutorLost"}
        # The master that was lost, started again, can lead.
        three.lose_power()
        wait_until(lambda: leader(cluster, one) == "node-2", "the lead of node-2")


@pytest.mark.soak
def test_job_is_exact_over_slow_and_lossy_cable_and_after_one_that_loses_all(tmp_path: Path) -> None:
    with Network(tmp_path / "network", NAMES, slow=["node-3"]) as network:
        one, _, three = network.hosts.values()
        cluster = start_cluster(network, ["node-1"], [])
        three.set_cable(150, 0.01)
        cluster.start_task_executor(three, slots=2)
        log = three.directory / "taskexecutor.log"
        wait_until(lambda: "Kafka answers slowly" in log.read_text(), "a warning of node-3")
        job_id = submit(cluster, one, 9_000)
        wait_for_results(cluster, one)
        assert "TaskExecutorLost" not in types(cluster, one)
        # Both ends believe in their connections.
        three.set_cable(150, 1.0)
        wait_until(lambda: "TaskExecutorLost" in types(cluster, one), "the loss of node-3")
        three.set_cable(150, 0.0)
        wait_for_end(cluster, one, job_id, 9_000)
