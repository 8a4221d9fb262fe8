"""Topics that are wanted at the start exist afterwards, whoever made them; nobody waits for a broker that is dead."""

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
    """What this one is asked to create first, another client creates a moment earlier."""

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
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=30).topics.items()}


def alive() -> None:
    """The broker's process is."""


def test_a_broker_that_has_started_has_its_internal_topics(client: dict[str, Any]) -> None:
    admin = AdminClient(client)
    found = partitions(admin)
    assert (found["__consumer_offsets"], found["__transaction_state"]) == (4, 4)
    other = {"offsets.topic.num.partitions": "9", "transaction.state.log.num.partitions": "9"}
    ensure_internal_topics(Producer(client), admin, other, alive)
    assert partitions(admin) == found


def test_a_topic_that_another_client_made_in_the_meantime_is_as_good(client: dict[str, Any]) -> None:
    admin = Hurried(client)
    ensure(Producer(client), admin, [NewTopic("first", 2, 1), NewTopic("second", 3, 1)], alive)
    assert admin.overtaken == 1
    found = partitions(admin)
    assert (found["first"], found["second"]) == (2, 3)


def test_what_the_look_raises_ends_the_attempts(client: dict[str, Any]) -> None:
    looks: list[int] = []

    def dead() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise Ended

    # A topic of no partitions is never made.
    with pytest.raises(Ended):
        ensure(Producer(client), AdminClient(client), [NewTopic("never", 0, 1)], dead)
    assert len(looks) == 3
