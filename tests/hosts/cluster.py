"""A cluster on several hosts: Kafka and ZooKeeper run on the first, masters and TaskExecutors where the test says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from polling import wait_until

from tailrace.infra.interpreter import module_command

from .network import Host, Network

PROGRAM: Final = Path(__file__).with_name("program.py")
_TESTS: Final = Path(__file__).parents[1]
_IMPORTS: Final = {"PYTHONPATH": str(_TESTS)}


class HostCluster:
    """The processes of a cluster. They end with their hosts."""

    def __init__(self, network: Network, settings: dict[str, str] | None = None) -> None:
        self.network = network
        servers = next(iter(network.hosts.values()))
        addresses = network.shared / "addresses"
        serve = _module("servers", servers.name, str(servers.directory), str(addresses))
        servers.start("servers.log", *serve, values=_IMPORTS)
        wait_until(addresses.exists, f"Kafka and ZooKeeper answer on {servers.name}")
        self.kafka, zookeeper = addresses.read_text().split()
        self._values = {
            "TAILRACE_BOOTSTRAP_SERVERS": self.kafka,
            "TAILRACE_HIGH_AVAILABILITY_TYPE": "zookeeper",
            "TAILRACE_HIGH_AVAILABILITY_ZOOKEEPER_QUORUM": zookeeper,
            "TAILRACE_HIGH_AVAILABILITY_STORAGEDIR": str(network.shared / "high-availability"),
            "TAILRACE_STATE_CHECKPOINTS_DIR": str(network.shared / "checkpoints"),
            "TAILRACE_EXECUTION_CHECKPOINTING_INTERVAL": "1 s",
            **(settings or {}),
        }

    def values(self, host: Host) -> dict[str, str]:
        """The environment of a host's commands. Servers listen where other hosts can reach them."""
        return self._values | {
            "TAILRACE_BLOB_SERVER_HOST": host.name,
            "TAILRACE_LOG_RELAY_HOST": host.name,
        }

    def read_log(self, host: Host) -> list[Any]:
        """Returns all events."""
        return self.read_json(host, "log")

    def start_master(self, host: Host) -> None:
        """Starts a jobmanager on a host."""
        host.start("jobmanager.log", *_tailrace("jobmanager"), values=self.values(host))

    def start_task_executor(self, host: Host, slots: int = 1) -> None:
        """Starts a TaskExecutor, whose resource id is the name of its host."""
        arguments = "taskexecutor", "--resource-id", host.name, "--slots", str(slots)
        host.start("taskexecutor.log", *_tailrace(*arguments), values=self.values(host))

    def tailrace(self, host: Host, *arguments: str) -> str:
        """Runs a command of the command line on a host; returns its output."""
        return host.run(*_tailrace(*arguments), values=self.values(host))

    def read_json(self, host: Host, command: str, *arguments: str) -> list[Any]:
        """Runs a command with `-o json`; returns what its lines say."""
        return [
            json.loads(line) for line in self.tailrace(host, command, "-o", "json", *arguments).splitlines()
        ]

    def create_topic(self, host: Host, name: str) -> None:
        """Creates a topic of two partitions."""
        host.run(*_module("topics", "create", self.kafka, name), values=_IMPORTS)

    def read_topic(self, host: Host, name: str) -> Counter[str]:
        """Returns the committed messages of a topic."""
        return Counter(json.loads(host.run(*_module("topics", "read", self.kafka, name), values=_IMPORTS)))


def _module(name: str, *arguments: str) -> list[str]:
    return module_command(f"hosts.{name}", *arguments)


def _tailrace(*arguments: str) -> list[str]:
    return module_command("tailrace.services.cli", *arguments)
