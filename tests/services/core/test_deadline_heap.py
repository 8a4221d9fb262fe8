"""DeadlineHeap behaves as a mapping that knows its smallest value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.core.deadline_heap import DeadlineHeap

ADDRESS = st.sampled_from("abcde")
TIME = st.integers(0, 5)
STEP = st.tuples(ADDRESS, st.none() | TIME) | TIME


@given(st.lists(STEP, max_size=40))
def test_earliest_deadline_equals_minimum_of_mapping(steps: list[tuple[str, int | None] | int]) -> None:
    deadlines, plain = DeadlineHeap(), dict[str, int]()
    for step in steps:
        if isinstance(step, int):
            due = sorted((time, item) for item, time in plain.items() if time <= step)
            assert deadlines.pop_expired(step) == [element for _, element in due]
            plain = {value: time for value, time in plain.items() if time > step}
        else:
            deadlines.set(*step)
            plain.pop(step[0], None)
            if step[1] is not None:
                plain[step[0]] = step[1]
        assert deadlines.earliest() == min(plain.values(), default=None)
