"""Topics that must exist at start-up are created unless another client does so first. Nobody waits for a dead
broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace.infra.internal_topics import ensure, ensure_internal_topics
from tailrace.infra.kafka import EmbeddedKafka

pytestmark = pytest.mark.integration


class Hurried(AdminClient):
    """An admin client that is too late: another client creates the same topic a moment before."""

    overtaken = 0

    def create_topics(  # type: ignore[override]
        self, new_topics: list[NewTopic], **options: object
    ) -> dict[str, Future[None]]:
        if self.overtaken == 0:
            self.overtaken += 1
            for created in super().create_topics(new_topics).values():
                created.result()
        return super().create_topics(new_topics, **options)


class Ended(Exception):
    pass


@pytest.fixture(scope="module")
def client() -> Iterator[dict[str, Any]]:
    with EmbeddedKafka() as kafka:
        yield {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}


def partitions(admin: AdminClient) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=90).topics.items()}


def alive() -> None:
    """The broker process is alive."""


def test_started_broker_has_internal_topics(client: dict[str, Any]) -> None:
    admin = AdminClient(client)
    result = partitions(admin)
    assert (result["__consumer_offsets"], result["__transaction_state"]) == (4, 4)
    other = {
        "offsets.topic.num.partitions": "9",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "9",
        "transaction.state.log.replication.factor": "1",
    }
    ensure_internal_topics(Producer(client), admin, other, alive)
    assert partitions(admin) == result


def test_topic_that_another_client_creates_meanwhile_is_accepted(client: dict[str, Any]) -> None:
    admin = Hurried(client)
    ensure(Producer(client), admin, [NewTopic("first", 2, 1), NewTopic("second", 3, 1)], alive)
    assert admin.overtaken == 1
    result = partitions(admin)
    assert (result["first"], result["second"]) == (2, 3)


def test_error_of_liveness_check_ends_retries(client: dict[str, Any]) -> None:
    looks: list[int] = []

    def dead() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise Ended

    # A topic of no partitions is never made.
    with pytest.raises(Ended):
        ensure(Producer(client), AdminClient(client), [NewTopic("never", 0, 1)], dead)
    assert len(looks) == 3
