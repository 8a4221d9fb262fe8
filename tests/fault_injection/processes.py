"""The processes of a cluster on this machine, for fault injection."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping

import psutil
from msgspec.structs import replace
from process_status import command_line, process_name

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.processes import ProcessIdentity
from tailrace.schemas.event import EVERYONE
from tailrace.schemas.everyone import LeaderElected
from tailrace.services.cli.local.cluster import LocalClusterOptions
from tailrace.services.cli.local.process_names import is_master
from tailrace.services.configuration import Configuration
from tailrace.services.core.role import DISPATCHER
from tailrace.services.log.factory import open_event_log

from ..high_availability.network_links import Network
from .networked_cluster import NetworkedCluster


class FaultInjectionCluster:
    """Starts jobmanagers (one by default) and TaskExecutors over a Kafka of their own; they end with this process.

    Each elected jobmanager has a network of its own. A context manager.
    """

    def __init__(self, values: Mapping[str, str], taskexecutors: int = 2, masters: int | None = None) -> None:
        self._local = NetworkedCluster(Configuration({**values, "cluster.id": "torture"}))
        self._options = LocalClusterOptions(taskexecutors=taskexecutors, detached=False, masters=masters)
        self._stopped: dict[int, psutil.Process] = {}
        self._seen: set[ProcessIdentity] = set()

    def __enter__(self) -> FaultInjectionCluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts every process that does not run, Kafka at its old address; returns when all of them are ready."""
        self._local.start(self._options)
        self._note()

    def add_taskexecutor(self) -> None:
        """Starts one more TaskExecutor; returns when it is ready."""
        self._options = replace(self._options, taskexecutors=len(self.taskexecutors) + 1)
        self.start()

    def close(self) -> None:
        """Ends all processes."""
        self._note()
        if not self.kafka.is_running():
            log = self.kafka.log_path.read_text("utf-8", "replace").splitlines()
            print("Kafka does not run any more; its log ends with", *log[-40:], sep="\n", flush=True)
        for process in self._stopped.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        try:
            self._local.stop("the torture is over")
        finally:
            self._local.kill()
            self._local.close()
            for identity in self._seen:
                if (process := identity.process()) is not None:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()

    @property
    def configuration(self) -> Configuration:
        """Returns the configuration with the address of its Kafka."""
        return self._local.configuration

    @property
    def bootstrap_servers(self) -> str:
        """Returns the bootstrap servers of its Kafka."""
        return self.configuration.bootstrap_servers

    @property
    def kafka(self) -> EmbeddedKafka:
        """Returns the embedded Kafka."""
        assert self._local.servers.kafka is not None
        return self._local.servers.kafka

    @property
    def taskexecutors(self) -> list[str]:
        """Returns the resource ids of the TaskExecutors."""
        return sorted(name for name in self._local.processes if not is_master(name))

    @property
    def masters(self) -> Mapping[str, str]:
        """Returns the address in the log of each jobmanager, by its name."""
        return {name: process.address for name, process in self._local.masters.items()}

    def leader(self) -> str:
        """Returns the jobmanager that has claimed the Dispatcher last according to the log, or any other if that one
        is gone.

        Needs a running Kafka.
        """
        at = {address: name for name, address in self.masters.items()}
        log = open_event_log(self.configuration)
        with contextlib.closing(log), contextlib.closing(log.tail(0, concerns=_is_broadcast)) as tail:
            end, result = log.end(), ""
            while tail.position < end:
                for body in (record.body for record in tail.poll(1.0)):
                    if isinstance(body, LeaderElected) and body.role == DISPATCHER:
                        result = at.get(body.address, "")
        return result or next((name for name in self.masters if self.process(name)), next(iter(self.masters)))

    def network(self, master: str) -> Network:
        """Returns the network between an elected jobmanager and its servers."""
        return self._local.networks[master]

    def process(self, name: str) -> psutil.Process | None:
        """Returns a jobmanager, a TaskExecutor, `kafka` or `zookeeper`; None if it does not run."""
        server = {"kafka": self.kafka, "zookeeper": self._local.servers.zookeeper.server}.get(name)
        if server is not None:
            return psutil.Process(server.pid) if server.is_running() else None
        return self._local.processes[name].record.process()

    def stream_tasks(self, taskexecutor: str) -> list[psutil.Process]:
        """Returns the StreamTasks that run an attempt: those that are connected to Kafka."""
        return stream_tasks(self._descendants(taskexecutor))

    def spark(self, taskexecutor: str) -> psutil.Process | None:
        """Returns the JVM of a TaskExecutor."""
        return next(
            (
                descendant
                for descendant in self._descendants(taskexecutor)
                if process_name(descendant) == "java"
            ),
            None,
        )

    def kill(self, process: psutil.Process) -> None:
        """Sends SIGKILL and waits until the process is dead."""
        self._note()
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
        while self._is_running(process):
            time.sleep(0.005)

    def stop(self, process: psutil.Process) -> None:
        """Sends SIGSTOP."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            self._stopped[process.pid] = process

    def resume(self, process: psutil.Process) -> None:
        """Sends SIGCONT."""
        self._stopped.pop(process.pid, None)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    def _is_running(self, process: psutil.Process) -> bool:
        for local_process in self._local.processes.values():
            if local_process.record.pid == process.pid:
                # Its threads end one after the other: it is dead for its parent when it can be waited for.
                return local_process.is_running()
        for server in (self.kafka, self._local.servers.zookeeper.server):
            if server is not None and server.is_running() and process.pid == server.pid:
                return True
        with contextlib.suppress(psutil.NoSuchProcess):
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    def _descendants(self, taskexecutor: str) -> list[psutil.Process]:
        process = self.process(taskexecutor)
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                return process.children(recursive=True)
        return []

    def _note(self) -> None:
        """Records the present processes, so that `close` ends all of them."""
        for name in self.taskexecutors:
            for process in self._descendants(name):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._seen.add(ProcessIdentity(process.pid, process.create_time()))


def stream_tasks(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Returns the StreamTasks that run an attempt: those that are connected to Kafka."""
    results = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            forked = parent is not None and _is_zygote(parent)
            if forked and process.net_connections(kind="tcp"):
                results.append(process)
    return results


def _is_broadcast(_sender: str, recipient: str) -> bool:
    return recipient == EVERYONE


def _is_zygote(process: psutil.Process) -> bool:
    command = command_line(process)
    is_one = any("stream_task.loop.zygote" in item for item in command)
    # A forked child has its zygote's command line: the zygote is the one whose parent has another.
    parent = process.parent()
    return is_one and (
        parent is None or not any("stream_task.loop.zygote" in element for element in command_line(parent))
    )
