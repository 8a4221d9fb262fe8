"""From RegisterTaskExecutor appended by one process to its answer read by that process, compared with a bare hop.

The bare hop is the time from produce to read on a topic without other readers: the minimum for one event. The round
trip is two of them, and the jobmanager's work in between.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time

from _report import conditions, median, percentile, report
from _scale import scaled

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import everyone, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event
from tailrace.schemas.types import HardwareDescription, ResourceProfile
from tailrace.services.configuration import Configuration
from tailrace.services.core.role import OutgoingEvent, with_headers
from tailrace.services.log import EventLog, Tail
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.topics import ensure_cluster_topics

ROUNDS = scaled(1_000)
WARM_UP = scaled(200)
ADDRESS = "task_executor/bench"
PROFILE = ResourceProfile(
    cpu_cores=1.0,
    heap_memory_mb=0,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=0,
)
REGISTRATION = resource_manager.RegisterTaskExecutor(
    address="bench",
    resource_id="bench",
    data_port=0,
    hardware=HardwareDescription(cpu_cores=2, physical_memory=0, jvm_heap=0, managed_memory=0),
    number_of_slots=1,
    default_slot_profile=PROFILE,
)


def event(body: Body, recipient: str, count: int) -> Event:
    """Returns an event of the benchmark's TaskExecutor."""
    owed = [OutgoingEvent(recipient, body, None)]
    now = time.time_ns() // 1000
    return with_headers(
        owed, cluster="bench", sender=ADDRESS, epoch=1, decided_at=0, now=now, numbers=itertools.count(count)
    )[0]


def hops(log: EventLog, tail: Tail) -> list[float]:
    """Returns the milliseconds from produce to read."""
    elapsed = []
    for count in range(ROUNDS + WARM_UP):
        start = time.perf_counter()
        offset = log.append([event(REGISTRATION, "nobody", count)])[0]
        while tail.position <= offset:
            tail.poll(1.0)
        elapsed.append((time.perf_counter() - start) * 1e3)
    return elapsed[WARM_UP:]


def round_trips(log: EventLog, tail: Tail) -> list[float]:
    """Returns the milliseconds from RegisterTaskExecutor to its answer."""
    elapsed = []
    for count in range(ROUNDS + WARM_UP):
        start = time.perf_counter()
        offset = log.append([event(REGISTRATION, "resource_manager", count)])[0]
        answered = False
        while not answered:
            answered = any(
                isinstance(record.body, task_executor.TaskExecutorRegistrationSuccess)
                and record.header.cause == offset
                for record in tail.poll(10.0)
            )
        elapsed.append((time.perf_counter() - start) * 1e3)
    return elapsed[WARM_UP:]


def main() -> None:
    with EmbeddedKafka() as kafka:
        configuration = Configuration({"cluster.id": "bench", "bootstrap.servers": kafka.bootstrap_servers})
        beside = configuration.replace({"cluster.id": "beside"})
        for item in (configuration, beside):
            ensure_cluster_topics(create_admin_client(item), item.cluster_id)
        program = (
            "import threading; from tailrace.services.configuration import load_configuration; "
            "from tailrace.services.processes import jobmanager; "
            "jobmanager.run(load_configuration(), threading.Event())"
        )
        environment = {**os.environ, **configuration.environment()}
        with subprocess.Popen([sys.executable, "-c", program], env=environment) as jobmanager:
            try:
                log, other = open_event_log(configuration), open_event_log(beside)
                claim = everyone.LeaderElected(role=ADDRESS, epoch=1, address="bench", session="bench")
                log.append([event(claim, "*", -1)])
                hop = hops(other, other.tail(other.end()))
                trip = round_trips(log, log.tail(log.end()))
            finally:
                jobmanager.kill()
    figures = {
        "p50_ms": median(trip),
        "p99_ms": percentile(trip, 99),
        "hop_p50_ms": median(hop),
        "hop_p99_ms": percentile(hop, 99),
        "hops_at_p50": median(trip) / median(hop),
    }
    notes = {
        "p50_ms": "RegisterTaskExecutor -> its answer read",
        "hop_p50_ms": "raw limit: one event produced -> seen",
        "hops_at_p50": "aim: below 4",
    }
    report("rpc_round_trip", figures, conditions(rounds=ROUNDS, brokers=1), notes)


if __name__ == "__main__":
    main()
