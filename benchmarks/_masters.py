"""Jobmanagers over a ZooKeeper of their own, or one without, and TaskExecutors whose tasks only run (`_simulated`)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import _processes
from _members import Member

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.schemas.event import Record
from tailrace.schemas.types import JobGraph
from tailrace.services.cli.local.cluster import LocalCluster, LocalClusterOptions
from tailrace.services.configuration import Configuration
from tailrace.services.log import Tail
from tailrace.services.log.factory import open_event_log

PATIENCE_S = 120.0
SLOTS = 100


@contextmanager
def running_masters(
    bootstrap_servers: str,
    cluster_id: str,
    masters: int,
    values: Mapping[str, str],
    taskexecutors: int = 1,
) -> Iterator[LocalCluster]:
    """Yields jobmanagers with the configuration `values`, and TaskExecutors of SLOTS slots in one process; stops all
    at the end."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as home:
        own = {"home": home, "cluster.id": cluster_id, "bootstrap.servers": bootstrap_servers}
        cluster = LocalCluster(Configuration({**own, **values}))
        workers = None
        try:
            cluster.start(options(masters))
            program = Path(_processes.__file__)
            arguments = (bootstrap_servers, cluster_id, True, taskexecutors, SLOTS)
            workers = Member(program, "task_executors", *arguments)
            workers.receive()
            yield cluster
        finally:
            if workers is not None:
                workers.close()
            cluster.kill()


def options(masters: int) -> LocalClusterOptions:
    """Returns the options of a cluster with so many jobmanagers and without TaskExecutors."""
    return LocalClusterOptions(taskexecutors=0, detached=False, masters=masters)


def one_task() -> JobGraph:
    """Returns a job of one vertex, so without channels, whose task runs until the job is cancelled."""
    environment = StreamExecutionEnvironment()
    environment.set_parallelism(1)
    environment.generate(str, rate_per_second=1).print()
    return environment.get_job_graph("one task")


class Follower:
    """Follows the log, from its present end or its start on."""

    def __init__(self, cluster: LocalCluster, *, from_start: bool = False) -> None:
        self._log = open_event_log(cluster.configuration)
        self._tail: Tail = self._log.tail(0 if from_start else self._log.end())

    def until(self, done: Callable[[Record], bool], what: str) -> Record:
        """Returns the next event that fulfils the condition. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        result: Record | None = None
        while result is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} after {PATIENCE_S:.0f} s")
            for record in self._tail.poll(0.1):
                # All that was read is looked at: it will not come again.
                if done(record) and result is None:
                    result = record
        return result

    def close(self) -> None:
        """Closes the connections."""
        self._tail.close()
        self._log.close()
