"""Starts and stops a cluster on this machine.

All processes start at the same time. TaskExecutors and jobmanagers retry until Kafka answers, so that the JVMs of
Spark and Kafka start in parallel. Readiness is read from the log, where every process registers with its address
(host:pid). A stop is a request in the log: TaskExecutors and masters then end by themselves, in order.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ....infra.kafka import EmbeddedKafka
from ...configuration import Configuration
from ...configuration.options.blob import BLOB_SERVER_PORT
from ...configuration.options.cluster import BOOTSTRAP_SERVERS, CLUSTER_ID, HOME
from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from ...configuration.options.resource_manager import RESOURCE_MANAGER_MODE, ResourceManagerMode
from ...configuration.options.simulation import SIMULATED as SIMULATION
from ...configuration.options.zookeeper import ZOOKEEPER_QUORUM
from ..exit_codes import CommandFailure, ExitCode
from .cluster_record import ClusterRecord, ProcessRecord, locked, read_record, remove_record, write_record
from .local_process import LocalProcess, Progress
from .process_names import JOBMANAGER, SIMULATED, is_master, masters, taskexecutors
from .servers import Servers
from .shutdown import end_by_force, end_in_order, end_soon
from .zookeeper import LocalZooKeeper

TASKEXECUTORS = 2
"""How many are started where it is not said."""


class LocalClusterOptions(msgspec.Struct, frozen=True):
    """What is to run. `detached`: the processes outlive this one; else they end with it, however it ends.

    `taskexecutors`: how many are started here; None: two, or none where the ResourceManager starts them (active mode).
    `masters`: how many jobmanagers; None: one. More than one need ZooKeeper.
    """

    taskexecutors: int | None = None
    detached: bool = True
    masters: int | None = None


class LocalCluster:
    """The cluster of a home, `configuration.home`; Kafka and ZooKeeper are embedded unless addresses are configured."""

    def __init__(self, configuration: Configuration, *, progress: Progress = lambda _: None) -> None:
        self.home = configuration.home.absolute()
        self._given = configuration
        self._progress = progress
        self._servers = Servers(self.home, configuration, progress)
        self._processes: dict[str, LocalProcess] = {}
        self._recorded_before = False
        """Whether the cluster was started already: then as many TaskExecutors run as were started."""

    @property
    def configuration(self) -> Configuration:
        """With the addresses of the Kafka and the ZooKeeper that run."""
        return self._given.replace(self._servers.settings())

    @property
    def processes(self) -> Mapping[str, LocalProcess]:
        """By name: jobmanagers, and TaskExecutors by their resource ids."""
        return self._processes

    @property
    def masters(self) -> Mapping[str, LocalProcess]:
        """The jobmanagers among the processes, by name."""
        return {name: process for name, process in self._processes.items() if is_master(name)}

    @property
    def workers(self) -> Mapping[str, LocalProcess]:
        """The TaskExecutors that run and were started by the jobmanager (active mode), by their resource ids."""
        from ...resource_manager.drivers.local_process import worker_records

        return {
            each.resource_id: LocalProcess(
                ProcessRecord(pid=each.pid, created=each.created, name=each.resource_id, log=each.log)
            )
            for each in worker_records(self.home, self._given.cluster_id)
        }

    def configuration_of(self, name: str) -> Configuration:
        """What the process of that name is told when it starts. Who has a network of its own is told its addresses."""
        return self.configuration.replace({"home": str(self.home)})

    @property
    def kafka_dir(self) -> Path:
        """Where the embedded Kafka keeps its data: the log, and with it everything."""
        return self._servers.kafka_dir

    @property
    def embedded(self) -> bool:
        """Whether Kafka is one of the cluster's own processes."""
        return self._servers.embedded

    @property
    def kafka(self) -> EmbeddedKafka | None:
        """The embedded Kafka, where there is one and it runs, or ran when this object was made."""
        return self._servers.kafka

    @property
    def zookeeper(self) -> LocalZooKeeper:
        """The ZooKeeper: none, one of others, or the embedded one."""
        return self._servers.zookeeper

    @classmethod
    def from_configuration(
        cls, configuration: Configuration, *, progress: Progress = lambda _: None
    ) -> LocalCluster | None:
        """The cluster that cluster.json in the home tells of; None where there is none."""
        record = read_record(configuration.home)
        if record is None:
            return None
        # Whoever reads its log goes by what its start said.
        said = {key: text for key, text in record.configuration.items() if not configuration.has(key)}
        known = {**said, "cluster.id": record.cluster_id, **_high_availability(record)}
        cluster = cls(configuration.replace(known), progress=progress)
        cluster._take_over(record)
        return cluster

    def is_complete(self) -> bool:
        """Whether Kafka, ZooKeeper, a jobmanager and everything else that was started run."""
        return (
            self._servers.are_running()
            and bool(self.masters)
            and all(process.is_running() for process in self._processes.values())
        )

    def task_executors(self, options: LocalClusterOptions) -> list[str]:
        """The names of the processes of TaskExecutors that are to run; of a fork, one for all that it was given."""
        known = list(self._processes)
        if options.taskexecutors is not None:
            return taskexecutors(options.taskexecutors, known)
        if self._given.get(SIMULATION):
            from ...simulation.fork_members import read_members

            own = [SIMULATED] if read_members(self.home) else []
            return list(dict.fromkeys([*own, *taskexecutors(0, known)]))
        if self._recorded_before:
            return taskexecutors(0, known)
        active = self._given.get(RESOURCE_MANAGER_MODE) is ResourceManagerMode.ACTIVE
        return taskexecutors(0 if active else TASKEXECUTORS, known)

    def start(self, options: LocalClusterOptions) -> bool:
        """Starts what does not run; returns when it is all ready. False: all of it ran already.

        Raises CommandFailure, and what the starts of Kafka and ZooKeeper raise; then, and on any other exception,
        the call ends the processes that it started.
        """
        # Kafka's client is loaded by who starts a cluster: most commands look for one only.
        from .duplicate_cluster_check import check_no_other
        from .topic_recovery import restore_topics

        with locked(self.home):
            record = read_record(self.home)
            if record is not None:
                self.adopt(record)
            elif not self._servers.embedded:
                check_no_other(self._given)
            self._servers.zookeeper.check()
            wanted = [
                *self.task_executors(options),
                *self._check_masters(masters(options.masters, self._processes)),
            ]
            if self.is_complete() and all(name in self._processes for name in wanted):
                restore_topics(self.configuration, self._progress)
                return False
            started: list[str] = []
            try:
                self._start(options, wanted, started)
            except BaseException:
                self._undo(started)
                raise
            ended = [name for name in wanted if not self._processes[name].is_running()]
        if ended:
            raise CommandFailure(
                ExitCode.PROCESS_FAILED,
                f"{', '.join(ended)} ended while the rest was started, as after a long time without Kafka: "
                f"`tailrace cluster start` starts it again; why is at the end of {self.home / 'log'}/{ended[0]}.log",
            )
        return True

    def adopt(self, record: ClusterRecord) -> None:
        """Continues the recorded cluster with its options. Raises CommandFailure if the options conflict."""
        self._recorded_before = True
        self._check_same(record)
        recorded = {**self._read_record(record), **_from_command_line(self._given)}
        self._given = self._given.replace(recorded, "-D")
        self._servers = Servers(self.home, self._given, self._progress)
        self._servers.check_same(record)
        self._take_over(record)

    def stop(self, reason: str = "asked for on the command line", *, suspend: bool = False) -> bool | None:
        """Ends the cluster in order, and by force what does not end; then ZooKeeper and Kafka, if they are embedded.

        With `suspend` jobs are not cancelled: they go on when the cluster is started again. Returns whether the log is
        there; None where Kafka does not say.
        """
        from .topic_recovery import has_log

        with locked(self.home):
            self._end_in_order(reason, suspend=suspend)
            end_by_force(self._running, self._progress)
            is_log_there = has_log(self.configuration) if self._servers.kafka_runs() else None
            self._servers.stop()
            shutil.rmtree(self.home / "scratch", ignore_errors=True)
            remove_record(self.home)
        return is_log_there

    def stop_processes(self, reason: str) -> None:
        """Ends the cluster in order but leaves Kafka and ZooKeeper, so that the log can still be read."""
        with locked(self.home):
            self._end_in_order(reason)
            end_by_force(self._running, self._progress)

    def kill(self) -> None:
        """Ends everything without a word to the cluster: SIGTERM, soon after SIGKILL; for the quick ways out."""
        end_soon(self._processes.values())
        # After the jobmanagers, which would start others.
        end_soon(self.workers.values())
        self._servers.kill()
        remove_record(self.home)

    def _read_record(self, record: ClusterRecord) -> dict[str, str]:
        """What its first start said, where nothing else has been said since."""
        elections = _high_availability(record).items()
        return {**{k: text for k, text in elections if not self._given.has(k)}, **record.configuration}

    def _check_same(self, record: ClusterRecord) -> None:
        if not self._given.has(CLUSTER_ID.key):
            self._given = self._given.replace({CLUSTER_ID.key: record.cluster_id})
        if record.cluster_id != self._given.cluster_id:
            raise CommandFailure(
                ExitCode.USAGE,
                f"the cluster of {self.home} is called {record.cluster_id}, not {self._given.cluster_id}: leave its id "
                "out to start what is missing of it, or give another --home for another cluster",
            )

    def _check_masters(self, names: list[str]) -> list[str]:
        if len(names) > 1 and self._given.get(HIGH_AVAILABILITY) is HighAvailability.NONE:
            raise CommandFailure(
                ExitCode.USAGE,
                f"{len(names)} jobmanagers need an election, else each takes the lead from the one before: add "
                f"-D {HIGH_AVAILABILITY.key}={HighAvailability.ZOOKEEPER}",
            )
        ports = self._given.get(BLOB_SERVER_PORT)
        if ports.max_count is not None and ports.max_count < len(names):
            first = next(iter(ports))
            raise CommandFailure(
                ExitCode.USAGE,
                f"{len(names)} jobmanagers on one machine need as many ports for their BlobServers, but "
                f"{BLOB_SERVER_PORT.key} is {ports}: give a range such as {first}-{first + len(names) - 1}, or 0 for "
                "free ones",
            )
        return names

    def _take_over(self, record: ClusterRecord) -> None:
        for each in record.processes:
            self._processes.setdefault(each.name, LocalProcess(each))
        self._servers.take_over(record)

    def _start(self, options: LocalClusterOptions, wanted: list[str], started: list[str]) -> None:
        # Kafka, and the history of the cluster, are loaded by who starts or ends one: most commands look for it only.
        from .readiness import Readiness

        begun = time.monotonic()
        self.home.mkdir(parents=True, exist_ok=True)
        self._servers.begin(detached=options.detached)
        if self._servers.zookeeper.has_moved:
            # Another process had taken its port. Jobmanagers lose nothing when they start again.
            end_soon(self.masters.values())
        for name in wanted:
            process = self._processes.get(name)
            if process is None or not process.is_running():
                started.append(name)
                self._processes[name] = self._spawn(name, detached=options.detached)
        self._write_record()
        if not self._servers.join():
            self._start_again(started, detached=options.detached)
        fresh = [self._processes[name] for name in started]
        with self._servers.zookeeper.contenders(self.configuration) as standing:
            Readiness(self.configuration, fresh, begun, self._progress, standing).wait()

    def _spawn(self, name: str, *, detached: bool) -> LocalProcess:
        of_worker = [] if name == SIMULATED else ["--resource-id", name]
        arguments = [JOBMANAGER] if is_master(name) else ["taskexecutor", *of_worker]
        return LocalProcess.start(
            name,
            arguments,
            log=self.home / "log" / f"{name}.log",
            environment={**self.configuration_of(name).environment(), "PYTHONUNBUFFERED": "1"},
            detached=detached,
        )

    def _start_again(self, started: list[str], *, detached: bool) -> None:
        """Another process took Kafka's port before it could: what was told the first address starts again."""
        for name in started:
            self._processes[name].kill()
            self._processes[name] = self._spawn(name, detached=detached)
        self._write_record()

    def _write_record(self) -> None:
        record = ClusterRecord(
            cluster_id=self._given.cluster_id,
            bootstrap_servers=self._servers.bootstrap_servers,
            embedded_kafka=self._servers.embedded,
            processes=tuple(process.record for process in self._processes.values()),
            configuration=_from_command_line(self._given),
            embedded_zookeeper=self._servers.zookeeper.embedded,
            high_availability=self._servers.zookeeper.settings(),
        )
        write_record(self.home, record)

    def _undo(self, started: list[str]) -> None:
        end_soon(self._processes.pop(name) for name in started if name in self._processes)
        if not any(process.is_running() for process in self.masters.values()):
            end_soon(self.workers.values())
        self._servers.undo()
        if any(process.is_running() for process in self._processes.values()):
            self._write_record()
        else:
            remove_record(self.home)

    def _end_in_order(self, reason: str, *, suspend: bool = False) -> None:
        alive = self._running()
        if not alive:
            return
        if not any(process.is_running() for process in self.masters.values()):
            self._progress("no jobmanager runs: the other processes are asked to end by themselves")
            return
        end_in_order(self.configuration, alive, reason, self._progress, suspend=suspend)

    def _running(self) -> list[LocalProcess]:
        own = [process for process in self._processes.values() if process.is_running()]
        return [*own, *self.workers.values()]


def _from_command_line(configuration: Configuration) -> dict[str, str]:
    """What the command line has set, but where the cluster is: the record has that already."""
    where = {BOOTSTRAP_SERVERS.key, CLUSTER_ID.key, HOME.key}
    return {
        setting.key: setting.text
        for setting in configuration.settings()
        if setting.origin.startswith("-") and setting.key not in where
    }


def _high_availability(record: ClusterRecord) -> dict[str, str]:
    """Without the address of the embedded ZooKeeper, which may have changed."""
    embedded = {ZOOKEEPER_QUORUM.key} if record.embedded_zookeeper else set()
    return {key: text for key, text in record.high_availability.items() if key not in embedded}
