"""A whole control plane without tasks: real roles on real hosts over a real Kafka log, only the world is simulated.

The jobmanager's roles run in one process, any number of TaskExecutors in another, as they would on other machines: all
that passes between them passes through the log. Channels exist at once, and a task is RUNNING as soon as it is asked
for; nothing else is left out. Each process prints a line of JSON when it has something to say, and obeys lines on its
standard input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil
from _members import Member, say
from confluent_kafka.admin import AdminClient

from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows
from tailrace.schemas import client, dispatcher, job_master, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import (
    ExecutionState,
    HardwareDescription,
    Header,
    JobGraph,
    ResourceProfile,
)
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.host import Host
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.instructions import CreateChannels, DeleteChannels
from tailrace.services.log import Codec
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import ensure_cluster_topics, log_topic
from tailrace.services.replica import Replica
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.roles import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Instruction,
    Owed,
    Shell,
    address,
)
from tailrace.services.task_executor import TaskExecutor
from tailrace.services.task_executor.instructions import RunTasks, StopTask

SLOTS = 100
PATIENCE_S = 300.0
MIB = 1 << 20
PROFILE = ResourceProfile(
    cpu_cores=1.0,
    heap_memory_mb=256,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=0,
)
HARDWARE = HardwareDescription(
    cpu_cores=SLOTS, physical_memory=1 << 38, jvm_heap=SLOTS * 256 << 20, managed_memory=0
)


def all_to_all(parallelism: int, *, shared: bool) -> JobGraph:
    """A source of one subtask, then two vertices joined all to all; these in one slot sharing group or in two."""
    environment = StreamExecutionEnvironment(max_parallelism=1 << 15)
    groups = ["default", "default"] if shared else ["first", "second"]
    stream = environment.socket_text_stream("localhost", 9999).slot_sharing_group(groups[0])
    pairs = stream.map(_pair, tuple[str, int]).slot_sharing_group(groups[0]).set_parallelism(1)
    for group in groups:
        windows = pairs.key_by(0).window(TumblingProcessingTimeWindows.of(seconds=5))
        pairs = windows.reduce(_later).set_parallelism(parallelism).slot_sharing_group(group)
    pairs.print().set_parallelism(parallelism).slot_sharing_group(groups[1])
    return environment.get_job_graph(f"2 x {parallelism}")


def _pair(line: str) -> tuple[str, int]:
    return line, 1


def _later(_one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    return other


class ChannelsExist:
    """The JobMaster's shell where topics cost nothing."""

    def __init__(self, say: Callable[[str, Owed], None]) -> None:
        self._say = say
        self._begun: set[str] = set()

    def obey(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        for instruction in instructions:
            if instruction.key in self._begun:
                continue
            self._begun.add(instruction.key)
            body: Body
            match instruction:
                case CreateChannels(job_id=job_id, cause=cause):
                    body = job_master.ChannelsCreated(job_id=job_id)
                case DeleteChannels(job_id=job_id, cause=cause):
                    body = job_master.ChannelsDeleted(job_id=job_id)
                case _:
                    raise TypeError(f"not simulated: {instruction!r}")
            self._say(role_address, Owed(role_address, body, cause))

    def close(self) -> None:
        pass


class TasksRun:
    """The shell of many TaskExecutors whose tasks run as soon as they are asked for."""

    def __init__(self, say: Callable[[str, Owed], None]) -> None:
        self._say = say
        self._begun: set[str] = set()

    def obey(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        for instruction in instructions:
            if instruction.key in self._begun:
                continue
            self._begun.add(instruction.key)
            match instruction:
                case RunTasks(job_id=job_id, tasks=tasks):
                    for task in tasks:
                        for reached in (ExecutionState.INITIALIZING, ExecutionState.RUNNING):
                            self._report(role_address, job_id, task.execution_attempt_id, reached, task.cause)
                case StopTask(execution_attempt_id=attempt, job_id=job_id, cause=cause):
                    self._report(role_address, job_id, attempt, ExecutionState.CANCELED, cause)
                case _:
                    raise TypeError(f"not simulated: {instruction!r}")

    def _report(
        self, role_address: str, job_id: str, attempt: str, state: ExecutionState, cause: int
    ) -> None:
        body = job_master.UpdateTaskExecutionState(
            job_id=job_id, execution_attempt_id=attempt, execution_state=state
        )
        self._say(role_address, Owed(address(JOB_MASTER, job_id), body, cause))

    def close(self) -> None:
        pass


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
    """How many TaskExecutors have registered, slots were offered, tasks are RUNNING; and when."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.registered = 0
        self.running = 0
        self.offered = 0
        self.first_request_s = self.last_offer_s = 0.0
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
        elif isinstance(body, client.JobRejected | client.JobFinished):
            self.failure = str(body)
        else:
            return
        name, count = self.wanted
        if self.failure or (count and getattr(self, name) >= count):
            with self.changed:
                self.changed.notify_all()

    def wait(self, name: str, count: int) -> None:
        """Until there are so many. Raises TimeoutError; RuntimeError when the job ended."""
        with self.changed:
            self.wanted = (name, count)
            there = self.changed.wait_for(lambda: self.failure or getattr(self, name) >= count, PATIENCE_S)
            if self.failure:
                raise RuntimeError(self.failure)
            if not there:
                raise TimeoutError(f"{getattr(self, name)} of {count} {name} after {PATIENCE_S:.0f} s")


def new_log(bootstrap_servers: str, cluster: str) -> KafkaEventLog:
    """A connection to the cluster's log."""
    topic = log_topic(cluster)
    return KafkaEventLog(bootstrap_servers, topic, Codec(topic))


class Deployment:
    """A jobmanager and `task_executors` TaskExecutors of SLOTS slots each, all of them registered."""

    def __init__(self, bootstrap_servers: str, cluster: str, task_executors: int, slots: int = SLOTS) -> None:
        ensure_cluster_topics(AdminClient({"bootstrap.servers": bootstrap_servers}), cluster)
        self._members = ExitStack()
        with ExitStack() as starting:
            self.master = Member(__file__, "master", bootstrap_servers, cluster)
            starting.callback(self.master.close)
            self.workers = Member(
                __file__, "task_executors", bootstrap_servers, cluster, task_executors, slots
            )
            starting.callback(self.workers.close)
            self.master.hear()
            self.workers.hear()
            self.master.ask(wait="registered", count=task_executors)
            self._members = starting.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._members.close()

    def run(self, parallelism: int, *, shared: bool) -> dict[str, Any]:
        """Submits a job of two vertices; returns when all of its subtasks are RUNNING.

        `running_s` from SubmitJob; `slots_s` from the first RequestSlot to the last of `offered` slots; `events` said;
        `master_mib` resident; seconds of CPU of each process.
        """
        before = self.master.cpu_s(), self.workers.cpu_s()
        result = self.master.ask(submit=parallelism, shared=shared)
        result["master_cpu_s"] = self.master.cpu_s() - before[0]
        result["workers_cpu_s"] = self.workers.cpu_s() - before[1]
        return result


def _run_host(host: Host, shells: dict[str, Shell], stop: threading.Event) -> None:
    try:
        host.run(stop, shells)
    finally:
        stop.set()
        host.close()


def master(bootstrap_servers: str, cluster: str) -> None:
    """The process of the jobmanager's roles: obeys `wait` and `submit` until its standard input ends."""
    log = new_log(bootstrap_servers, cluster)
    tally = Tally()
    host = Host(
        log,
        Watched([Dispatcher(), ResourceManager(), JobMaster()], tally),
        cluster=cluster,
        leads=(DISPATCHER, RESOURCE_MANAGER, JOB_MASTER),
        process_address="bench",
        session="master",
    )
    stop = threading.Event()

    def obey() -> None:
        host.leading.wait(PATIENCE_S)
        say(leading=True)
        try:
            for line in sys.stdin:
                request = json.loads(line)
                if "wait" in request:
                    tally.wait(request["wait"], request["count"])
                    say(**request)
                else:
                    say(**submit(request["submit"], request["shared"]))
        finally:
            stop.set()

    def submit(parallelism: int, shared: bool) -> dict[str, object]:
        begin, running = log.end(), tally.running
        graph = all_to_all(parallelism, shared=shared)
        body = dispatcher.SubmitJob(
            job_id=f"job-{begin}", job_graph=graph, entry_point=None, parallelism=None
        )
        header = Header(
            event_id="submission", time=0, sender="client/bench", sender_epoch=0, recipient=DISPATCHER
        )
        header = msgspec.structs.replace(header, time=time.time_ns() // 1000)
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

    threading.Thread(target=obey, daemon=True).start()
    _run_host(host, {JOB_MASTER: ChannelsExist(host.say)}, stop)


def task_executors(bootstrap_servers: str, cluster: str, count: int, slots: int) -> None:
    """The process of the TaskExecutors: registers them, and runs them until its standard input ends."""
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

    def register() -> None:
        host.leading.wait(PATIENCE_S)
        for each in own:
            body = resource_manager.RegisterTaskExecutor(
                address="bench",
                resource_id=each.partition("/")[2],
                data_port=0,
                hardware=HARDWARE,
                number_of_slots=slots,
                default_slot_profile=PROFILE,
            )
            host.say(each, Owed(RESOURCE_MANAGER, body, None))
        say(leading=True)
        try:
            sys.stdin.read()
        finally:
            stop.set()

    threading.Thread(target=register, daemon=True).start()
    _run_host(host, {TASK_EXECUTOR: TasksRun(host.say)}, stop)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["master", servers, cluster_id]:
            master(servers, cluster_id)
        case ["task_executors", servers, cluster_id, number, slot_count]:
            task_executors(servers, cluster_id, int(number), int(slot_count))
        case other:
            raise SystemExit(f"no part of a deployment: {other}")
