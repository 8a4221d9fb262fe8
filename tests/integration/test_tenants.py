"""The topics of tenants in a real Kafka: each request is admitted once, whichever master leads; tenants take turns."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import Header
from tailrace.services.client import Client
from tailrace.services.configuration import Configuration, load_configuration
from tailrace.services.core.feature_level import FEATURE_LEVEL
from tailrace.services.dispatcher.tenant_turns import MAX_WAITING, MINUTE_S
from tailrace.services.log.topics import log_topic, submissions_topic

from .test_submissions import Cluster

FLOOD = 15 * MAX_WAITING
TENANTS = ("flood", "quiet", "slow")
PER_MINUTE = 5


def request(number: int) -> dispatcher.CancelJob:
    return dispatcher.CancelJob(job_id=f"unknown-{number}")


class TenantCluster(Cluster):
    """A jobmanager process with tenants."""

    def ask_as(self, tenant: str, numbers: range) -> None:
        """Writes requests to the topic of a tenant."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number in numbers:
            header = Header(
                event_id=f"{tenant}-{number}",
                time=1,
                sender="client/same",
                sender_epoch=0,
                recipient="dispatcher",
            )
            producer.produce(
                submissions_topic(self.cluster, tenant), self.codec.encode(Event(header, request(number)))
            )
        assert producer.flush(30) == 0

    def write_as(self, tenant: str, value: bytes) -> None:
        """Writes a record to the topic of a tenant."""
        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(submissions_topic(self.cluster, tenant), value)
        assert producer.flush(30) == 0

    def times_of(self, tenant: str) -> list[float]:
        """Returns when the tenant's requests were admitted or refused, in seconds by Kafka's clock."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "unused", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(log_topic(self.cluster), 0, 0)])
        found = []
        try:
            while (message := consumer.poll(30)) is not None and message.error() is None:
                event = self.codec.decode(message.value())
                body = event.body
                origin = (
                    body.source if isinstance(body, dispatcher.SubmissionRefused) else event.header.origin
                )
                if origin is not None and origin.tenant == tenant:
                    found.append(message.timestamp()[1] / 1000)
            assert message is not None, "Kafka does not answer"
        finally:
            consumer.close()
        return found

    def configuration(self, tenant: str) -> Configuration:
        """Returns the configuration of the clients of a tenant."""
        values = {"home": self.home, "cluster.id": self.cluster, "bootstrap.servers": self.servers}
        definitions = [f"{key}={value}" for key, value in {**values, "tenant": tenant}.items()]
        return load_configuration(definitions=definitions, environment={})

    def admitted(self) -> list[Record]:
        """Returns the admitted requests, in the order of the log."""
        return self.events_of(dispatcher.CancelJob)

    def admitted_of(self, tenant: str) -> list[str]:
        """Returns the jobs of a tenant's admitted requests."""
        return [
            record.body.job_id  # type: ignore[attr-defined]
            for record in self.admitted()
            if record.header.origin is not None and record.header.origin.tenant == tenant
        ]


@pytest.fixture
def cluster(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[TenantCluster]:
    running = TenantCluster(
        kafka,
        f"t{os.getpid()}-{time.time_ns()}",
        tmp_path,
        TENANTS,
        TAILRACE_DISPATCHER_TENANTS=";".join(TENANTS),
        TAILRACE_DISPATCHER_TENANT_SLOW_MAX_REQUESTS_PER_MINUTE=str(PER_MINUTE),
    )
    try:
        yield running
    finally:
        running.kill()
        running.log.close()


def test_requests_are_admitted_once_in_turns_and_at_most_so_many_a_minute(cluster: TenantCluster) -> None:
    cluster.ask_as("flood", range(FLOOD))
    cluster.ask_as("quiet", range(20))
    cluster.ask_as("slow", range(PER_MINUTE - 1))
    cluster.write_as("slow", b"garbage")
    cluster.ask_as("", range(3))
    cluster.start()
    wait_until(lambda: len(cluster.admitted_of("flood")) >= 2 * MAX_WAITING, "a part of the flood")
    cluster.kill()
    seen = len(cluster.admitted_of("flood"))
    assert seen < FLOOD, "the master admitted all before it was killed"

    # The few requests of another tenant were not behind the flood.
    order = [record.header.origin.tenant for record in cluster.admitted() if record.header.origin]
    last = max(place for place, tenant in enumerate(order) if tenant == "quiet")
    assert order[:last].count("flood") <= MAX_WAITING + 20
    assert len(cluster.admitted_of("quiet")) == 20
    assert len(cluster.admitted_of("slow")) == PER_MINUTE - 1
    cluster.ask_as("slow", range(PER_MINUTE - 1, 2 * PER_MINUTE))

    cluster.environment["TAILRACE_DISPATCHER_TENANTS"] = ";".join((*TENANTS, "new"))
    cluster.start()
    wait_until(lambda: len(cluster.admitted_of("flood")) == FLOOD, "the rest of the flood")
    cluster.answer(client.CancelJobRejected, request(FLOOD - 1).job_id)
    cluster.ask_as("new", range(1))
    wait_until(lambda: cluster.admitted_of("new"), "the request of a new tenant")
    with Client(cluster.configuration(tenant="new")) as sender:
        sender.cancel(request(1).job_id)
        sender.raise_feature_level(FEATURE_LEVEL + 1)
    wait_until(lambda: len(cluster.admitted_of("new")) == 2, "the request of a client of the tenant")
    (raised,) = wait_until(lambda: cluster.events_of(dispatcher.RaiseFeatureLevel), "the operator's request")
    assert raised.header.origin is not None
    assert raised.header.origin.tenant == ""
    numbers = {"flood": FLOOD, "quiet": 20, "": 3, "slow": len(cluster.admitted_of("slow")), "new": 2}
    for tenant, count in numbers.items():
        assert cluster.admitted_of(tenant) == [request(number).job_id for number in range(count)]
    # Refusals and the requests that the killed master admitted count, too.
    times = cluster.times_of("slow")
    assert len(times) >= PER_MINUTE
    assert all(
        after - before > MINUTE_S / 2 for before, after in zip(times, times[PER_MINUTE:], strict=False)
    )
