"""100 simulated containers of YARN are lost and replaced: events, time and false losses.

The jobmanager's roles and the real worker driver of YARN talk to a YARN that is simulated here: its containers hold one
TaskExecutor of one slot each, and it loses them node by node. Everything else is real: the log on Kafka, heartbeats
at the default interval, and a job whose tasks restart in the replaced containers. A loss is false if its container was
not lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from _processes import PATIENCE_S, Watched, new_log
from _report import conditions, median, report
from _scale import scaled
from _simulated import HARDWARE, all_to_all, running
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import client, dispatcher, everyone, job_master
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.types import ExecutionState, Header, JobGraph, ResourceProfile
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    OutgoingEvent,
    Time,
    address,
)
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.heartbeats.manager import HeartbeatManager
from tailrace.services.host.host import Host
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.checkpoints.shell import CheckpointShell
from tailrace.services.log.clients import client_configuration
from tailrace.services.log.topics import ensure_cluster_topics
from tailrace.services.processes import heartbeats as process_heartbeats
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.resource_manager.drivers.yarn import YarnContainers
from tailrace.services.resource_manager.drivers.yarn_launch import WorkerContainer, YarnSettings
from tailrace.services.resource_manager.shell import ResourceManagerShell
from tailrace.services.simulation.fake_effects import NoOpTaskExecutorEffects, NoTopicJobMasterEffects
from tailrace.services.simulation.heartbeats import MultiplexedHeartbeats, create_heartbeats
from tailrace.services.simulation.task_events import register_event
from tailrace.services.task_executor import TaskExecutor
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.yarn.application_master import (
    Allocation,
    Capability,
    CompletedContainer,
    Container,
    ContainerLaunch,
    FinalStatus,
    NodeUpdate,
    Registration,
)

CONTAINERS = scaled(100)
PER_NODE = 10
CLUSTER = "churn"
RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 s",
}
LOST = -100


class LiveTaskExecutors(TaskExecutor):
    """TaskExecutors of which only those in live containers speak."""

    def __init__(self) -> None:
        self.live: set[str] = set()

    def decide(self, state: TaskExecutorState, now: Time) -> list[OutgoingEvent]:
        return super().decide(state, now) if state.resource_id in self.live else []


class LiveHeartbeats(MultiplexedHeartbeats):
    """Their heartbeats."""

    def __init__(self, host: Host, own: Sequence[str], role: LiveTaskExecutors) -> None:
        super().__init__(host, own, running)
        self._role = role

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        for sender, owed in super().heartbeats_to_send(position):
            if sender.partition("/")[2] in self._role.live:
                yield sender, owed


class SimulatedYarn:
    """An ApplicationMaster's conversation with a YARN of nodes with `PER_NODE` containers each."""

    def __init__(self, workers: Host, role: LiveTaskExecutors) -> None:
        self._workers = workers
        self._role = role
        self._lock = threading.Lock()
        self._asked: dict[int, None] = {}
        self._numbered = 0
        self._containers: dict[str, Container] = {}
        self._answers: list[Allocation] = []

    def register(self, host: str, port: int, tracking_url: str) -> Registration:
        return Registration("application_1", 1, "default", 8192, 8, ())

    def request_container(self, request_id: int, capability: Capability) -> None:
        with self._lock:
            self._asked[request_id] = None

    def withdraw_request(self, request_id: int) -> None:
        with self._lock:
            self._asked.pop(request_id, None)

    def allocate(self) -> Allocation:
        with self._lock:
            if self._answers:
                return self._answers.pop(0)
            allocated = tuple(map(self._allocate, self._asked))
            self._asked = {}
            return Allocation(allocated=allocated)

    def start_container(self, container: Container, launch: ContainerLaunch) -> None:
        self._role.live.add(launch.command)
        own = address(TASK_EXECUTOR, launch.command)
        self._workers.emit(own, register_event(launch.command, 1, hardware=HARDWARE))

    def is_running(self, container: Container) -> bool:
        return container.container_id in self._containers

    def stop_container(self, container: Container) -> None:
        self._end([container], 0)

    def unregister(self, status: FinalStatus, diagnostics: str, tracking_url: str) -> None:
        pass

    def delete_directory(self, uri: str) -> bool:
        return True

    def close(self) -> None:
        pass

    def lose_node(self) -> set[str]:
        """Loses the node with the oldest containers; returns its workers."""
        with self._lock:
            node = next(iter(self._containers.values())).node
            lost = [each for each in self._containers.values() if each.node == node]
        self._end(lost, LOST, NodeUpdate(node, "LOST", ""))
        return {f"worker-{each.request_id}" for each in lost}

    def _allocate(self, request_id: int) -> Container:
        container = Container(
            f"container_{self._numbered}", f"n{self._numbered // PER_NODE}:45454", request_id
        )
        self._numbered += 1
        self._containers[container.container_id] = container
        return container

    def _end(self, containers: Iterable[Container], status: int, *nodes: NodeUpdate) -> None:
        with self._lock:
            ended = [self._containers.pop(each.container_id) for each in containers]
            self._role.live -= {f"worker-{each.request_id}" for each in ended}
            completed = tuple(CompletedContainer(each.container_id, status, "") for each in ended)
            self._answers.append(Allocation(completed=completed, nodes=nodes))


class Tally:
    """Follows running tasks and lost TaskExecutors as events are folded."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.running: dict[str, str] = {}
        """Attempt -> the sender that runs it."""
        self.lost: set[str] = set()
        self.events = 0

    def __call__(self, record: Record) -> None:
        with self.changed:
            self.events += 1
            match record.body:
                case job_master.UpdateTaskExecutionState(execution_attempt_id=attempt, execution_state=state):
                    if state is ExecutionState.RUNNING:
                        self.running[attempt] = record.header.sender
                    else:
                        self.running.pop(attempt, None)
                case client.JobRejected(reason=reason):
                    raise SystemExit(reason)
                case everyone.TaskExecutorLost(resource_id=resource_id):
                    self.lost.add(resource_id)
                    gone = address(TASK_EXECUTOR, resource_id)
                    self.running = {each: on for each, on in self.running.items() if on != gone}
                case _:
                    pass
            self.changed.notify_all()

    def wait(self, tasks: int, lost: Iterable[str] = ()) -> None:
        """Waits until as many tasks are RUNNING, and TaskExecutors are lost. Raises TimeoutError."""
        expected = set(lost)
        with self.changed:
            if not self.changed.wait_for(
                lambda: len(self.running) >= tasks and expected <= self.lost, PATIENCE_S
            ):
                raise TimeoutError(f"{len(self.running)} of {tasks} tasks run after {PATIENCE_S:.0f} s")


class NoWatch:
    """No process of this machine is watched."""

    def follow(self, workers: Mapping[str, object]) -> None:
        pass

    def close(self) -> None:
        pass


def _run(host: Host, shells: Mapping[str, object], stop: threading.Event, beating: HeartbeatManager) -> None:
    try:
        beating.start()
        host.run(stop, shells)  # type: ignore[arg-type]
    finally:
        stop.set()
        beating.close()
        host.close()


def create_container(
    resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None
) -> WorkerContainer:
    """Returns a container whose command is the name of its worker."""
    return WorkerContainer(Capability(1024, number_of_slots), ContainerLaunch(resource_id, {}, {}))


def main() -> None:
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        ensure_cluster_topics(AdminClient(client_configuration(KafkaConnection(servers))), CLUSTER)
        configuration = Configuration(
            {
                "cluster.id": CLUSTER,
                "bootstrap.servers": servers,
                "resourcemanager.mode": "active",
                "resourcemanager.worker-driver": "yarn",
                "taskmanager.numberOfTaskSlots": "1",
            }
        )
        figures = measure(configuration)
    notes = {
        "false_losses": "TaskExecutors declared lost whose containers live; aim: 0",
        "replaced_s": "from the loss of a node to its tasks RUNNING in other containers, median of the nodes",
        "events_per_container": "in the log, from the first loss to the last task RUNNING",
    }
    under = conditions(containers=CONTAINERS, containers_of_a_node=PER_NODE, heartbeat_of_yarn_s=0.5)
    report("worker_churn", figures, under, notes)


def measure(configuration: Configuration) -> dict[str, float]:
    """Runs the cluster, and loses as many containers as the job has."""
    servers, stop = configuration.bootstrap_servers, threading.Event()
    own = [address(TASK_EXECUTOR, f"worker-{number}") for number in range(1, 4 * CONTAINERS + 1)]
    role, tally, failures = LiveTaskExecutors(), Tally(), list[Exception]()
    workers = Host(
        new_log(servers, CLUSTER),
        Replica([role], only=frozenset(own).__contains__),
        cluster=CLUSTER,
        leads=own,
        process_address="bench",
        session="task executors",
        concerns=own,
    )
    hearts = LiveHeartbeats(workers, own, role)
    yarn = SimulatedYarn(workers, role)
    master = Host(
        new_log(servers, CLUSTER),
        Watched([Dispatcher(), ResourceManager(), JobMaster()], tally),
        cluster=CLUSTER,
        leads=(DISPATCHER, RESOURCE_MANAGER),
        process_address="bench",
        session="master",
    )
    settings = YarnSettings("bench", -1, "", heartbeat_s=0.5, request_interval_s=0.5)
    containers = YarnContainers(lambda: yarn, settings, create_container, failures.append)
    beating, followed, jobs = process_heartbeats.create_master_heartbeats(configuration, master)
    effects = NoTopicJobMasterEffects(master.emit, jobs.follow, files=CheckpointShell(master.emit))
    shell = ResourceManagerShell(master.emit, containers.create, lambda _: NoWatch(), follow=followed.follow)
    threads = [
        threading.Thread(
            target=_run,
            args=[
                workers,
                {TASK_EXECUTOR: NoOpTaskExecutorEffects(workers.emit, hearts.follow)},
                stop,
                create_heartbeats(configuration, workers, hearts),
            ],
        ),
        threading.Thread(
            target=_run, args=[master, {RESOURCE_MANAGER: shell, JOB_MASTER: effects}, stop, beating]
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        for host in (workers, master):
            host.leading.wait(PATIENCE_S)
        changed = everyone.ConfigurationChanged(configuration=configuration.as_map())
        master.emit(DISPATCHER, OutgoingEvent(EVERYONE, changed, None))
        graph = all_to_all(CONTAINERS, shared=True)
        submit(servers, replace(graph, configuration=RESTARTS))
        return lose_all(tally, yarn, sum(vertex.parallelism for vertex in graph.vertices))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        containers.close()
        if failures:
            raise failures[0]


def lose_all(tally: Tally, yarn: SimulatedYarn, tasks: int) -> dict[str, float]:
    """Loses node after node, each when the one before is replaced."""
    tally.wait(tasks)
    before, start, lost, times = tally.events, time.perf_counter(), set[str](), list[float]()
    while len(lost) < CONTAINERS:
        began = time.perf_counter()
        gone = yarn.lose_node()
        lost |= gone
        tally.wait(tasks, gone)
        times.append(time.perf_counter() - began)
    elapsed = time.perf_counter() - start
    return {
        "lost": len(lost),
        "false_losses": len(tally.lost - lost),
        "replaced_s": median(times),
        "replaced_worst_s": max(times),
        "all_s": elapsed,
        "events": tally.events - before,
        "events_per_container": (tally.events - before) / len(lost),
    }


def submit(servers: str, graph: JobGraph) -> None:
    """Submits the job."""
    body = dispatcher.SubmitJob(job_id="job", job_graph=graph, entry_point=None, parallelism=None)
    now = time.time_ns() // 1000
    header = Header(event_id="s", time=now, sender="client/bench", sender_epoch=0, recipient=DISPATCHER)
    new_log(servers, CLUSTER).append([Event(header, body)])


if __name__ == "__main__":
    main()
