"""The number of time series is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.metrics import table
from tailrace.services.metrics.samples import Sample, limit_series

SIZES = st.lists(st.integers(0, 20), max_size=20)


@given(SIZES, st.integers(0, 200))
def test_first_groups_within_limit_are_kept_whole(sizes: list[int], most: int) -> None:
    groups = [[Sample(table.EVENTS, (f"{i}/{j}",), j) for j in range(size)] for i, size in enumerate(sizes)]
    kept, omitted = limit_series(groups, most)
    assert len(kept) <= most
    assert len(kept) + omitted == sum(sizes)
    assert any(
        kept == [sample for group in groups[:count] for sample in group] for count in range(len(groups) + 1)
    )


@given(SIZES, SIZES, st.integers(0, 200))
def test_later_groups_do_not_displace_earlier_ones(before: list[int], added: list[int], most: int) -> None:
    groups = [
        [Sample(table.EVENTS, (f"{i}/{j}",), j) for j in range(size)]
        for i, size in enumerate((*before, *added))
    ]
    kept, _ = limit_series(groups[: len(before)], most)
    kept_with_added, _ = limit_series(groups, most)
    assert kept_with_added[: len(kept)] == kept
