"""A whole control plane without tasks: real roles on real hosts over a real Kafka log; only shells are simulated.

The jobmanager's roles run in one process, any number of TaskExecutors in another, as on different machines: all
messages between them pass through the log. Channels exist at once, and a task is RUNNING as soon as it is submitted;
everything else is real. `_processes` has the code of the two processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from _members import Member
from _simulated import SLOTS
from confluent_kafka.admin import AdminClient

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.services.log.clients import client_configuration
from tailrace.services.log.topics import ensure_cluster_topics

_PROCESSES = Path(__file__).with_name("_processes.py")


class Deployment:
    """A jobmanager and `task_executors` TaskExecutors of `slots` slots each, all of them registered.

    With `heartbeats`, they send heartbeats at the default interval, with the default timeout.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        cluster: str,
        task_executors: int,
        slots: int = SLOTS,
        *,
        heartbeats: bool = False,
    ) -> None:
        ensure_cluster_topics(AdminClient(client_configuration(KafkaConnection(bootstrap_servers))), cluster)
        self._members = ExitStack()
        with ExitStack() as starting:
            self.master = Member(_PROCESSES, "master", bootstrap_servers, cluster, heartbeats)
            starting.callback(self.master.close)
            self.workers = Member(
                _PROCESSES, "task_executors", bootstrap_servers, cluster, heartbeats, task_executors, slots
            )
            starting.callback(self.workers.close)
            self.master.receive()
            self.workers.receive()
            self.master.ask(wait="registered", count=task_executors)
            self._members = starting.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._members.close()

    def run(
        self, parallelism: int, *, shared: bool, configuration: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Submits a job of two vertices, with its own settings; returns when all its subtasks are RUNNING.

        `running_s` from SubmitJob; `slots_s` from the first RequestSlot to the last of `offered` slots; `events` sent;
        `master_mib` resident; seconds of CPU of each process.
        """
        before = self.master.cpu_s(), self.workers.cpu_s()
        result = self.master.ask(submit=parallelism, shared=shared, configuration=dict(configuration or {}))
        result["master_cpu_s"] = self.master.cpu_s() - before[0]
        result["workers_cpu_s"] = self.workers.cpu_s() - before[1]
        return result
