"""The tests of `services/host/test_host.py` on real Kafka, each host with connections of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.services.log import Codec, EventLog
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import ensure_cluster_topics, log_topic

from ..services.host.test_host import (
    NewLog,
    start,
    test_deadline_wakes_host,
    test_exactly_one_of_racing_hosts_leads,
    test_host_answers_once_and_stops_on_request,
    test_host_claims_all_its_roles_then_decides,
    test_successor_sends_events_that_predecessor_owed,
    test_successor_takes_next_epoch_and_deposes_predecessor,
)

__all__ = [
    "start",
    "test_deadline_wakes_host",
    "test_successor_sends_events_that_predecessor_owed",
    "test_successor_takes_next_epoch_and_deposes_predecessor",
    "test_host_answers_once_and_stops_on_request",
    "test_host_claims_all_its_roles_then_decides",
    "test_exactly_one_of_racing_hosts_leads",
]


@pytest.fixture
def new_log(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[NewLog]:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    opened: list[EventLog] = []

    def connect() -> EventLog:
        topic = log_topic(cluster_id)
        opened.append(KafkaEventLog(kafka.connection, topic, Codec(topic)))
        return opened[-1]

    yield connect
    for log in opened:
        log.close()
