"""A Timeline is a list of keys with times that never go back; only cheaper."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.timeline import Timeline

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(("add", "remove")), KEYS, st.integers(0, 20)))


@given(STEPS, st.integers(0, 20))
def test_it_is_a_list_of_keys_with_times_that_never_go_back(
    steps: list[tuple[str, str, int]], until: int
) -> None:
    line, model = Timeline(), list[tuple[str, int]]()
    for step, key, time in steps:
        if step == "remove":
            line, model = line.remove(key), [each for each in model if each[0] != key]
        else:
            before = line
            line = line.add(key, time)
            if key in dict(model):
                assert line is before
            else:
                model.append((key, max(time, before.latest)))
        times = [time for _, time in model]
        assert times == sorted(times)
        assert list(line) == [key for key, _ in model]
        assert (len(line), bool(line)) == (len(model), bool(model))
        assert line.first == (model[0] if model else None)
        assert list(line.until(until)) == [key for key, time in model if time <= until]
        assert all((key in line) == (key in dict(model)) for key in "abcdef")


@given(STEPS)
def test_from_now_on_all_keys_have_one_time(steps: list[tuple[str, str, int]]) -> None:
    line = Timeline()
    for step, key, time in steps:
        line = line.add(key, time) if step == "add" else line.remove(key)
    again = line.again(5)
    assert list(again) == list(again.until(5)) == list(line)
    assert list(again.until(4)) == []


def test_the_last_key_takes_all_traces_with_it() -> None:
    assert Timeline().add("a", 3).add("b", 4).remove("a").remove("b") == Timeline()
