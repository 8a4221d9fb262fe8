"""A failure that repeats is reported as such, with the position of the record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.core.failure_repetition import describe_repetition

AT = "ValueError: no at p.py:3, in operator 'Map', at topic t [0] offset 17"


@pytest.mark.parametrize(
    ("failures", "expected"),
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
def test_last_failure_is_counted_with_equal_ones_before(failures: list[str], expected: str) -> None:
    assert describe_repetition(failures) == expected


def test_count_is_lower_bound_if_failures_are_missing() -> None:
    assert (
        describe_repetition(["a"] * 4, are_all=False)
        == "fails again with the same error for at least the 4th time"
    )
    assert (
        describe_repetition(["b", *["a"] * 3], are_all=False)
        == "fails again with the same error for the 3rd time"
    )


@given(st.lists(st.sampled_from(["a", "b\nc", "b"]), max_size=8))
def test_only_consecutive_equal_failures_count(failures: list[str]) -> None:
    lines = [failure[0] for failure in failures]
    again = len(lines) > 1 and lines[-1] == lines[-2]
    assert bool(describe_repetition(failures)) == again
