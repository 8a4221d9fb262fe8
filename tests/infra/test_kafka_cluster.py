"""Three brokers: the loss of the leader of a partition loses no acknowledged record, and clients find the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka_cluster import KafkaCluster
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.services.log import Codec
from tailrace.services.log.event_log import LogUnavailable
from tailrace.services.log.kafka import KafkaEventLog

pytestmark = pytest.mark.integration

TOPIC = "c.log"
RECORDS = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(session_timeout_s=4.0) as running:
        yield running


def test_killed_leader_loses_no_record_and_clients_find_next_one(cluster: KafkaCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(TOPIC, 1, -1)])[TOPIC].result(TIMEOUT_S)
    leader = cluster.leader(TOPIC)
    producer = Producer({**settings, "enable.idempotence": True})
    log = KafkaEventLog(KafkaConnection(cluster.bootstrap_servers), TOPIC, Codec(TOPIC), timeout_s=5.0)
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert log.end() == RECORDS

    leader.kill()
    producer.produce(TOPIC, str(RECORDS).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert cluster.leader(TOPIC) is not leader

    def end() -> int:
        """An AdminClient with Kafka's defaults asks the dead broker for a quarter of an hour."""
        try:
            return log.end()
        except LogUnavailable:
            return -1

    wait_until(lambda: end() == RECORDS + 1)
    consumer = Consumer({**settings, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = [message.value() for message in consumer.consume(RECORDS + 1, TIMEOUT_S)]
    assert found == [str(number).encode() for number in range(RECORDS + 1)]
    consumer.close()
    log.close()

    leader.start()
    wait_until(lambda: len(admin.list_topics(TOPIC, timeout=90).topics[TOPIC].partitions[0].isrs) == 3)
