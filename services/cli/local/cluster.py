"""Starts and stops a cluster on this machine.

All processes start at the same time. TaskExecutors and jobmanagers retry until Kafka answers, so that the JVMs of
Spark and Kafka start in parallel. Readiness is read from the log, where every process registers with its address
(host:pid). A stop is a request in the log: TaskExecutors and masters then end by themselves, in order.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from ...configuration import Configuration
from ...configuration.options.blob import BLOB_SERVER_PORT
from ...configuration.options.cluster import BOOTSTRAP_SERVERS, CLUSTER_ID, HOME
from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from ...configuration.options.relay import RELAY_PORT
from ...configuration.options.resource_manager import RESOURCE_MANAGER_MODE, ResourceManagerMode
from ...configuration.options.simulation import SIMULATED as SIMULATION
from ...configuration.options.task_executor import NUMBER_OF_TASK_SLOTS
from ...configuration.options.zookeeper import ZOOKEEPER_QUORUM
from ..exit_codes import CommandFailure, ExitCode
from .cluster_record import ClusterRecord, ProcessRecord, locked, read_record, remove_record, write_record
from .local_process import LocalProcess, Progress
from .process_names import JOBMANAGER, SIMULATED, is_master, masters, slots_per_taskexecutor, taskexecutors
from .servers import Servers
from .shutdown import STOP_REASON, end_by_force, end_in_order, end_soon

TASKEXECUTORS: Final = 1
"""The default number: one JVM serves all slots of a machine with the least memory and start-up work."""


class LocalClusterOptions(msgspec.Struct, frozen=True):
    """The processes to run. `detached`: they outlive this process; otherwise they end with it, however it ends.

    `taskexecutors`: how many are started here; None: one, or none where the ResourceManager starts them (active mode).
    Without a configured number of slots, they share one for each core.
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
        self.servers = Servers(self.home, configuration, progress)
        self._processes: dict[str, LocalProcess] = {}
        self._is_in_yarn = False
        self._recorded_before = False
        """Whether the cluster was started before; then its number of TaskExecutors stays."""

    @property
    def configuration(self) -> Configuration:
        """The configuration with the addresses of the running Kafka and ZooKeeper."""
        return self._given.replace(self.servers.settings())

    @property
    def processes(self) -> Mapping[str, LocalProcess]:
        """Name -> process: jobmanagers, and TaskExecutors by their resource ids."""
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
            record.resource_id: LocalProcess(
                ProcessRecord(
                    pid=record.pid,
                    created=record.created,
                    mark=record.mark,
                    name=record.resource_id,
                    log=record.log,
                )
            )
            for record in worker_records(self.home, self._given.cluster_id)
        }

    def configuration_of(self, name: str) -> Configuration:
        """The configuration of one process when it starts; a test may give each process other addresses."""
        return self.configuration.replace({"home": str(self.home)})

    @classmethod
    def from_configuration(
        cls, configuration: Configuration, *, progress: Progress = lambda _: None
    ) -> LocalCluster | None:
        """Returns the cluster of cluster.json in the home; None if there is none."""
        record = read_record(configuration.home)
        if record is None:
            return None
        # Readers of its log use the options of its start.
        started = {key: text for key, text in record.configuration.items() if not configuration.has(key)}
        known = {**started, "cluster.id": record.cluster_id, **_high_availability(record)}
        cluster = cls(configuration.replace(known), progress=progress)
        cluster._take_over(record)
        return cluster

    def is_complete(self) -> bool:
        """Whether Kafka, ZooKeeper, at least one jobmanager and all other started processes run."""
        return (
            self.servers.are_running()
            and bool(self.masters)
            and all(process.is_running() for process in self._processes.values())
        )

    def task_executors(self, options: LocalClusterOptions) -> list[str]:
        """Returns the names of the TaskExecutor processes to run; a fork has one process for all its TaskExecutors."""
        known = list(self._processes)
        if options.taskexecutors is not None:
            return taskexecutors(options.taskexecutors, known)
        if self._given.get(SIMULATION):
            from ...simulation.fork import read_members

            own = [SIMULATED] if read_members(self.home) else []
            return list(dict.fromkeys([*own, *taskexecutors(0, known)]))
        if self._recorded_before:
            return taskexecutors(0, known)
        active = self._given.get(RESOURCE_MANAGER_MODE) is ResourceManagerMode.ACTIVE
        return taskexecutors(0 if active else TASKEXECUTORS, known)

    def start(self, options: LocalClusterOptions) -> bool:
        """Starts the processes that do not run; returns when all are ready. Returns False if all ran already.

        Raises CommandFailure, and what the starts of Kafka and ZooKeeper raise; then, and on any other exception,
        the call ends the processes that it started.
        """
        # Only a start loads Kafka's client: most commands only look for a cluster.
        from .duplicate_cluster_check import check_no_other
        from .topic_recovery import restore_topics

        with locked(self.home):
            record = read_record(self.home)
            if record is not None:
                self.adopt(record)
            elif not self.servers.embedded:
                check_no_other(self._given)
            self.servers.zookeeper.check()
            wanted = [
                *self.task_executors(options),
                *self._check_masters(masters(options.masters, self._processes)),
            ]
            if record is None:
                self._divide_slots(sum(not is_master(name) and name != SIMULATED for name in wanted))
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
        self.servers = Servers(self.home, self._given, self._progress)
        self.servers.check_same(record)
        self._take_over(record)

    def stop(self, reason: str = STOP_REASON, *, suspend: bool = False) -> bool | None:
        """Shuts the cluster down, kills what does not end, and stops ZooKeeper and Kafka if they are embedded.

        With `suspend` jobs are not cancelled: they continue when the cluster starts again. Returns whether the log
        exists; None if Kafka does not answer.
        """
        from .topic_recovery import has_log

        with locked(self.home):
            self._end_in_order(reason, suspend=suspend)
            end_by_force(self._running, self._progress)
            is_log_there = has_log(self.configuration) if self.servers.kafka_runs() else None
            self.servers.stop()
            shutil.rmtree(self.home / "scratch", ignore_errors=True)
            remove_record(self.home)
        return is_log_there

    def stop_processes(self, reason: str) -> None:
        """Shuts the cluster down but leaves Kafka and ZooKeeper, so that the log can be read."""
        with locked(self.home):
            self._end_in_order(reason)
            end_by_force(self._running, self._progress)

    def kill(self) -> None:
        """Ends all processes by SIGTERM, and soon by SIGKILL, without a shutdown of the cluster."""
        end_soon(self._processes.values())
        # After the jobmanagers, which would start others.
        end_soon(self.workers.values())
        self.servers.kill()
        remove_record(self.home)

    def _read_record(self, record: ClusterRecord) -> dict[str, str]:
        """Returns the options of its first start, unless this start sets others."""
        elections = _high_availability(record).items()
        return {**{k: text for k, text in elections if not self._given.has(k)}, **record.configuration}

    def _check_same(self, record: ClusterRecord) -> None:
        if record.yarn_application:
            raise CommandFailure(
                ExitCode.USAGE,
                f"{self.home} has the session {record.yarn_application} in YARN: end it with `tailrace cluster stop`, "
                "or give another --home",
            )
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
        for option, servers in ((BLOB_SERVER_PORT, "BlobServers"), (RELAY_PORT, "relays")):
            ports = self._given.get(option)
            if ports.max_count is not None and ports.max_count < len(names):
                first = next(iter(ports))
                raise CommandFailure(
                    ExitCode.USAGE,
                    f"{len(names)} jobmanagers on one machine need as many ports for their {servers}, but "
                    f"{option.key} is {ports}: give a range such as {first}-{first + len(names) - 1}, or 0 for "
                    "free ones",
                )
        return names

    def _divide_slots(self, count: int) -> None:
        """Gives `count` TaskExecutors together a slot for each core, unless the number is configured."""
        if count and not self._given.has(NUMBER_OF_TASK_SLOTS.key):
            slots = slots_per_taskexecutor(count, os.cpu_count() or 1)
            self._given = self._given.replace({NUMBER_OF_TASK_SLOTS.key: str(slots)}, "-D")

    def _take_over(self, record: ClusterRecord) -> None:
        self._is_in_yarn = bool(record.yarn_application)
        for process in record.processes:
            self._processes.setdefault(process.name, LocalProcess(process))
        self.servers.take_over(record)

    def _start(self, options: LocalClusterOptions, wanted: list[str], started: list[str]) -> None:
        # Only a start loads Kafka's client and the history.
        from .readiness import Readiness

        start = time.monotonic()
        self.home.mkdir(parents=True, exist_ok=True)
        self.servers.begin(detached=options.detached)
        if self.servers.zookeeper.has_moved:
            # Another process had taken its port. Jobmanagers lose nothing when they start again.
            end_soon(self.masters.values())
        for name in wanted:
            process = self._processes.get(name)
            if process is None or not process.is_running():
                started.append(name)
                self._processes[name] = self._spawn(name, detached=options.detached)
        self._write_record()
        if not self.servers.join():
            self._start_again(started, detached=options.detached)
        fresh = [self._processes[name] for name in started]
        with self.servers.zookeeper.candidates(self.configuration) as standing:
            Readiness(self.configuration, fresh, start, self._progress, standing).wait()

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
        """Another process took Kafka's port first: the processes with the first address start again."""
        for name in started:
            self._processes[name].kill()
            self._processes[name] = self._spawn(name, detached=detached)
        self._write_record()

    def _write_record(self) -> None:
        record = ClusterRecord(
            cluster_id=self._given.cluster_id,
            bootstrap_servers=self.servers.bootstrap_servers,
            embedded_kafka=self.servers.embedded,
            processes=tuple(process.record for process in self._processes.values()),
            configuration=_from_command_line(self._given),
            embedded_zookeeper=self.servers.zookeeper.embedded,
            high_availability=self.servers.zookeeper.settings(),
        )
        write_record(self.home, record)

    def _undo(self, started: list[str]) -> None:
        end_soon(self._processes.pop(name) for name in started if name in self._processes)
        if not any(process.is_running() for process in self.masters.values()):
            end_soon(self.workers.values())
        self.servers.undo()
        if any(process.is_running() for process in self._processes.values()):
            self._write_record()
        else:
            remove_record(self.home)

    def _end_in_order(self, reason: str, *, suspend: bool = False) -> None:
        if self._is_in_yarn:
            end_in_order(self.configuration, (), reason, self._progress, suspend=suspend)
            return
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
    """Returns the options of the command line, without the cluster's addresses, which the record has already."""
    where = {BOOTSTRAP_SERVERS.key, CLUSTER_ID.key, HOME.key}
    return {
        setting.key: setting.text
        for setting in configuration.settings()
        if setting.origin.startswith("-") and setting.key not in where
    }


def _high_availability(record: ClusterRecord) -> dict[str, str]:
    """Returns the recorded options without the address of an embedded ZooKeeper, which may have changed."""
    embedded = {ZOOKEEPER_QUORUM.key} if record.embedded_zookeeper else set()
    return {key: text for key, text in record.high_availability.items() if key not in embedded}
