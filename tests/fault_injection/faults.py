"""Injects faults into a cluster: SIGKILL, or SIGSTOP past the timeouts and SIGCONT, of any process, and a network
partition of the elected leader.

Each fault is healed: a killed process is started again under its name, a stopped one continues, a cut link passes data
again. A killed TaskExecutor or jobmanager may stay away until the next fault.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import psutil

from .processes import FaultInjectionCluster

Target = Literal["taskexecutor", "leader", "StreamTask", "Spark", "kafka", "zookeeper"]
FaultKind = Literal["killed", "stopped", "cut off from Kafka", "cut off from ZooKeeper"]
HEARTBEAT_TIMEOUT_S: Final = 5.0
SESSION_S: Final = 3.0
"""How long ZooKeeper waits for a jobmanager."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault. `late`: it is healed only when the next fault comes."""

    target: Target
    how: FaultKind
    late: bool = False

    def __str__(self) -> str:
        return f"{self.target} {self.how}{', healed late' if self.late else ''}"


ALL: Final = (
    Fault("taskexecutor", "killed"),
    Fault("taskexecutor", "killed", late=True),
    Fault("taskexecutor", "stopped"),
    Fault("leader", "killed"),
    Fault("leader", "stopped"),
    Fault("StreamTask", "killed"),
    Fault("StreamTask", "stopped"),
    Fault("Spark", "killed"),
    Fault("Spark", "stopped"),
    Fault("kafka", "killed"),
    Fault("kafka", "stopped"),
)
WITH_ELECTIONS: Final = (
    *ALL,
    Fault("leader", "killed", late=True),
    Fault("leader", "cut off from Kafka"),
    Fault("leader", "cut off from ZooKeeper"),
    Fault("zookeeper", "killed"),
    Fault("zookeeper", "stopped"),
)


class Injector:
    """Injects random faults, drawn from the given generator."""

    def __init__(self, cluster: FaultInjectionCluster, draw: random.Random) -> None:
        self._cluster = cluster
        self._draw = draw

    def inject(self, fault: Fault) -> str:
        """Injects a fault, waits, heals it, and returns a description. Does nothing if the process does not exist
        now."""
        self.heal()
        name, victim = self._victim(fault.target)
        if victim is None:
            return f"no {fault.target} to be {fault.how}"
        began = time.monotonic()
        match fault.how:
            case "killed":
                self._cluster.kill(victim)
                # How long nobody is there: the moment of the next event is random too.
                time.sleep(self._draw.uniform(0, 2))
                if not fault.late:
                    self.heal()
            case "stopped":
                self._cluster.stop(victim)
                self._outlast(HEARTBEAT_TIMEOUT_S)
                self._cluster.resume(victim)
            case "cut off from Kafka":
                self._cluster.network(name).kafka.cut()
                self._outlast(HEARTBEAT_TIMEOUT_S)
                self._cluster.network(name).heal()
            case "cut off from ZooKeeper":
                self._cluster.network(name).cut_zookeeper()
                self._outlast(SESSION_S)
                self._cluster.network(name).heal()
        return f"{name} (pid {victim.pid}) {fault.how}, {time.monotonic() - began:.1f} s"

    def heal(self) -> None:
        """Starts every process that is still missing."""
        self._cluster.start()

    def _outlast(self, timeout_s: float) -> None:
        time.sleep(self._draw.uniform(1.1, 1.8) * timeout_s)

    def _victim(self, target: Target) -> tuple[str, psutil.Process | None]:
        cluster = self._cluster
        match target:
            case "kafka" | "zookeeper":
                return target, cluster.process(target)
            case "leader":
                name = cluster.leader()
                return name, cluster.process(name)
            case "taskexecutor":
                name = self._draw.choice(cluster.taskexecutors)
                return name, cluster.process(name)
            case "StreamTask":
                processes = [task for name in cluster.taskexecutors for task in cluster.stream_tasks(name)]
                return target, self._draw.choice(processes) if processes else None
            case "Spark":
                name = self._draw.choice(cluster.taskexecutors)
                return f"{name}'s Spark", cluster.spark(name)


def sequence(draw: random.Random, count: int, kinds: Sequence[Fault]) -> list[Fault]:
    """Returns a random order in which all kinds are equally frequent, to within one."""
    faults: list[Fault] = []
    while len(faults) < count:
        faults += draw.sample(kinds, len(kinds))
    return faults[:count]
