"""The real parts that integration tests share: one Kafka for the session, a cluster id for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tailrace.infra.kafka import EmbeddedKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """A running Kafka; its address is `kafka.bootstrap_servers`. Tests that stop or kill one start their own."""
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture
def cluster_id() -> str:
    """A cluster id that no other test has, so that one Kafka serves them all."""
    return f"t{uuid.uuid4().hex[:10]}"
