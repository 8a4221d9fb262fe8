"""What `services/test_host.py` says of a host holds on real Kafka too, each host with connections of its own."""

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
    test_a_deadline_wakes_it_up,
    test_a_successor_says_what_its_predecessor_still_owed,
    test_a_successor_takes_the_next_epoch_and_deposes_the_one_before,
    test_it_answers_once_and_stops_when_it_is_told_to,
    test_it_takes_the_lead_of_all_its_roles_then_decides,
    test_of_hosts_that_race_exactly_one_leads_in_the_end,
)

__all__ = [
    "start",
    "test_a_deadline_wakes_it_up",
    "test_a_successor_says_what_its_predecessor_still_owed",
    "test_a_successor_takes_the_next_epoch_and_deposes_the_one_before",
    "test_it_answers_once_and_stops_when_it_is_told_to",
    "test_it_takes_the_lead_of_all_its_roles_then_decides",
    "test_of_hosts_that_race_exactly_one_leads_in_the_end",
]


@pytest.fixture
def new_log(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[NewLog]:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    opened: list[EventLog] = []

    def connect() -> EventLog:
        topic = log_topic(cluster_id)
        opened.append(KafkaEventLog(kafka.bootstrap_servers, topic, Codec(topic)))
        return opened[-1]

    yield connect
    for log in opened:
        log.close()
