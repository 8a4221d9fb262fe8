"""Starting and stopping a cluster on this machine.

Everything starts at once: TaskExecutors and jobmanager keep trying until Kafka is there, so that Spark's JVMs come up
beside the broker's. That the cluster is ready is read from its log, where each process says what it is and who it is
(host:pid). Stopping is a request like any other: the processes leave by themselves, in the order of document 000.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ....infra.kafka import EmbeddedKafka, KafkaUnavailable
from ...configuration import Configuration
from ...configuration.options import (
    BOOTSTRAP_SERVERS,
    CLUSTER_ID,
    HOME,
    RESOURCE_MANAGER_MODE,
    ResourceManagerMode,
)
from ...resource_manager.drivers.local_process import worker_records
from ..errors import ExitCode, Failure
from .ending import end_by_force, end_in_order, end_soon
from .kafka_start import KafkaStart
from .process import JOBMANAGER, LocalProcess, Progress
from .readiness import Readiness
from .record import ClusterRecord, ProcessRecord, locked, read_record, remove_record, write_record

TASKEXECUTORS = 2
"""How many are started where it is not said."""


class Options(msgspec.Struct, frozen=True):
    """What is to run. `detached`: the processes outlive this one; else they end with it, however it ends.

    `taskexecutors`: how many are started here; None: two, or none where the ResourceManager starts them (active mode).
    """

    taskexecutors: int | None = None
    detached: bool = True


def taskexecutors(count: int, known: Iterable[str]) -> list[str]:
    """The names of the TaskExecutors that are to run: the first `count`, and all others that were started ever."""
    first = [f"taskexecutor-{number + 1}" for number in range(count)]
    return list(dict.fromkeys([*first, *(name for name in known if name != JOBMANAGER)]))


class LocalCluster:
    """The cluster of a home, `configuration.home`; its Kafka is the embedded one unless an address is configured."""

    def __init__(self, configuration: Configuration, *, progress: Progress = lambda _: None) -> None:
        self.home = configuration.home.absolute()
        self._given = configuration
        self._progress = progress
        self._kafka: EmbeddedKafka | None = None
        self._starting: KafkaStart | None = None
        self._processes: dict[str, LocalProcess] = {}
        self._bootstrap_servers = configuration.bootstrap_servers
        self._embedded = not configuration.bootstrap_servers

    @property
    def configuration(self) -> Configuration:
        """With the address of the Kafka that runs."""
        return self._given.replace({"bootstrap.servers": self._bootstrap_servers})

    @property
    def processes(self) -> Mapping[str, LocalProcess]:
        """By name: jobmanager, and TaskExecutors by their resource ids."""
        return self._processes

    @property
    def workers(self) -> Mapping[str, LocalProcess]:
        """The TaskExecutors that run and were started by the jobmanager (active mode), by their resource ids."""
        return {
            each.resource_id: LocalProcess(
                ProcessRecord(pid=each.pid, created=each.created, name=each.resource_id, log=each.log)
            )
            for each in worker_records(self.home, self._given.cluster_id)
        }

    @property
    def kafka_dir(self) -> Path:
        """Where the embedded Kafka keeps its data: the log, and with it everything."""
        return self.home / "kafka"

    @property
    def embedded(self) -> bool:
        """Whether Kafka is one of the cluster's own processes."""
        return self._embedded

    @property
    def kafka(self) -> EmbeddedKafka | None:
        """The embedded Kafka, where there is one and it runs, or ran when this object was made."""
        return self._kafka

    @classmethod
    def of(cls, configuration: Configuration, *, progress: Progress = lambda _: None) -> LocalCluster | None:
        """The cluster that cluster.json in the home tells of; None where there is none."""
        record = read_record(configuration.home)
        if record is None:
            return None
        cluster = cls(
            configuration.replace({"cluster.id": record.cluster_id}),
            progress=progress,
        )
        cluster._take_over(record)
        return cluster

    def is_complete(self) -> bool:
        """Whether Kafka, the jobmanager and every TaskExecutor that was started run."""
        kafka = self._kafka is not None and self._kafka.is_running()
        return (
            (kafka or not self._embedded)
            and JOBMANAGER in self._processes
            and all(process.is_running() for process in self._processes.values())
        )

    def start(self, options: Options) -> bool:
        """Starts what does not run; returns when it is all ready. False: all of it ran already.

        Raises Failure, KafkaUnavailable and what else the start of Kafka raises; then, and on any other exception,
        what this call started has been ended again.
        """
        with locked(self.home):
            record = read_record(self.home)
            if record is not None:
                self._check_same(record)
                recorded = {**record.configuration, **_of_command_line(self._given)}
                self._given = self._given.replace(recorded, "-D")
                self._take_over(record)
            wanted = taskexecutors(self._count(options), self._processes)
            if self.is_complete() and all(name in self._processes for name in wanted):
                return False
            started: list[str] = []
            fresh_kafka = self._embedded and (self._kafka is None or not self._kafka.is_running())
            try:
                self._start(options, wanted, started, fresh_kafka)
            except BaseException:
                self._undo(started, fresh_kafka)
                raise
        return True

    def stop(self, reason: str = "asked for on the command line", *, suspend: bool = False) -> None:
        """Ends the cluster in order, and by force what does not end; then Kafka, where it is the embedded one.

        With `suspend` jobs are not cancelled: they go on when the cluster is started again.
        """
        with locked(self.home):
            self._end_in_order(reason, suspend=suspend)
            end_by_force(self._running, self._progress)
            self._stop_kafka()
            shutil.rmtree(self.home / "scratch", ignore_errors=True)
            remove_record(self.home)

    def stop_processes(self, reason: str) -> None:
        """Ends the cluster in order but leaves Kafka, so that the log can still be read."""
        with locked(self.home):
            self._end_in_order(reason)
            end_by_force(self._running, self._progress)

    def kill(self) -> None:
        """Ends everything without a word to the cluster: SIGTERM, soon after SIGKILL; for the quick ways out."""
        end_soon(self._processes.values())
        # After the jobmanager, which would start others.
        end_soon(self.workers.values())
        if self._kafka is not None:
            self._kafka.kill()
        remove_record(self.home)

    def _count(self, options: Options) -> int:
        if options.taskexecutors is not None:
            return options.taskexecutors
        return 0 if self._given.get(RESOURCE_MANAGER_MODE) is ResourceManagerMode.ACTIVE else TASKEXECUTORS

    def _check_same(self, record: ClusterRecord) -> None:
        if record.cluster_id != self._given.cluster_id:
            raise Failure(
                ExitCode.USAGE,
                f"the cluster of {self.home} is called {record.cluster_id}: stop it first, or give "
                f"another --home for {self._given.cluster_id}",
            )
        if not self._embedded and record.bootstrap_servers != self._given.bootstrap_servers:
            raise Failure(
                ExitCode.USAGE,
                f"the cluster of {self.home} uses Kafka at {record.bootstrap_servers}: stop it first, or give "
                "another --home",
            )

    def _take_over(self, record: ClusterRecord) -> None:
        for each in record.processes:
            self._processes.setdefault(each.name, LocalProcess(each))
        self._bootstrap_servers = self._bootstrap_servers or record.bootstrap_servers
        self._embedded = record.embedded_kafka
        if self._embedded and self._kafka is None:
            try:
                self._kafka = EmbeddedKafka.attach(self.kafka_dir)
                self._bootstrap_servers = self._kafka.bootstrap_servers
            except KafkaUnavailable:
                self._kafka = None

    def _start(self, options: Options, wanted: list[str], started: list[str], fresh_kafka: bool) -> None:
        begun = time.monotonic()
        self.home.mkdir(parents=True, exist_ok=True)
        broker = KafkaStart(self.kafka_dir, detached=options.detached) if fresh_kafka else None
        self._starting = broker
        if broker is not None:
            self._kafka = broker.kafka
            self._bootstrap_servers = broker.address()
        for name in [*wanted, JOBMANAGER]:
            process = self._processes.get(name)
            if process is None or not process.is_running():
                started.append(name)
                self._processes[name] = self._spawn(name, detached=options.detached)
        self._write_record()
        if broker is not None:
            broker.join()
            if broker.kafka.bootstrap_servers != self._bootstrap_servers:
                self._move_to(broker.kafka.bootstrap_servers, started, detached=options.detached)
            self._progress(f"Kafka answers at {self._bootstrap_servers} ({time.monotonic() - begun:.1f} s)")
        fresh = [self._processes[name] for name in started]
        Readiness(self.configuration, fresh, begun, self._progress).wait()

    def _spawn(self, name: str, *, detached: bool) -> LocalProcess:
        arguments = [JOBMANAGER] if name == JOBMANAGER else ["taskexecutor", "--resource-id", name]
        return LocalProcess.start(
            name,
            arguments,
            log=self.home / "log" / f"{name}.log",
            environment=_environment(self.configuration.replace({"home": str(self.home)})),
            detached=detached,
        )

    def _move_to(self, bootstrap_servers: str, started: list[str], *, detached: bool) -> None:
        """Another process took Kafka's port before it could: what was told the first address starts again."""
        self._bootstrap_servers = bootstrap_servers
        for name in started:
            self._processes[name].kill()
            self._processes[name] = self._spawn(name, detached=detached)
        self._write_record()

    def _write_record(self) -> None:
        record = ClusterRecord(
            cluster_id=self._given.cluster_id,
            bootstrap_servers=self._bootstrap_servers,
            embedded_kafka=self._embedded,
            processes=tuple(process.record for process in self._processes.values()),
            configuration=_of_command_line(self._given),
        )
        write_record(self.home, record)

    def _undo(self, started: list[str], fresh_kafka: bool) -> None:
        end_soon(self._processes.pop(name) for name in started if name in self._processes)
        if JOBMANAGER in started:
            end_soon(self.workers.values())
        if fresh_kafka and self._starting is not None:
            self._starting.settle()
            self._starting.kafka.kill()
        if any(process.is_running() for process in self._processes.values()):
            self._write_record()
        else:
            remove_record(self.home)

    def _end_in_order(self, reason: str, *, suspend: bool = False) -> None:
        master = self._processes.get(JOBMANAGER)
        alive = self._running()
        if not alive:
            return
        if master is None or not master.is_running():
            self._progress("the jobmanager does not run: the other processes are asked to end by themselves")
            return
        end_in_order(self.configuration, alive, reason, self._progress, suspend=suspend)

    def _running(self) -> list[LocalProcess]:
        own = [process for process in self._processes.values() if process.is_running()]
        return [*own, *self.workers.values()]

    def _stop_kafka(self) -> None:
        if self._embedded and self._kafka is not None and self._kafka.is_running():
            self._kafka.stop()
            self._progress("Kafka has stopped")


def _environment(configuration: Configuration) -> Mapping[str, str]:
    return {**configuration.environment(), "PYTHONUNBUFFERED": "1"}


def _of_command_line(configuration: Configuration) -> dict[str, str]:
    """What the command line has set, but where the cluster is: the record has that already."""
    where = {BOOTSTRAP_SERVERS.key, CLUSTER_ID.key, HOME.key}
    return {
        setting.key: setting.text
        for setting in configuration.settings()
        if setting.origin.startswith("-") and setting.key not in where
    }
