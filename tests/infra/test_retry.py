"""What passes is waited for as long as it may take; what does not pass is said at once."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.infra.retry import ABSENT, RETRIABLE_ERRORS, retry_until


class Asked:
    """Answers with errors first, then with 7."""

    def __init__(self, code: int, errors: int) -> None:
        self._code, self.left = code, errors

    def __call__(self) -> int:
        if not self.left:
            return 7
        self.left -= 1
        raise KafkaException(KafkaError(self._code))


@pytest.mark.parametrize("code", sorted(RETRIABLE_ERRORS | ABSENT))
def test_what_is_said_for_a_moment_is_waited_for(code: int) -> None:
    asked = Asked(code, 3)
    assert retry_until(asked, moving_s=60, absent_s=60) == 7


@pytest.mark.parametrize("code", sorted(RETRIABLE_ERRORS | ABSENT))
def test_each_kind_has_a_patience_of_its_own(code: int) -> None:
    asked = Asked(code, 1_000)
    with pytest.raises(KafkaException):
        retry_until(
            asked, moving_s=0.1 if code in RETRIABLE_ERRORS else 60, absent_s=0.1 if code in ABSENT else 60
        )
    assert asked.left < 999, "it was asked again"


def test_whatever_else_goes_wrong_is_raised_at_once_unless_it_passes_too() -> None:
    asked = Asked(KafkaError._TRANSPORT, 2)
    with pytest.raises(KafkaException):
        retry_until(asked, moving_s=60, absent_s=60)
    assert asked.left == 1
    assert retry_until(asked, moving_s=60, absent_s=0, passing=frozenset({KafkaError._TRANSPORT})) == 7
