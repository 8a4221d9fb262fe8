"""An admin client whose metadata is outdated is replaced; any other error keeps the client."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.infra.admin_client_cache import OUTDATED, AdminClientCache


@pytest.fixture
def admin() -> AdminClientCache:
    """Returns an admin client of an address where no broker listens."""
    return AdminClientCache(lambda: {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


@pytest.mark.parametrize("code", sorted(OUTDATED))
def test_admin_client_cache_replaces_outdated_client_once(admin: AdminClientCache, code: int) -> None:
    first = admin.client()
    admin.note_error(KafkaException(KafkaError(code)))
    second = admin.client()
    assert second is not first
    assert admin.client() is second


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), TimeoutError()])
def test_admin_client_cache_keeps_client_after_other_errors(
    admin: AdminClientCache, error: BaseException
) -> None:
    first = admin.client()
    admin.note_error(error)
    assert admin.client() is first
