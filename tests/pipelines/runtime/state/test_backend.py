"""Keyed state: what is written at commits, however many there are, restores it; tables against plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.functions import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tailrace.pipelines.runtime.state.backend import KeyedStateBackend
from tailrace.pipelines.runtime.state.changelog import LIMIT
from tailrace.pipelines.runtime.state.handles import TableListState, TableMapState, TableValueState
from tailrace.pipelines.types import PICKLED, Types

KEYS = st.sampled_from(["a", "b", "ключ", ""])
SMALL = st.integers(0, 3)


def backend() -> KeyedStateBackend:
    made = KeyedStateBackend(Types.STRING(), 128)
    made.value_table("value", Types.LONG())
    made.value_table("windows", Types.TUPLE([str, int]), namespaced=True)
    made.list_table("list", Types.LONG())
    made.list_table("window-lists", PICKLED, namespaced=True)
    made.map_table("map", Types.LONG(), Types.STRING())
    made.timer_table("timers")
    return made


Step = Callable[[KeyedStateBackend], Any]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    key, item, number, numbers = draw(KEYS), draw(SMALL), draw(SMALL), draw(st.lists(SMALL, max_size=3))
    kinds: list[Step] = [
        lambda b: b.value_table("value", Types.LONG()).put(key, number),
        lambda b: b.value_table("value", Types.LONG()).remove(key),
        lambda b: b.value_table("windows", Types.TUPLE([str, int]), namespaced=True).put(
            key, (key, number), item
        ),
        lambda b: b.value_table("windows", Types.TUPLE([str, int]), namespaced=True).remove(key, item),
        lambda b: b.value_table("windows", Types.TUPLE([str, int]), namespaced=True).drop(item),
        lambda b: b.list_table("list", Types.LONG()).extend(key, numbers),
        lambda b: b.list_table("list", Types.LONG()).replace(key, numbers),
        lambda b: b.list_table("window-lists", PICKLED, namespaced=True).extend(key, numbers, item),
        lambda b: b.list_table("window-lists", PICKLED, namespaced=True).drop(item),
        lambda b: b.map_table("map", Types.LONG(), Types.STRING()).put(key, item, str(number)),
        lambda b: TableMapState(b, b.map_table("map", Types.LONG(), Types.STRING())).pop(item, None),
        lambda b: b.map_table("map", Types.LONG(), Types.STRING()).clear(key),
        lambda b: b.timer_table("timers").register(key, number),
        lambda b: b.timer_table("timers").delete(key, number),
        lambda b: b.timer_table("timers").pop_due(number),
        lambda b: setattr(b, "watermark", number),
    ]
    chosen = draw(st.integers(0, len(kinds) - 1))

    def step(b: KeyedStateBackend) -> Any:
        b.current_key = key
        return kinds[chosen](b)

    return step


def in_order(state: Any) -> Any:
    """Dictionaries as lists: what iterates differently is different."""
    return [(key, in_order(value)) for key, value in state.items()] if isinstance(state, dict) else state


@given(st.lists(st.one_of(steps(), st.none())))
def test_the_changes_of_any_commits_restore_the_state(program: list[Step | None]) -> None:
    lived, changelog = backend(), list[bytes]()
    for step in program:
        if step is None:
            changelog += lived.take_changes()
        else:
            step(lived)
    changelog += lived.take_changes()
    assert lived.take_changes() == [], "nothing changed since"
    restored = backend()
    for message in changelog:
        restored.restore(message)
    assert restored.snapshot() == lived.snapshot()
    maps = [b.map_table("map", Types.LONG(), Types.STRING()).snapshot() for b in (restored, lived)]
    assert all(in_order(maps[0].get(key, {})) == in_order(maps[1].get(key, {})) for key in maps[1])
    assert restored.take_changes() == [], "what was restored is not written again"


@given(st.lists(st.one_of(steps(), st.none())))
def test_what_was_restored_goes_on_as_what_lived(program: list[Step | None]) -> None:
    """Crash at each commit: the steps that follow do and give the same."""
    lived, crashed, changelog = backend(), backend(), list[bytes]()
    for step in program:
        if step is not None:
            assert step(lived) == step(crashed)
            continue

        changelog += lived.take_changes()
        crashed = backend()
        for message in changelog:
            crashed.restore(message)
    assert crashed.snapshot() == lived.snapshot()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=20))
def test_timers_fire_once_and_in_the_same_order_whoever_registered_first(
    timers: list[tuple[str, int]],
) -> None:
    def fired(registered: list[tuple[str, int]]) -> list[tuple[int, str]]:
        table = backend().timer_table("timers")
        for key, time in registered:
            table.register(key, time)
        due = iter(lambda: table.pop_due(5), None)
        return list(due)

    assert fired(timers) == sorted({(time, key) for key, time in timers}) == fired(timers[::-1])


@given(st.lists(st.integers(), max_size=4), st.lists(st.integers(), max_size=4), st.booleans())
def test_a_list_is_written_by_what_was_appended(first: list[int], second: list[int], replaced: bool) -> None:
    numbers = KeyedStateBackend(Types.STRING(), 128)
    table = numbers.list_table("list", PICKLED)
    table.extend("a", [b"x" * 10_000])
    numbers.take_changes()
    table.extend("a", first)
    if replaced:
        table.replace("a", second)
    written = sum(map(len, numbers.take_changes()))
    assert written < 2_000, "not the long element again"


@dataclass(frozen=True)
class Point:
    x: int
    y: str


def test_a_function_sees_the_state_of_the_key_at_hand() -> None:
    state = KeyedStateBackend(Types.STRING(), 128)
    of_value = ValueStateDescriptor("v", Point, Point(0, "none"))
    of_list = ListStateDescriptor("l", int)
    of_map = MapStateDescriptor("m", str, int)
    value = TableValueState(state, state.value_table("v", of_value.record_type), of_value.default)
    numbers: TableListState[int] = TableListState(state, state.list_table("l", of_list.record_type))
    counts: TableMapState[str, int] = TableMapState(
        state, state.map_table("m", of_map.key_record_type, of_map.value_record_type)
    )
    state.current_key = "a"
    value.update(Point(1, "one"))
    numbers.add(1)
    numbers.add_all(n + 1 for n in numbers)
    counts.update(x=1, y=2)
    del counts["x"]
    state.current_key = "b"
    assert value.value() == Point(0, "none")
    assert list(numbers) == []
    assert dict(counts) == {}
    with pytest.raises(KeyError):
        del counts["x"]
    state.current_key = "a"
    assert (value.value(), list(numbers), dict(counts), "x" in counts) == (
        Point(1, "one"),
        [1, 2],
        {"y": 2},
        False,
    )
    value.clear()
    numbers.update([])
    counts.clear()
    assert state.snapshot() == {"v": {}, "l": {}, "m": {}, "~times": (state.watermark, state.clock)}


def test_state_that_is_asked_for_after_the_restore_is_there() -> None:
    lived = KeyedStateBackend(Types.STRING(), 128)
    lived.value_table("v", Types.LONG()).put("a", 7)
    restored = KeyedStateBackend(Types.STRING(), 128)
    for message in lived.take_changes():
        restored.restore(message)
    assert restored.value_table("v", Types.LONG()).snapshot() == {"a": 7}


def test_state_in_another_layout_is_refused() -> None:
    lived = KeyedStateBackend(Types.STRING(), 128)
    lived.value_table("v", Types.LONG()).put("a", 7)
    (message,) = lived.take_changes()
    restored = KeyedStateBackend(Types.STRING(), 128)
    restored.restore(message)
    with pytest.raises(ValueError, match="another layout than value of str"):
        restored.value_table("v", Types.STRING())
    with pytest.raises(ValueError, match="is a value of int and is asked for as a list of int"):
        lived.list_table("v", Types.LONG())


@pytest.mark.parametrize("message", [b"", b"?", b"\x01\x63\0\0\0\0\0\0", b"\x01\x05\0\0\0\0\0\0abc"])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="the changelog holds"):
        backend().restore(message)


@pytest.mark.parametrize(
    "values", [{f"{i:06}": ("x" * 50, i) for i in range(40_000)}, {"a": ("x" * 3_000_000, 1), "b": ("", 2)}]
)
def test_no_message_is_larger_than_the_limit(values: dict[str, tuple[str, int]]) -> None:
    lived = backend()
    table = lived.value_table("windows", Types.TUPLE([str, int]), namespaced=True)
    table.space(0).update(values)
    table.touch(values, 0)
    messages = lived.take_changes()
    assert len(messages) > 1
    assert max(map(len, messages)) <= LIMIT
    restored = backend()
    for message in messages:
        restored.restore(message)
    assert restored.snapshot() == lived.snapshot()
