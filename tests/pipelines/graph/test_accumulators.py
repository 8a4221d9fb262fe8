"""The aggregation of accumulators over reports."""

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
def test_sums_are_finite_and_independent_of_order(parts: list[dict[str, float]], draw: object) -> None:
    known = [bounded(part) for part in parts]
    result = total(known)
    assert all(math.isfinite(value) and fault(name) is None for name, value in result.items())
    draw.shuffle(known)  # type: ignore[attr-defined]
    assert total(known) == result


@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), st.integers(), max_size=9
    )
)
def test_one_subtask_is_its_own_sum(known: dict[str, int]) -> None:
    as_floats = {name: float(value) for name, value in known.items() if abs(value) < 2**53}
    assert total([bounded(as_floats)]) == {
        name: value for name, value in as_floats.items() if len(name) <= MAX_ACCUMULATOR_NAME_LENGTH
    }


def test_first_names_are_kept_if_there_are_too_many() -> None:
    many = {f"{number:04}": 1.0 for number in range(2 * MAX_ACCUMULATORS)}
    assert list(bounded(many)) == list(total([many])) == sorted(many)[:MAX_ACCUMULATORS]
