"""A failure that repeats is called that, with the place of the record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.repetition import repetition

AT = "ValueError: no at p.py:3, in operator 'Map', at topic t [0] offset 17"


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ([], ""),
        ([AT], ""),
        ([AT, AT.replace("17", "18")], ""),
        ([AT + "\nTraceback", AT], "fails again at the same record, topic t [0] offset 17, for the 2nd time"),
        (["other", *[AT] * 3], "fails again at the same record, topic t [0] offset 17, for the 3rd time"),
        (["no such file"] * 11, "fails again with the same error for the 11th time"),
    ],
)
def test_the_last_failure_is_counted_with_those_before_it(failures: list[str], said: str) -> None:
    assert repetition(failures) == said


def test_of_failures_that_are_not_all_the_count_is_a_lower_bound() -> None:
    assert repetition(["a"] * 4, are_all=False) == "fails again with the same error for at least the 4th time"
    assert repetition(["b", *["a"] * 3], are_all=False) == "fails again with the same error for the 3rd time"


@given(st.lists(st.sampled_from(["a", "b\nc", "b"]), max_size=8))
def test_only_equal_failures_in_a_row_count(failures: list[str]) -> None:
    lines = [each[0] for each in failures]
    again = len(lines) > 1 and lines[-1] == lines[-2]
    assert bool(repetition(failures)) == again
