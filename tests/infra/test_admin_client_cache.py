"""A client that does not know who leads a partition now is replaced; any other error leaves it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.infra.admin_client_cache import OUTDATED, AdminClientCache


@pytest.fixture
def admin() -> AdminClientCache:
    """Nobody listens there."""
    return AdminClientCache({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


@pytest.mark.parametrize("code", sorted(OUTDATED))
def test_an_outdated_client_is_replaced_once(admin: AdminClientCache, code: int) -> None:
    first = admin.client()
    admin.note_error(KafkaException(KafkaError(code)))
    second = admin.client()
    assert second is not first
    assert admin.client() is second


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), TimeoutError()])
def test_others_leave_it(admin: AdminClientCache, error: BaseException) -> None:
    first = admin.client()
    admin.note_error(error)
    assert admin.client() is first
