"""A failure that repeats is called that, with the place of the record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.core.failure_repetition import describe_repetition

AT = "ValueError: no at p.py:3, in operator 'Map', at topic t [0] offset 17"


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ([], ""),
        ([AT], ""),
        ([AT, AT.replace("17", "18")], ""),
        (
            [AT + "\nTraceback", AT],
            "fails again at the same position, topic t [0] offset 17, for the 2nd time",
        ),
        (["other", *[AT] * 3], "fails again at the same position, topic t [0] offset 17, for the 3rd time"),
        (
            [AT.replace("no", "at 0x1"), AT.replace("no", "at 0x2")],
            "fails again at the same position, topic t [0] offset 17, for the 2nd time",
        ),
        ([AT + ", record 3 of 9, key 'a'", AT + ", record 4 of 9, key 'a'"], ""),
        (
            ["no, in operator \"it's\", at the window [0, 10), key 'a'"] * 2,
            "fails again at the same position, the window [0, 10), key 'a', for the 2nd time",
        ),
        (
            ["operator 'S' cannot write 1 to o as json: no, at topic t [0] offset 17, record 2 of 3"] * 2,
            "fails again at the same position, topic t [0] offset 17, record 2 of 3, for the 2nd time",
        ),
        (
            ["the message at offset 7 of t, partition 0, cannot be read: no"] * 2,
            "fails again at the same position, offset 7 of t, partition 0, for the 2nd time",
        ),
        (["no such file"] * 11, "fails again with the same error for the 11th time"),
    ],
)
def test_the_last_failure_is_counted_with_those_before_it(failures: list[str], said: str) -> None:
    assert describe_repetition(failures) == said


def test_of_failures_that_are_not_all_the_count_is_a_lower_bound() -> None:
    assert (
        describe_repetition(["a"] * 4, are_all=False)
        == "fails again with the same error for at least the 4th time"
    )
    assert (
        describe_repetition(["b", *["a"] * 3], are_all=False)
        == "fails again with the same error for the 3rd time"
    )


@given(st.lists(st.sampled_from(["a", "b\nc", "b"]), max_size=8))
def test_only_equal_failures_in_a_row_count(failures: list[str]) -> None:
    lines = [each[0] for each in failures]
    again = len(lines) > 1 and lines[-1] == lines[-2]
    assert bool(describe_repetition(failures)) == again
