"""How counts come together, whoever reports what."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.accumulators import (
    MAX_ACCUMULATOR_NAME_LENGTH,
    MAX_ACCUMULATORS,
    bounded,
    fault,
    total,
)

counts = st.dictionaries(st.text(max_size=3) | st.just("x" * 999), st.floats(), max_size=6)


@given(st.lists(counts, max_size=5), st.randoms())
def test_sums_are_finite_possible_and_the_same_in_any_order(
    parts: list[dict[str, float]], draw: object
) -> None:
    known = [bounded(each) for each in parts]
    found = total(known)
    assert all(math.isfinite(value) and fault(name) is None for name, value in found.items())
    draw.shuffle(known)  # type: ignore[attr-defined]
    assert total(known) == found


@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), st.integers(), max_size=9
    )
)
def test_one_subtask_alone_is_the_sum(known: dict[str, int]) -> None:
    as_floats = {name: float(value) for name, value in known.items() if abs(value) < 2**53}
    assert total([bounded(as_floats)]) == {
        name: value for name, value in as_floats.items() if len(name) <= MAX_ACCUMULATOR_NAME_LENGTH
    }


def test_of_too_many_the_first_by_name_stay() -> None:
    many = {f"{number:04}": 1.0 for number in range(2 * MAX_ACCUMULATORS)}
    assert list(bounded(many)) == list(total([many])) == sorted(many)[:MAX_ACCUMULATORS]
