"""Keyed state: the writes of any number of commits restore it; tables compared with plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines.runtime.state_backend.programs import (
    ALL,
    DEEDS,
    backend,
    in_order,
    mapped,
    programs,
    window_lists,
    windows,
)

from tailrace.pipelines.functions import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tailrace.pipelines.runtime.common.failures import StateTypeError
from tailrace.pipelines.runtime.state_backend.changelog import MAX_MESSAGE_BYTES
from tailrace.pipelines.runtime.state_backend.event_times import EventTimes
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.state_backend.state_handles import (
    TableListState,
    TableMapState,
    TableValueState,
)
from tailrace.pipelines.types import PICKLED, Types

# Tables of windows and the items of a map are iterated over: their order is kept, too.
ORDERED = ("windows", "window-lists")


def same(a: KeyedStateBackend, b: KeyedStateBackend) -> None:
    first, second = a.snapshot(), b.snapshot()
    assert first == second
    for name in ORDERED:
        for window, held in first[name].items():
            assert in_order(held) == in_order(second[name][window])
    for key, held in first["map"].items():
        assert in_order(held) == in_order(second["map"][key])


@pytest.mark.parametrize("deeds", [*DEEDS.values(), ALL], ids=[*DEEDS, "all"])
@given(data=st.data())
def test_changes_of_any_commits_restore_state(deeds: list[Any], data: st.DataObject) -> None:
    lived, changelog = backend(), list[bytes]()
    for step in data.draw(programs(deeds)):
        if step is None:
            changelog += lived.take_changes()
        else:
            step(lived)
    changelog += lived.take_changes()
    assert lived.take_changes() == [], "nothing changed since"
    restored = backend()
    for message in changelog:
        restored.restore(message)
    same(restored, lived)
    assert restored.take_changes() == [], "what was restored is not written again"


@pytest.mark.parametrize("deeds", [*DEEDS.values(), ALL], ids=[*DEEDS, "all"])
@given(data=st.data())
def test_restored_state_continues_like_original(deeds: list[Any], data: st.DataObject) -> None:
    """After a crash at each commit, the following steps give the same results."""
    lived, crashed, changelog = backend(), backend(), list[bytes]()
    for step in data.draw(programs(deeds)):
        if step is None:
            changelog += lived.take_changes()
            crashed = backend()
            for message in changelog:
                crashed.restore(message)
        elif deeds is DEEDS["windows"] or deeds is DEEDS["window-lists"]:
            assert in_order(step(lived)) == in_order(step(crashed))
        else:
            assert step(lived) == step(crashed)
    same(crashed, lived)


@pytest.mark.parametrize("table", ["map", "windows", "window-lists"])
def test_entry_removed_and_set_again_between_commits_comes_last(table: str) -> None:
    lived, restored = backend(), backend()
    match table:
        case "map":
            for item in (0, 1):
                mapped(lived).put("a", item, "")
            mapped(lived).remove("a", 0)
            mapped(lived).put("a", 0, "")
            assert list(mapped(lived).get("a")) == [1, 0]
        case "windows":
            for key in "ab":
                windows(lived).put(key, (key, 0), 5)
            windows(lived).drop(5)
            for key in "ba":
                windows(lived).put(key, (key, 0), 5)
        case _:
            for key in "ab":
                window_lists(lived).extend(key, [0], 5)
            window_lists(lived).drop(5)
            for key in "ba":
                window_lists(lived).extend(key, [0], 5)
    for message in lived.take_changes():
        restored.restore(message)
    same(lived, restored)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=20))
def test_timers_fire_once_in_same_order_for_any_order_of_registration(
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
def test_only_appended_elements_of_list_are_written(
    first: list[int], second: list[int], replaced: bool
) -> None:
    state = KeyedStateBackend(Types.STRING(), 128)
    table = state.list_table("list", PICKLED)
    table.extend("a", [b"x" * 10_000])
    state.take_changes()
    table.extend("a", first)
    if replaced:
        table.replace("a", second)
    written = sum(map(len, state.take_changes()))
    assert written < 2_000, "not the long element again"


@dataclass(frozen=True)
class Point:
    x: int
    y: str


def test_function_sees_state_of_current_key() -> None:
    state = KeyedStateBackend(Types.STRING(), 128)
    of_value = ValueStateDescriptor("v", Point, Point(0, "none"))
    of_list = ListStateDescriptor("l", int)
    of_map = MapStateDescriptor("m", str, int)
    of_one = TableValueState(state, state.value_table("v", of_value.record_type), of_value.default)
    elements: TableListState[int] = TableListState(state, state.list_table("l", of_list.record_type))
    counts: TableMapState[str, int] = TableMapState(
        state, state.map_table("m", of_map.key_record_type, of_map.value_record_type)
    )
    state.current_key = "a"
    of_one.update(Point(1, "one"))
    elements.add(1)
    elements.add_all(n + 1 for n in elements)
    counts.update(x=1, y=2)
    del counts["x"]
    state.current_key = "b"
    assert of_one.value() == Point(0, "none")
    assert list(elements) == []
    assert dict(counts) == {}
    with pytest.raises(KeyError):
        del counts["x"]
    state.current_key = "a"
    assert (of_one.value(), list(elements), dict(counts), "x" in counts) == (
        Point(1, "one"),
        [1, 2],
        {"y": 2},
        False,
    )
    of_one.clear()
    elements.update([])
    counts.clear()
    assert state.snapshot() == {"v": {}, "l": {}, "m": {}, "~times": EventTimes(state.watermark, state.clock)}


def test_state_declared_after_restore_is_available() -> None:
    lived = KeyedStateBackend(Types.STRING(), 128)
    lived.value_table("v", Types.LONG()).put("a", 7)
    restored = KeyedStateBackend(Types.STRING(), 128)
    for message in lived.take_changes():
        restored.restore(message)
    assert restored.value_table("v", Types.LONG()).snapshot() == {"a": 7}


@pytest.mark.parametrize("max_parallelism", [4, 100, 256])
def test_broadcast_state_is_read_at_another_maximum_parallelism(max_parallelism: int) -> None:
    lived = KeyedStateBackend(Types.STRING(), 128)
    lived.broadcast_table("rules", Types.LONG(), Types.STRING()).put_item(1, "x")
    restored = KeyedStateBackend(Types.STRING(), max_parallelism)
    for message in lived.take_changes():
        restored.restore(message)
    again = KeyedStateBackend(Types.STRING(), 128)
    table = again.broadcast_table("rules", Types.LONG(), Types.STRING())
    restored.broadcast_table("rules", Types.LONG(), Types.STRING())
    for _, message in restored.full([range(max_parallelism)]):
        again.restore(message)
    assert table.items() == {1: "x"}


def test_state_in_other_layout_is_rejected() -> None:
    lived = KeyedStateBackend(Types.STRING(), 128)
    lived.value_table("v", Types.LONG()).put("a", 7)
    restored = KeyedStateBackend(Types.STRING(), 128, operator="Count")
    for message in lived.take_changes():
        restored.restore(message)
    before = "state 'v' of operator 'Count' was written as a value of int by str and is declared as a"
    with pytest.raises(StateTypeError, match=f"{before} value of str by str: it was int and is str; go back"):
        restored.value_table("v", Types.STRING())
    with pytest.raises(ValueError, match="is a value of int but is requested as a list of int"):
        lived.list_table("v", Types.LONG())
    with pytest.raises(ValueError, match="is a value of int but is requested as a reduction of int"):
        lived.value_table("v", Types.LONG(), kind="reduction")


@pytest.mark.parametrize("message", [b"", b"?", b"\x01\x63\0\0\0\0\0\0", b"\x01\x05\0\0\0\0\0\0abc"])
def test_invalid_message_is_rejected(message: bytes) -> None:
    with pytest.raises(ValueError, match="the changelog holds"):
        backend().restore(message)


@pytest.mark.parametrize(
    "values", [{f"{i:06}": ("x" * 50, i) for i in range(40_000)}, {"a": ("x" * 3_000_000, 1), "b": ("", 2)}]
)
def test_no_message_is_larger_than_limit(values: dict[str, tuple[str, int]]) -> None:
    lived = backend()
    table = lived.value_table("windows", Types.TUPLE([str, int]), namespaced=True)
    table.space(0).update(values)
    table.touch(values, 0)
    messages = lived.take_changes()
    assert len(messages) > 1
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    restored = backend()
    for message in messages:
        restored.restore(message)
    assert restored.snapshot() == lived.snapshot()
