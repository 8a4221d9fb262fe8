"""`make demo-hosts`: three hosts, masters on two, TaskExecutors on two. The host of the leading master is lost."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from hosts.cluster import PROGRAM, HostCluster
from hosts.network import Network
from hosts.test_hosts import NAMES, SETTINGS, expected, leader, status, wait_for_end, wait_for_results
from polling import wait_until

RECORDS = 12_000


def main() -> None:
    """Runs the demo. Needs root."""
    with tempfile.TemporaryDirectory() as directory, Network(Path(directory) / "network", NAMES) as network:
        one, two, three = network.hosts.values()
        print("== Three hosts: Kafka and ZooKeeper on node-1, masters on node-2 and node-3")
        cluster = HostCluster(network, SETTINGS)
        cluster.start_master(two)
        for host in (one, three):
            cluster.start_task_executor(host)
        wait_until(lambda: leader(cluster, one) == two.name, "the lead of node-2")
        cluster.start_master(three)
        wait_until(lambda: "2 of 2 slots free" in status(cluster, one), "two free slots")
        cluster.create_topic(one, "counts")
        run = "run", "-d", str(PROGRAM), "counts", str(RECORDS), "600"
        (accepted,) = cluster.read_json(three, *run)
        wait_for_results(cluster, one)
        print(cluster.tailrace(one, "cluster", "status"))
        print(f"== {two.name} loses its power")
        lost = time.monotonic()
        two.lose_power()
        wait_until(lambda: leader(cluster, one) == three.name, "the next leader")
        print(f"   {three.name} leads after {time.monotonic() - lost:.1f} s")
        wait_for_end(cluster, one, str(accepted["job_id"]), RECORDS)
        print(cluster.tailrace(one, "cluster", "status"))
        print(f"   {expected(RECORDS).total():,} results: exactly those of the records, each once")


if __name__ == "__main__":
    main()
