"""A cluster on three hosts that share nothing but Kafka, ZooKeeper and a directory: nothing assumes one machine.

Masters are on two hosts, TaskExecutors on two. Kafka is on the first host, which is never cut off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from polling import wait_until

from .cluster import PROGRAM, HostCluster
from .network import Host, Network
from .program import KEYS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RECORDS = 6_000
RATE = 600.0
SETTINGS = {
    "TAILRACE_HEARTBEAT_TIMEOUT": "4 s",
    "TAILRACE_HEARTBEAT_INTERVAL": "1 s",
    "TAILRACE_RESTART_STRATEGY_TYPE": "fixed-delay",  # a bounded job has none by default
    "TAILRACE_RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS": "100",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HostCluster]:
    with Network(tmp_path / "network", ["node-1", "node-2", "node-3"]) as network:
        cluster = HostCluster(network, SETTINGS)
        for host in network.hosts.values():
            if host.name != "node-3":
                cluster.start_master(host)
            if host.name != "node-1":
                cluster.start_task_executor(host)
        yield cluster


def expected(records: int) -> Counter[str]:
    """Returns the counts of program.py."""
    return Counter(f"k{key} {count}" for key in range(KEYS) for count in range(1, records // KEYS + 1))


def submit(cluster: HostCluster, host: Host) -> str:
    """Submits the program from a host; returns the id of its job, which runs."""
    (accepted,) = cluster.read_json(host, "run", "-d", str(PROGRAM), "counts", str(RECORDS), str(RATE))
    return str(accepted["job_id"])


def job(cluster: HostCluster, host: Host, job_id: str) -> dict[str, Any]:
    """Returns what `list` says of the job on a host."""
    (found,) = (each for each in cluster.read_json(host, "list") if each["job_id"] == job_id)
    return dict(found)


def test_job_survives_loss_of_one_host_and_isolation_of_another(cluster: HostCluster) -> None:
    one, two, three = cluster.network.hosts.values()
    cluster.create_topic(three, "counts")
    job_id = submit(cluster, three)
    wait_until(lambda: len(cluster.read_topic(three, "counts")) > 500, "results")
    two.lose_power()
    two.boot()
    cluster.start_master(two)
    cluster.start_task_executor(two)
    three.cut_off()
    wait_until(lambda: "node-3" not in cluster.tailrace(one, "cluster", "status"), "the loss of node-3")
    three.reconnect()
    wait_until(lambda: job(cluster, one, job_id)["status"] == "FINISHED", "the end of the job")
    assert cluster.read_topic(one, "counts") == expected(RECORDS)
    cluster.tailrace(three, "cluster", "stop")
    assert {*two.wait_for_processes(), *three.wait_for_processes()} == {0}
