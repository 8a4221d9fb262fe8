"""What a TaskExecutor costs for events that are not for it: by the relay of the masters, and reading the log itself.

A real jobmanager and many simulated TaskExecutors run on a real Kafka. Two more TaskExecutors only look on, each in a
process of its own: one reads by the relay, the other reads the log. Their bytes are those that the kernel received on
their connections. Three phases: nothing happens; all TaskExecutors start; a job is deployed on them. Then others start
together, with the whole log behind them, and last there is a round trip of each of the two ways to read. All the time
the relay has a thousand readers more, in one process, which take what is for them and do nothing with it.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any

import psutil
from _members import Member, say, speak_in_json
from _report import conditions, median, report
from _scale import scaled, scaled_s
from _simulated import all_to_all
from rpc_round_trip import ADDRESS, event, round_trips

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import everyone, job_master, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE
from tailrace.schemas.types import ExecutionState
from tailrace.services.client.client import Client
from tailrace.services.configuration import Configuration, load_configuration
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import TASK_EXECUTOR, address, instance_of
from tailrace.services.log import EventLog, Tail
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.event_log import AddressFilter
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.processes.relay import allow_files, find_log_name, with_relay
from tailrace.services.relay.connection import RelayConnection
from tailrace.services.relay.relayed_log import RelayedEventLog
from tailrace.services.task_executor import TaskExecutor

TASK_EXECUTORS = scaled(200, least=4)
CROWD = scaled(1_000, least=10)
SLOTS = 10
PARALLELISM = scaled(1_000, least=4)
IDLE_S = scaled_s(20)
ROUNDS = 3
KINDS = ("relay", "direct")
JOINING = scaled(100, least=4)
Costs = dict[str, dict[str, Any]]
BYTES_RECEIVED = struct.Struct("@Q")
OFFSET_OF_BYTES_RECEIVED = 128
"""Of tcpi_bytes_received in struct tcp_info of linux/tcp.h."""
PATIENCE_S = 300.0
MASTER = "simulated_jobmanager.run(load_configuration(), threading.Event())"
WORKERS = (
    "simulated_taskexecutor.run(load_configuration(), [ForkMember(f'te-{{n}}', {slots}) for n in range({count})], "
    "threading.Event())"
)
IMPORTS = (
    "import threading; from tailrace.services.configuration import load_configuration; "
    "from tailrace.services.processes import simulated_jobmanager, simulated_taskexecutor; "
    "from tailrace.services.simulation.fork import ForkMember; "
)


def received_bytes(configuration: Configuration) -> tuple[int, int]:
    """Returns the bytes that the kernel has received on this process's open connections: from Kafka, from others."""
    kafka_port, found = int(configuration.bootstrap_servers.rpartition(":")[2]), [0, 0]
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            with socket.socket(fileno=os.dup(int(name))) as each:
                is_other = each.getpeername()[1] != kafka_port
                info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                found[is_other] += BYTES_RECEIVED.unpack_from(info, OFFSET_OF_BYTES_RECEIVED)[0]
    return found[0], found[1]


def open_log(
    configuration: Configuration, resource_id: str, *, relayed: bool
) -> tuple[EventLog, Tail, Replica]:
    """Opens the log of a TaskExecutor that only looks on."""
    direct, own = open_event_log(configuration), address(TASK_EXECUTOR, resource_id)
    replica = Replica([TaskExecutor()], only=lambda role_address: role_address == own)
    log = with_relay(configuration, direct, replica) if relayed else direct
    return log, log.tail(0, concerns=AddressFilter(frozenset((own,)))), replica


def wait_for_relay(log: EventLog, tail: Tail, replica: Replica) -> None:
    """Reads until the log is read by a relay."""
    assert isinstance(log, RelayedEventLog)
    while log._tail is None or log._tail.relay is None:
        for record in tail.poll(0.1):
            replica.apply(record)


def crowd() -> None:
    """In a member: subscribes at the relay as so many TaskExecutors, the real ones first, and reads."""
    speak_in_json()
    allow_files()
    configuration = load_configuration()
    log, tail, replica = open_log(configuration, "crowd", relayed=True)
    wait_for_relay(log, tail, replica)
    assert isinstance(log, RelayedEventLog)
    assert log._tail is not None
    name, relay, start = find_log_name(configuration), log._tail.relay, log.end()
    tail.close()
    assert name is not None
    assert relay is not None
    readers = [
        RelayConnection(relay, name, start, (f"{TASK_EXECUTOR}/te-{n}",), secret=None, timeout_s=PATIENCE_S)
        for n in range(CROWD)
    ]
    selector = selectors.DefaultSelector()
    for reader in readers:
        selector.register(reader._socket, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    say(ready=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin or not key.fileobj.recv(1 << 16):  # type: ignore[union-attr]
                return


def look_on(kind: str) -> None:
    """In a member: reads the log as a TaskExecutor does, and says what it has cost so far whenever it is asked."""
    speak_in_json()
    configuration = load_configuration()
    log, tail, replica = open_log(configuration, f"looks-on-{kind}", relayed=kind == "relay")
    if kind == "relay":
        wait_for_relay(log, tail, replica)
    asked = threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            asked.set()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    say(ready=True)
    while True:
        for record in tail.poll(0.1):
            replica.apply(record)
        if asked.is_set():
            asked.clear()
            from_kafka, from_others = received_bytes(configuration)
            say(
                kafka_bytes=from_kafka,
                other_bytes=from_others,
                cpu_s=time.process_time(),
                time_s=time.monotonic(),
                position=tail.position,
            )


def costs(looking_on: dict[str, Member], end: int) -> Costs:
    """Returns what each has cost, once it has read to `end`."""
    found = {}
    for kind, member in looking_on.items():
        while (answer := member.ask())["position"] < end:
            time.sleep(0.2)
        found[kind] = answer
    return found


def wait_for(log: EventLog, is_wanted: Callable[[Body], bool], count: int, start: int) -> int:
    """Waits until the log has so many wanted events after offset `start`; returns the end of the log then."""
    deadline = time.monotonic() + PATIENCE_S
    tail, seen = log.tail(start), 0
    while seen < count:
        seen += sum(is_wanted(record.body) for record in tail.poll(1.0))
        if time.monotonic() > deadline:
            raise RuntimeError(f"the log has {seen} of {count} wanted events")
    tail.close()
    return log.end()


def is_registered(body: Body) -> bool:
    """Returns whether a TaskExecutor has registered."""
    return isinstance(body, resource_manager.SendSlotReport)


def is_running(body: Body) -> bool:
    """Returns whether a task runs."""
    return (
        isinstance(body, job_master.UpdateTaskExecutionState)
        and body.execution_state is ExecutionState.RUNNING
    )


def phase(figures: dict[str, float], name: str, before: Costs, after: Costs) -> None:
    """Adds the figures of a phase. CPU is that above the one of the phase `idle`, for as long."""
    for kind in KINDS:
        used = {key: after[kind][key] - before[kind][key] for key in after[kind]}
        figures[f"{name}_{kind}_from_kafka_kib"] = used["kafka_bytes"] / 1024
        if kind == "relay":
            figures[f"{name}_relay_from_relay_kib"] = used["other_bytes"] / 1024
        idle = figures.setdefault(f"idle_{kind}_cpu_ms_per_s", used["cpu_s"] * 1e3 / used["time_s"])
        if name != "idle":
            figures[f"{name}_{kind}_cpu_ms"] = used["cpu_s"] * 1e3 - idle * used["time_s"]
    relay, direct = (figures[f"{name}_{kind}_from_kafka_kib"] for kind in KINDS)
    figures[f"{name}_kafka_ratio"] = relay / direct


def join(kind: str, end: str) -> None:
    """In a member: many TaskExecutors start together, and read the log from its first offset to `end`."""
    speak_in_json()
    allow_files()
    configuration, relayed = load_configuration(), []

    def read(number: int) -> None:
        log, tail, replica = open_log(configuration, f"joins-{number}", relayed=kind == "relay")
        while tail.position < int(end):
            for record in tail.poll(0.1):
                replica.apply(record)
        relayed.append(
            isinstance(log, RelayedEventLog) and log._tail is not None and log._tail.relay is not None
        )

    threads = [threading.Thread(target=read, args=(number,)) for number in range(JOINING)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(relayed=sum(relayed))
    sys.stdin.read()


def measure_joins(figures: dict[str, float], kafka: EmbeddedKafka, end: int) -> None:
    """Adds what Kafka sends to TaskExecutors that start together."""
    broker = psutil.Process(kafka.pid)
    for kind in KINDS:
        sent, start = broker.io_counters().write_chars, time.perf_counter()
        with closing(Member(__file__, "join", kind, end)) as joining:
            figures[f"join_{kind}_by_relay"] = joining.receive()["relayed"]
        figures[f"join_{kind}_s"] = time.perf_counter() - start
        figures[f"join_{kind}_from_kafka_kib"] = (broker.io_counters().write_chars - sent) / 1024 / JOINING
    figures["join_kafka_ratio"] = figures["join_relay_from_kafka_kib"] / figures["join_direct_from_kafka_kib"]


def p50_ms(configuration: Configuration) -> dict[str, float]:
    """Returns the round trip by each way, the median of alternating rounds."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with ExitStack() as stack:
        ways = {}
        for kind in KINDS:
            # It is the TaskExecutor of `rpc_round_trip` each time.
            log, tail, replica = open_log(configuration, instance_of(ADDRESS), relayed=kind == "relay")
            stack.callback(log.close)
            stack.callback(tail.close)
            if kind == "relay":
                wait_for_relay(log, tail, replica)
            ways[kind] = log, tail
        claim = everyone.LeaderElected(role=ADDRESS, epoch=1, address="bench", session="bench")
        ways["direct"][0].append([event(claim, EVERYONE, -1)])
        for _ in range(ROUNDS):
            for kind, (log, tail) in ways.items():
                end = log.end()
                while tail.position < end:
                    tail.poll(0.1)
                found[kind].append(median(round_trips(log, tail)))
    return {kind: median(rounds) for kind, rounds in found.items()}


def main() -> None:
    figures: dict[str, float] = {}
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        configuration = Configuration(
            {"cluster.id": "bench", "bootstrap.servers": kafka.bootstrap_servers, "home": home}
        )
        create_cluster_topics(create_admin_client(configuration), configuration.kafka, "bench")
        environment = {**os.environ, **configuration.environment()}
        os.environ.update(configuration.environment())

        def run(program: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-c", IMPORTS + program], env=environment)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        log = open_event_log(configuration)
        stack.callback(log.close)
        master = psutil.Process(run(MASTER).pid)
        wait_for(log, lambda body: isinstance(body, everyone.LeaderElected), 3, 0)
        looking_on = {kind: Member(__file__, kind) for kind in KINDS}
        for member in looking_on.values():
            stack.callback(member.close)
            member.receive()

        readers = Member(__file__, "crowd")
        stack.callback(readers.close)
        readers.receive()

        before = costs(looking_on, log.end())
        time.sleep(IDLE_S)
        after = costs(looking_on, log.end())
        phase(figures, "idle", before, after)

        before, start, master_cpu_s = after, log.end(), sum(master.cpu_times()[:2])
        run(WORKERS.format(count=TASK_EXECUTORS, slots=SLOTS))
        end = wait_for(log, is_registered, TASK_EXECUTORS, start)
        after = costs(looking_on, end)
        phase(figures, "start", before, after)
        figures["start_events"] = end - start

        before, start = after, log.end()
        with Client(configuration) as client:
            client.submit(all_to_all(PARALLELISM, shared=True))
        end = wait_for(log, is_running, 2 * PARALLELISM + 1, start)
        after = costs(looking_on, end)
        phase(figures, "deploy", before, after)
        figures["deploy_events"] = end - start
        figures["master_cpu_s"] = sum(master.cpu_times()[:2]) - master_cpu_s
        measure_joins(figures, kafka, log.end())
        trips = p50_ms(configuration)
    figures["round_trip_relay_ms"], figures["round_trip_direct_ms"] = trips["relay"], trips["direct"]
    figures["round_trip_ratio"] = trips["relay"] / trips["direct"]
    notes = {
        "idle_direct_from_kafka_kib": f"received in {IDLE_S:.0f} s without events",
        "start_kafka_ratio": "while all TaskExecutors start; aim: 0.01",
        "start_relay_from_relay_kib": "the events to everyone: each TaskExecutor claims its address",
        "deploy_kafka_ratio": "while a job is deployed on others; aim: 0.01",
        "deploy_direct_cpu_ms": "CPU of a TaskExecutor that has no part in the job",
        "join_kafka_ratio": f"what Kafka sends to {JOINING} that start with the whole log behind them",
        "master_cpu_s": "of the jobmanager, with its relay, for start and deployment",
        "round_trip_direct_ms": "RegisterTaskExecutor to its answer, p50, reading the log",
        "round_trip_ratio": "aim: 1.3",
    }
    under = conditions(
        task_executors=TASK_EXECUTORS, readers=CROWD, tasks=2 * PARALLELISM + 1, rounds=ROUNDS, brokers=1
    )
    report("fan_out", figures, under, notes)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["crowd"]:
            crowd()
        case ["join", kind, end]:
            join(kind, end)
        case [kind]:
            look_on(kind)
        case other:
            raise SystemExit(f"no part of a benchmark: {other}")
