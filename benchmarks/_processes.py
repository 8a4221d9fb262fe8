"""The two processes of a `_deployment`: the masters, and all its TaskExecutors.

Each prints a line of JSON per message, obeys lines on its standard input, and ends with it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil
from _members import say, speak_in_json
from _simulated import HARDWARE, all_to_all, running
from msgspec.structs import replace

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import client, dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import ExecutionState, Header, JobGraph
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Shell,
    address,
    instance_of,
)
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.heartbeats.manager import HeartbeatManager
from tailrace.services.host.host import Host
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.checkpoints.shell import CheckpointShell
from tailrace.services.log import Codec
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import log_topic
from tailrace.services.processes import heartbeats as process_heartbeats
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.simulation.fake_effects import (
    HeartbeatOnlyEffects,
    NoOpTaskExecutorEffects,
    NoTopicJobMasterEffects,
)
from tailrace.services.simulation.heartbeats import MultiplexedHeartbeats, create_heartbeats
from tailrace.services.simulation.task_events import register_event
from tailrace.services.task_executor import TaskExecutor

PATIENCE_S = 300.0
MIB = 1 << 20
TIMEOUTS = (resource_manager.WorkerLost, job_master.HeartbeatTimedOut, task_executor.HeartbeatTimedOut)
CONTRADICTIONS = (
    resource_manager.SlotReportContradicted,
    job_master.TasksContradicted,
    task_executor.AllocatedSlotsContradicted,
)


class Watched(Replica):
    """Counts, as events are folded, what a benchmark waits for."""

    def __init__(self, roles: Iterable[Any], watch: Callable[[Record], object], **more: Any) -> None:
        super().__init__(roles, **more)
        self._watch = watch

    def apply(self, record: Record) -> list[str]:
        changed = super().apply(record)
        self._watch(record)
        return changed


class Tally:
    """Counts registered TaskExecutors, offered slots and RUNNING tasks, with times."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.registered = 0
        self.running = 0
        self.offered = 0
        self.first_request_s = self.last_offer_s = 0.0
        self.timeouts = self.contradictions = 0
        self.failure = ""
        self.wanted: tuple[str, int] = ("", 0)

    def __call__(self, record: Record) -> None:
        body = record.body
        if type(body) is job_master.UpdateTaskExecutionState:
            self.running += body.execution_state is ExecutionState.RUNNING
        elif type(body) is resource_manager.RequestSlot:
            self.first_request_s = self.first_request_s or time.perf_counter()
            return
        elif type(body) is job_master.OfferSlots:
            self.offered += len(body.slots)
            self.last_offer_s = time.perf_counter()
        elif type(body) is resource_manager.SendSlotReport:
            self.registered += 1
        elif isinstance(body, TIMEOUTS):
            self.timeouts += 1
        elif isinstance(body, CONTRADICTIONS):
            self.contradictions += 1
        elif isinstance(body, client.JobRejected | client.JobFinished):
            self.failure = str(body)
        else:
            return
        name, count = self.wanted
        if self.failure or (count and getattr(self, name) >= count):
            with self.changed:
                self.changed.notify_all()

    def wait(self, name: str, count: int) -> None:
        """Waits until the count is reached. Raises TimeoutError; RuntimeError if the job has ended."""
        with self.changed:
            self.wanted = (name, count)
            there = self.changed.wait_for(lambda: self.failure or getattr(self, name) >= count, PATIENCE_S)
            if self.failure:
                raise RuntimeError(self.failure)
            if not there:
                raise TimeoutError(f"{getattr(self, name)} of {count} {name} after {PATIENCE_S:.0f} s")


def new_log(bootstrap_servers: str, cluster: str) -> KafkaEventLog:
    """Returns a connection to the cluster's log."""
    topic = log_topic(cluster)
    return KafkaEventLog(KafkaConnection(bootstrap_servers), topic, Codec(topic))


def _run_host(
    host: Host, shells: dict[str, Shell], stop: threading.Event, beating: HeartbeatManager | None
) -> None:
    try:
        if beating is not None:
            beating.start()
        host.run(stop, shells)
    finally:
        stop.set()
        if beating is not None:
            beating.close()
        host.close()


def _configuration(bootstrap_servers: str, cluster: str) -> Configuration:
    return Configuration({"cluster.id": cluster, "bootstrap.servers": bootstrap_servers})


def master(bootstrap_servers: str, cluster: str, *, heartbeats: bool) -> None:
    """Runs the process of the masters: obeys `wait`, `submit` and `count`."""
    log = new_log(bootstrap_servers, cluster)
    tally = Tally()
    host = Host(
        log,
        Watched([Dispatcher(), ResourceManager(), JobMaster()], tally),
        cluster=cluster,
        leads=(DISPATCHER, RESOURCE_MANAGER),
        process_address="bench",
        session="master",
    )
    stop = threading.Event()
    beating = None
    files = CheckpointShell(host.emit)
    shells: dict[str, Shell] = {JOB_MASTER: NoTopicJobMasterEffects(host.emit, files=files)}
    if heartbeats:
        beating, workers, jobs = process_heartbeats.create_master_heartbeats(
            _configuration(bootstrap_servers, cluster), host
        )
        shells = {
            RESOURCE_MANAGER: HeartbeatOnlyEffects(lambda _, state: workers.follow(state)),
            JOB_MASTER: NoTopicJobMasterEffects(host.emit, jobs.follow, files=files),
        }

    def perform() -> None:
        host.leading.wait(PATIENCE_S)
        say(leading=True)
        try:
            for line in sys.stdin:
                match json.loads(line):
                    case {"wait": name, "count": count}:
                        tally.wait(name, count)
                        say(there=count)
                    case {"submit": parallelism, "shared": shared, "configuration": configuration}:
                        graph = replace(all_to_all(parallelism, shared=shared), configuration=configuration)
                        say(**_submitted(log, tally, graph))
                    case _:
                        say(timeouts=tally.timeouts, contradictions=tally.contradictions)
        finally:
            stop.set()

    threading.Thread(target=perform, daemon=True).start()
    _run_host(host, shells, stop, beating)


def _submitted(log: KafkaEventLog, tally: Tally, graph: JobGraph) -> dict[str, object]:
    begin, running = log.end(), tally.running
    body = dispatcher.SubmitJob(job_id=f"job-{begin}", job_graph=graph, entry_point=None, parallelism=None)
    now = time.time_ns() // 1000
    header = Header(event_id="s", time=now, sender="client/bench", sender_epoch=0, recipient=DISPATCHER)
    start = time.perf_counter()
    log.append([Event(header, body)])
    tally.wait("running", running + sum(vertex.parallelism for vertex in graph.vertices))
    elapsed = time.perf_counter() - start
    return {
        "running_s": elapsed,
        "slots_s": tally.last_offer_s - tally.first_request_s,
        "offered": tally.offered,
        "events": log.end() - begin,
        "master_mib": psutil.Process().memory_info().rss / MIB,
    }


def task_executors(bootstrap_servers: str, cluster: str, count: int, slots: int, *, heartbeats: bool) -> None:
    """Runs the process of the TaskExecutors: registers and runs them."""
    log = new_log(bootstrap_servers, cluster)
    own = [address(TASK_EXECUTOR, f"te-{number:04}") for number in range(count)]
    served = frozenset(own)
    host = Host(
        log,
        Replica([TaskExecutor()], only=served.__contains__),
        cluster=cluster,
        leads=own,
        process_address="bench",
        session="task executors",
        concerns=own,
    )
    stop = threading.Event()
    beating = None
    shell = NoOpTaskExecutorEffects(host.emit)
    if heartbeats:
        hearts = MultiplexedHeartbeats(host, own, running)
        beating = create_heartbeats(_configuration(bootstrap_servers, cluster), host, hearts)
        shell = NoOpTaskExecutorEffects(host.emit, hearts.follow)

    def register() -> None:
        host.leading.wait(PATIENCE_S)
        for item in own:
            host.emit(item, register_event(instance_of(item), slots, hardware=HARDWARE))
        say(leading=True)
        try:
            sys.stdin.read()
        finally:
            stop.set()

    threading.Thread(target=register, daemon=True).start()
    _run_host(host, {TASK_EXECUTOR: shell}, stop, beating)


if __name__ == "__main__":
    speak_in_json()
    match sys.argv[1:]:
        case ["master", servers, cluster_id, beats]:
            master(servers, cluster_id, heartbeats=beats == "True")
        case ["task_executors", servers, cluster_id, beats, number, slot_count]:
            task_executors(servers, cluster_id, int(number), int(slot_count), heartbeats=beats == "True")
        case other:
            raise SystemExit(f"no part of a deployment: {other}")
