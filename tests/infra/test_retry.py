"""Transient errors are retried until a timeout; other errors are raised at once."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.infra.retry import ABSENT, RETRIABLE_ERRORS, retry_until


class FlakyRequest:
    """Raises the given errors first, then returns 7."""

    def __init__(self, code: int, errors: int) -> None:
        self._code, self.left = code, errors

    def __call__(self) -> int:
        if not self.left:
            return 7
        self.left -= 1
        raise KafkaException(KafkaError(self._code))


@pytest.mark.parametrize("code", sorted(RETRIABLE_ERRORS | ABSENT))
def test_retry_waits_for_transient_error(code: int) -> None:
    request = FlakyRequest(code, 3)
    assert retry_until(request, moving_s=60, absent_s=60) == 7


@pytest.mark.parametrize("code", sorted(RETRIABLE_ERRORS | ABSENT))
def test_each_error_kind_has_its_own_timeout(code: int) -> None:
    request = FlakyRequest(code, 1_000)
    with pytest.raises(KafkaException):
        retry_until(
            request, moving_s=0.1 if code in RETRIABLE_ERRORS else 60, absent_s=0.1 if code in ABSENT else 60
        )
    assert request.left < 999, "it was asked again"


def test_other_error_is_raised_at_once_unless_marked_transient() -> None:
    request = FlakyRequest(KafkaError._TRANSPORT, 2)
    with pytest.raises(KafkaException):
        retry_until(request, moving_s=60, absent_s=60)
    assert request.left == 1
    assert retry_until(request, moving_s=60, absent_s=0, passing=frozenset({KafkaError._TRANSPORT})) == 7
