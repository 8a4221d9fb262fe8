"""Accumulators of a subtask: each committed value counts once, over all attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.accumulators import MAX_ACCUMULATOR_NAME_LENGTH, MAX_ACCUMULATORS
from tailrace.pipelines.runtime.state_backend.accumulators import Accumulators
from tailrace.pipelines.runtime.state_backend.stateful import Origin

names = st.sampled_from("abc")
attempts = st.lists(
    st.lists(st.lists(st.tuples(names, st.integers(-9, 9)), max_size=4), max_size=4), max_size=4
)


@given(attempts)
def test_committed_values_of_attempts_add_up_and_uncommitted_ones_are_lost(
    story: list[list[list[tuple[str, int]]]],
) -> None:
    """Each attempt makes some commits, counts on, and dies."""
    changelog: list[bytes] = []
    expected: dict[str, float] = {}
    for commits in story:
        running = Accumulators()
        for message in changelog:
            running.restore(message)
        for counts in commits:
            for name, n in counts:
                running.counter(name).inc(n)
                expected[name] = expected.get(name, 0) + n
            if (changes := running.take_changes()) is not None:
                changelog.append(changes)
        assert running.committed() == expected
        running.counter("a").inc(1_000)


def test_unused_accumulator_is_reported_as_zero() -> None:
    running = Accumulators()
    running.counter("bad lines")
    assert running.take_changes() is not None
    assert running.committed() == {"bad lines": 0}
    assert running.take_changes() is None


def test_counter_is_cached_and_reports_its_own_attempt() -> None:
    running = Accumulators()
    running.restore(b"\x81\xa1a\xcb@\x14\x00\x00\x00\x00\x00\x00")
    running.counter("a").inc()
    running.counter("a").inc(1.5)
    assert running.counter("a").value == 2.5
    running.take_changes()
    assert running.committed() == {"a": 7.5}


@pytest.mark.parametrize("n", [float("inf"), float("nan")])
def test_value_that_is_not_finite_is_not_counted(n: float) -> None:
    counter = Accumulators().counter("a")
    with pytest.raises(ValueError, match="'a' cannot be"):
        counter.inc(n)
    assert counter.value == 0


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * (MAX_ACCUMULATOR_NAME_LENGTH + 1), 3])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="accumulator"):
        Accumulators().counter(name)


def test_number_of_accumulators_is_limited() -> None:
    running = Accumulators()
    for number in range(MAX_ACCUMULATORS):
        running.counter(str(number))
    with pytest.raises(ValueError, match=f"already has {MAX_ACCUMULATORS}"):
        running.counter("one more")


counted = st.dictionaries(names, st.integers(-9, 9))


@given(st.lists(counted, max_size=4), counted)
def test_values_of_several_subtasks_are_continued_by_one(
    before: list[dict[str, int]], after: dict[str, int]
) -> None:
    expected = dict.fromkeys(after, 0.0)
    accumulators = Accumulators()
    for index, counts in enumerate(before):
        origin = Accumulators()
        for name, n in counts.items():
            origin.counter(name).inc(n)
            expected[name] = expected.get(name, 0) + n
        origin.take_changes()
        accumulators.restore_from(Origin(index, len(before), 128))
        for _, message in origin.full([]):
            accumulators.restore(message)
    accumulators.restore_from(None)
    assert accumulators.committed() == {
        name: n for name, n in expected.items() if any(name in row for row in before)
    }
    for name, n in after.items():
        accumulators.counter(name).inc(n)
        expected[name] += n
    changed = accumulators.take_changes()
    assert accumulators.committed() == expected
    if changed is not None:
        accumulators.restore(changed)
        assert accumulators.committed() == expected, "what follows in the changelog are totals"
