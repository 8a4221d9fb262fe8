"""The time index behaves as a list of keys sorted by time, at lower cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from instruction_count import count_instructions

from tailrace.services.core.time_index import FifoTimeIndex

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(("add", "remove")), KEYS, st.integers(0, 20)))


@given(STEPS, st.integers(0, 20))
def test_index_equals_list_of_keys_sorted_by_time(steps: list[tuple[str, str, int]], until: int) -> None:
    line, model = FifoTimeIndex(), list[tuple[str, int]]()
    for step, key, time in steps:
        if step == "remove":
            line, model = line.remove(key), [pair for pair in model if pair[0] != key]
        else:
            before = line
            line = line.add(key, time)
            if key in dict(model):
                assert line is before
            else:
                # Python sorts stably: those of one time stay in the order in which they came.
                model = sorted([*model, (key, time)], key=lambda item: item[1])
        assert list(line) == [key for key, _ in model]
        assert (len(line), bool(line)) == (len(model), bool(model))
        assert line.first == (model[0] if model else None)
        assert list(line.until(until)) == [key for key, time in model if time <= until]
        assert all((key in line) == (key in dict(model)) for key in "abcdef")


@given(STEPS)
def test_move_to_end_gives_all_keys_one_time(steps: list[tuple[str, str, int]]) -> None:
    line = FifoTimeIndex()
    for step, key, time in steps:
        line = line.add(key, time) if step == "add" else line.remove(key)
    again = line.move_to_end(5)
    assert list(again) == list(again.until(5)) == list(line)
    assert list(again.until(4)) == []


def test_removal_of_last_key_leaves_empty_index() -> None:
    assert FifoTimeIndex().add("a", 3).add("b", 4).remove("a").remove("b") == FifoTimeIndex()


def test_clock_ahead_affects_only_its_own_keys() -> None:
    ahead = FifoTimeIndex().add("first", 10).add("of a clock that is ahead", 10**12)
    for line in (ahead, ahead.remove("of a clock that is ahead")):
        assert list(line.add("second", 20).until(20)) == ["first", "second"]


def test_cost_of_key_is_independent_of_size() -> None:
    def cost(count: int) -> int:
        line = FifoTimeIndex()
        for number in range(count):
            line = line.add(f"k{number}", number)
        for number in range(0, count - 1, 2):
            line = line.remove(f"k{number}")
        return count_instructions(lambda: line.add("one more", count).remove(f"k{count - 1}").first)

    assert cost(2_000) == cost(20)
