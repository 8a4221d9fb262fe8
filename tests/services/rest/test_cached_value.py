"""A value that is cached for a few seconds."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.rest.cached_value import CachedValue

KEPT_S = 5.0


@given(st.lists(st.floats(min_value=0, max_value=20), max_size=50))
def test_value_is_read_again_when_it_is_older_than_a_few_seconds(pauses: list[float]) -> None:
    now_s = 0.0
    reads: list[float] = []

    def read() -> float:
        reads.append(now_s)
        return now_s

    value = CachedValue(read, lambda: now_s)
    for pause in pauses:
        now_s += pause
        assert now_s - value.get() < KEPT_S
    assert all(later - earlier >= KEPT_S for earlier, later in itertools.pairwise(reads))


def test_failure_is_not_kept() -> None:
    failures = [OSError("once")]

    def read() -> str:
        if failures:
            raise failures.pop()
        return "read"

    value = CachedValue(read)
    try:
        value.get()
    except OSError as error:
        assert str(error) == "once"
    assert value.get() == "read"
