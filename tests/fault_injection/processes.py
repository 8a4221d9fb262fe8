"""The processes of a cluster on this machine, as whoever wants to hurt them finds them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping

import psutil

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
    """Jobmanagers, by default one, and TaskExecutors that end with this process, over a Kafka of their own.

    Jobmanagers that are elected have a network of their own each. A context manager.
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
        """Starts whatever does not run, Kafka at its old address; returns when all of it is ready."""
        self._local.start(self._options)
        self._note()

    def close(self) -> None:
        """Ends everything; nothing of it is left."""
        self._note()
        for process in self._stopped.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        try:
            self._local.stop("the torture is over")
        finally:
            self._local.kill()
            self._local.close()
            for each in self._seen:
                if (process := each.process()) is not None:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()

    @property
    def configuration(self) -> Configuration:
        """With the address of its Kafka."""
        return self._local.configuration

    @property
    def bootstrap_servers(self) -> str:
        """Its Kafka's."""
        return self.configuration.bootstrap_servers

    @property
    def kafka(self) -> EmbeddedKafka:
        """Its Kafka."""
        assert self._local.kafka is not None
        return self._local.kafka

    @property
    def taskexecutors(self) -> list[str]:
        """Their resource ids."""
        return sorted(name for name in self._local.processes if not is_master(name))

    @property
    def masters(self) -> Mapping[str, str]:
        """The jobmanagers' names -> how they call themselves in the log."""
        return {name: process.address for name, process in self._local.masters.items()}

    def leader(self) -> str:
        """The jobmanager that claimed the Dispatcher last, by the log; where that is gone, any that is not.

        Kafka has to be there.
        """
        at = {address: name for name, address in self.masters.items()}
        log = open_event_log(self.configuration)
        with contextlib.closing(log), contextlib.closing(log.tail(0, concerns=_is_broadcast)) as tail:
            end, found = log.end(), ""
            while tail.position < end:
                for body in (record.body for record in tail.poll(1.0)):
                    if isinstance(body, LeaderElected) and body.role == DISPATCHER:
                        found = at.get(body.address, "")
        return found or next((name for name in self.masters if self.process(name)), next(iter(self.masters)))

    def network(self, master: str) -> Network:
        """Between a jobmanager that is elected and its servers."""
        return self._local.networks[master]

    def process(self, name: str) -> psutil.Process | None:
        """A jobmanager, a TaskExecutor, `kafka` or `zookeeper`; None where it does not run."""
        server = {"kafka": self.kafka, "zookeeper": self._local.zookeeper.server}.get(name)
        if server is not None:
            return psutil.Process(server.pid) if server.is_running() else None
        return self._local.processes[name].record.process()

    def stream_tasks(self, taskexecutor: str) -> list[psutil.Process]:
        """Those that have an attempt: they are connected to Kafka."""
        return stream_tasks(self._descendants(taskexecutor))

    def spark(self, taskexecutor: str) -> psutil.Process | None:
        """The JVM."""
        return next((each for each in self._descendants(taskexecutor) if _name(each) == "java"), None)

    def kill(self, process: psutil.Process) -> None:
        """SIGKILL; returns when it is dead."""
        self._note()
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
        while self._is_running(process):
            time.sleep(0.005)

    def stop(self, process: psutil.Process) -> None:
        """SIGSTOP."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            self._stopped[process.pid] = process

    def resume(self, process: psutil.Process) -> None:
        """SIGCONT."""
        self._stopped.pop(process.pid, None)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    def _is_running(self, process: psutil.Process) -> bool:
        for each in self._local.processes.values():
            if each.record.pid == process.pid:
                # Its threads end one after the other: it is dead for its parent when it can be waited for.
                return each.is_running()
        for server in (self.kafka, self._local.zookeeper.server):
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
        """Remembers who there is, so that nobody is left in the end."""
        for name in self.taskexecutors:
            for process in self._descendants(name):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._seen.add(ProcessIdentity(process.pid, process.create_time()))


def stream_tasks(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The StreamTasks among them that have an attempt: they are connected to Kafka."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            forked = parent is not None and _is_zygote(parent)
            if forked and process.net_connections(kind="tcp"):
                found.append(process)
    return found


def _is_broadcast(_sender: str, recipient: str) -> bool:
    return recipient == EVERYONE


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def _is_zygote(process: psutil.Process) -> bool:
    command = process.cmdline()
    is_one = any("stream_task.loop.zygote" in each for each in command)
    # A forked child has its zygote's command line: the zygote is the one whose parent has another.
    parent = process.parent()
    return is_one and (
        parent is None or not any("stream_task.loop.zygote" in each for each in parent.cmdline())
    )
