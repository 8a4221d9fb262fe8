"""Slot requests per second from the JobMaster through ResourceManager and TaskExecutor back to the JobMaster.

A job of 10,000 slots requests all of them at once; the time is from the first RequestSlot to the last offered slot,
both when the jobmanager folds them (`_deployment`: a real log, 100 TaskExecutors in another process). The raw limit is
the same three hops, on the same log, without roles: each reader forwards a request.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable

from _deployment import Deployment
from _members import Member, say
from _processes import new_log
from _report import conditions, median, report
from _scale import scaled
from _simulated import SLOTS
from confluent_kafka.admin import AdminClient

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import SlotID, SlotOffer
from tailrace.services.core.role import (
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    OutgoingEvent,
    address,
    derive_id,
    with_headers,
)
from tailrace.services.log.clients import client_configuration
from tailrace.services.log.topics import ensure_cluster_topics
from tailrace.services.simulation.task_events import PROFILE

ROUNDS = scaled(3)
REQUESTS = scaled(10_000)
JOB = address(JOB_MASTER, "raw")
WORKER = address(TASK_EXECUTOR, "raw")


def passed_on(record: Record) -> OutgoingEvent | None:
    """Returns the next hop's event for an event of this one."""
    body: Body
    match record.body:
        case resource_manager.RequestSlot(allocation_id=allocation_id):
            body = task_executor.RequestSlot(
                slot_id=SlotID(resource_id="raw", slot_number=0),
                job_id="raw",
                allocation_id=allocation_id,
                reason="it is the next one",
            )
            return OutgoingEvent(WORKER, body, record.offset)
        case task_executor.RequestSlot(allocation_id=allocation_id):
            offer = SlotOffer(allocation_id=allocation_id, slot_number=0, resource_profile=PROFILE)
            body = job_master.OfferSlots(job_id="raw", resource_id="raw", slots=(offer,))
            return OutgoingEvent(JOB, body, record.offset)
        case _:
            return None


def relay(bootstrap_servers: str, cluster: str, reads: str, end: int) -> float:
    """Forwards the events to `reads`, until that address has received `end` events; returns the time of that, since
    the epoch."""
    log = new_log(bootstrap_servers, cluster)
    tail = log.tail(0, concerns=lambda _, recipient: recipient == reads)
    output = received = 0
    while received < end:
        batch = tail.poll(1.0)
        received += len(batch)
        owed = [event for event in map(passed_on, batch) if event is not None]
        if owed:
            log.append(sealed(reads, owed, output))
            output += len(owed)
    tail.close()
    log.close()
    return time.time()


def sealed(sender: str, owed: Iterable[OutgoingEvent], count: int) -> list[Event]:
    """Adds headers, as a host does."""
    now = time.time_ns() // 1000
    return with_headers(
        owed, cluster="raw", sender=sender, epoch=1, decided_at=0, now=now, numbers=itertools.count(count)
    )


def raw_per_s(bootstrap_servers: str, cluster: str) -> float:
    """Returns requests per second through three bare hops: the ResourceManager and the TaskExecutor are relays."""
    ensure_cluster_topics(AdminClient(client_configuration(KafkaConnection(bootstrap_servers))), cluster)
    members = [
        Member(__file__, "relay", bootstrap_servers, cluster, reads, REQUESTS)
        for reads in (RESOURCE_MANAGER, WORKER, JOB)
    ]
    try:
        for member in members:
            member.receive()
        requests = [
            resource_manager.RequestSlot(
                job_id="raw", allocation_id=derive_id("raw", number), resource_profile=None
            )
            for number in range(REQUESTS)
        ]
        log = new_log(bootstrap_servers, cluster)
        start = time.time()
        log.append(sealed(JOB, (OutgoingEvent(RESOURCE_MANAGER, request, None) for request in requests), 0))
        ends: list[float] = [member.receive()["ended"] for member in members]
        return REQUESTS / (max(ends) - start)
    finally:
        for member in members:
            member.close()


def main() -> None:
    rates, raw = [], []
    with EmbeddedKafka() as kafka:
        for number in range(ROUNDS):
            with Deployment(kafka.bootstrap_servers, f"bench-{number}", REQUESTS // SLOTS) as deployment:
                ran = deployment.run(REQUESTS // 2, shared=False)
            rates.append(ran["offered"] / ran["slots_s"])
            raw.append(raw_per_s(kafka.bootstrap_servers, f"raw-{number}"))
    figures = {
        "per_s": median(rates),
        "hop_per_s": median(raw),
        "times_hops": median(raw) / median(rates),
    }
    notes = {
        "per_s": "requests through JobMaster, ResourceManager, TaskExecutor and back",
        "hop_per_s": "raw limit: the same through three relays without roles",
    }
    report("slot_requests", figures, conditions(requests=REQUESTS, rounds=ROUNDS, brokers=1), notes)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["relay", servers, cluster_id, address_read, number_read]:
            say(ready=True)
            say(ended=relay(servers, cluster_id, address_read, int(number_read)))
            sys.stdin.read()
        case _:
            main()
