"""Accumulators of a subtask: what is committed counts once, over all attempts."""

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
def test_what_attempts_have_committed_adds_up_and_what_they_have_not_is_gone(
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


def test_an_accumulator_that_was_asked_for_and_has_not_counted_is_told_of_as_nothing() -> None:
    running = Accumulators()
    running.counter("bad lines")
    assert running.take_changes() is not None
    assert running.committed() == {"bad lines": 0}
    assert running.take_changes() is None


def test_a_counter_is_the_same_each_time_and_tells_of_its_own_attempt() -> None:
    running = Accumulators()
    running.restore(b"\x81\xa1a\xcb@\x14\x00\x00\x00\x00\x00\x00")
    running.counter("a").inc()
    running.counter("a").inc(1.5)
    assert running.counter("a").value == 2.5
    running.take_changes()
    assert running.committed() == {"a": 7.5}


@pytest.mark.parametrize("n", [float("inf"), float("nan")])
def test_what_is_no_finite_number_is_not_counted(n: float) -> None:
    counter = Accumulators().counter("a")
    with pytest.raises(ValueError, match="'a' can't be"):
        counter.inc(n)
    assert counter.value == 0


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * (MAX_ACCUMULATOR_NAME_LENGTH + 1), 3])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="accumulator"):
        Accumulators().counter(name)


def test_there_are_so_many_and_no_more() -> None:
    running = Accumulators()
    for number in range(MAX_ACCUMULATORS):
        running.counter(str(number))
    with pytest.raises(ValueError, match=f"has {MAX_ACCUMULATORS} already"):
        running.counter("one more")


counted = st.dictionaries(names, st.integers(-9, 9))


@given(st.lists(counted, max_size=4), counted)
def test_what_several_subtasks_have_counted_is_counted_on_by_one(
    before: list[dict[str, int]], after: dict[str, int]
) -> None:
    expected = dict.fromkeys(after, 0.0)
    taken = Accumulators()
    for index, counts in enumerate(before):
        origin = Accumulators()
        for name, n in counts.items():
            origin.counter(name).inc(n)
            expected[name] = expected.get(name, 0) + n
        origin.take_changes()
        taken.restore_from(Origin(index, len(before), 128))
        for _, message in origin.full([]):
            taken.restore(message)
    taken.restore_from(None)
    assert taken.committed() == {
        name: n for name, n in expected.items() if any(name in each for each in before)
    }
    for name, n in after.items():
        taken.counter(name).inc(n)
        expected[name] += n
    changed = taken.take_changes()
    assert taken.committed() == expected
    if changed is not None:
        taken.restore(changed)
        assert taken.committed() == expected, "what follows in the changelog are totals"
