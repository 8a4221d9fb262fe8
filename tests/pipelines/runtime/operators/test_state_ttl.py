"""State with a time to live equals dictionaries whose entries are removed when their time has passed.

This holds at any commits and crashes, and however much of the expired state is still stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines.runtime.harness import Clock, Commit, Item, Records, Subject, run

from tailrace.pipelines.api import ProgramError, StreamExecutionEnvironment
from tailrace.pipelines.functions import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OnTimerContext,
    ReducingStateDescriptor,
    RuntimeContext,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tailrace.pipelines.functions.state_ttl import StateTtlConfigBuilder
from tailrace.pipelines.graph.key_groups import key_group_of, key_groups_of_subtask
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK
from tailrace.pipelines.runtime.state_backend.entry_store import HEAP, EntryStore
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.state_backend.rocksdb_database import RocksDatabase
from tailrace.pipelines.runtime.state_backend.rocksdb_store import open_store
from tailrace.pipelines.runtime.state_backend.state_handles import KeyedStateAccess
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.pipelines.types import Types

TTL_MS = 10
Record = tuple[str, int, int]
"""Key, what to do, a number."""
RECORDS = st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 2))


def builder(ms: int = TTL_MS) -> StateTtlConfigBuilder:
    return StateTtlConfig.new_builder(timedelta(milliseconds=ms))


def expiring(descriptor: StateDescriptor, ttl: StateTtlConfig) -> Any:
    descriptor.enable_time_to_live(ttl)
    return descriptor


class Joined(AggregateFunction[int, list[int], str]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> str:
        return "+".join(map(str, accumulator))

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return a + b


class Expiring(KeyedProcessFunction[str, Record, Any]):
    """All kinds of state with a time to live: `Model` does the same by hand."""

    def __init__(self, ttl: StateTtlConfig) -> None:
        self.ttl = ttl

    def open(self, context: RuntimeContext) -> None:
        self.value = context.get_state(expiring(ValueStateDescriptor("value", int, -1), self.ttl))
        self.list = context.get_list_state(expiring(ListStateDescriptor("list", int), self.ttl))
        self.map = context.get_map_state(expiring(MapStateDescriptor("map", int, int), self.ttl))
        of_sum = ReducingStateDescriptor("sum", lambda a, b: a + b, int)
        self.sum = context.get_reducing_state(expiring(of_sum, self.ttl))
        of_text = AggregatingStateDescriptor("text", Joined(), list[int])
        self.text = context.get_aggregating_state(expiring(of_text, self.ttl))
        self.kept = context.get_state(ValueStateDescriptor("kept", int))

    def process_element(self, value: Record, context: KeyedContext[str]) -> Iterable[Any]:
        key, what, number = value
        match what:
            case 0:
                self.value.update(number)
                self.kept.update(number)
            case 1:
                self.list.add_all([number, number + 1])
            case 2:
                self.map[number] = what
            case 3:
                self.sum.add(number)
                self.text.add(number)
            case 4:
                yield self.map.pop(number, None), number in self.map
            case 5:
                self.list.update([number])
            case 6:
                for state in (self.value, self.list, self.map, self.sum, self.text):
                    state.clear()
            case 7:
                yield key, self.value.value(), self.sum.get(), self.text.get(), self.kept.value()
            case 8:
                yield key, list(self.list), number in self.map, self.map.get(number)
            case _:
                yield key, list(self.map.items()), len(self.map)


@dataclass
class Model:
    """The same with dictionaries of (time of the last access, value), and lists of them."""

    reads: bool
    """Whether reading counts as an access."""
    now: int = 0
    values: dict[Any, tuple[int, Any]] = field(default_factory=dict)
    lists: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    maps: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)

    def expire(self) -> None:
        until = self.now - TTL_MS
        self.values = {key: pair for key, pair in self.values.items() if pair[0] > until}
        for key, elements in self.lists.items():
            self.lists[key] = [pair for pair in elements if pair[0] > until]
        for key, items in self.maps.items():
            self.maps[key] = {item: pair for item, pair in items.items() if pair[0] > until}

    def read(self, place: Any) -> Any:
        if place not in self.values:
            return None
        at, value = self.values[place]
        self.values[place] = (self.now if self.reads else at), value
        return value

    def get(self, key: str, item: int) -> Any:
        items = self.maps.setdefault(key, {})
        if item not in items:
            return None
        at, value = items[item]
        items[item] = (self.now if self.reads else at), value
        return value

    def process(self, record: Record) -> list[Any]:
        key, what, number = record
        self.expire()
        elements, items = self.lists.setdefault(key, []), self.maps.setdefault(key, {})
        match what:
            case 0:
                self.values["value", key] = self.now, number
                self.kept[key] = number
            case 1:
                elements += [(self.now, number), (self.now, number + 1)]
            case 2:
                items[number] = self.now, what
            case 3:
                total, text = self.read(("sum", key)), self.read(("text", key))
                self.values["sum", key] = self.now, number + (total or 0)
                self.values["text", key] = self.now, f"{text}+{number}" if text is not None else str(number)
            case 4:
                return [(items.pop(number, (0, None))[1], False)]
            case 5:
                elements[:] = [(self.now, number)]
            case 6:
                elements.clear()
                items.clear()
                for name in ("value", "sum", "text"):
                    self.values.pop((name, key), None)
            case 7:
                found = self.read(("value", key))
                value = -1 if found is None else found
                return [(key, value, self.read(("sum", key)), self.read(("text", key)), self.kept.get(key))]
            case 8:
                if self.reads:
                    elements[:] = [(self.now, value) for _, value in elements]
                is_there = number in items
                return [(key, [value for _, value in elements], is_there, self.get(key, number))]
            case _:
                return [(key, [(item, self.get(key, item)) for item in list(items)], len(items))]
        return []


STEPS = st.lists(
    st.one_of(
        RECORDS.map(lambda record: Records([(0, record)])),
        RECORDS.map(lambda record: Records([(0, record)])),
        st.integers(1, 7),
        st.just(Commit()),
    ),
    max_size=40,
)


@pytest.mark.parametrize("crash", [False, True], ids=["lives", "crashes"])
@given(STEPS, st.booleans(), st.integers(0, 3))
def test_state_is_there_until_its_time_to_live_has_passed(
    crash: bool, steps: list[Any], reads: bool, cleanup_size: int
) -> None:
    config = builder().cleanup_incrementally(cleanup_size)
    ttl = (config.update_ttl_on_read_and_write() if reads else config).build()
    model, program, expected, now = Model(reads), list[Item](), list[Any](), 1_000
    for step in steps:
        if isinstance(step, int):
            now += step
            program.append(Clock(now - 1))
        else:
            program.append(step)
        model.now = now
        if isinstance(step, Records):
            expected += model.process(step.records[0][1])
    parameters = {"key_type": Types.STRING().to_json()}
    subject = Subject("keyed_process", (lambda record: record[0], Expiring(ttl)), parameters)
    given_out = run(subject, [Clock(999), *program], crash=crash)
    assert [value for _, value in given_out.records] == expected


class AtTheEnd(KeyedProcessFunction[str, str, Any]):
    """Emits its state at the end of the input."""

    def open(self, context: RuntimeContext) -> None:
        self.last = context.get_state(expiring(ValueStateDescriptor("last", str), builder().build()))

    def process_element(self, value: str, context: KeyedContext[str]) -> None:
        self.last.update(value)
        context.timer_service.register_processing_time_timer(MAX_WATERMARK - 1)

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[Any]:
        yield self.last.value()


def test_end_of_input_expires_nothing() -> None:
    subject = Subject("keyed_process", (lambda _: "a", AtTheEnd()), {"key_type": "str"})
    assert run(subject, [Clock(5), Records([(0, "x")]), Clock(9)]).records == [(MAX_WATERMARK - 1, "x")]


@dataclass
class Time:
    now: int = 1_000

    def __call__(self) -> int:
        return self.now


def backend(time: Time, groups: range | None = None, store: EntryStore = HEAP) -> KeyedStateBackend:
    return KeyedStateBackend(Types.STRING(), 128, groups, "Count", store, wall_clock=time)


@pytest.fixture(params=["hashmap", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EntryStore]:
    if request.param == "hashmap":
        yield HEAP
        return
    database = RocksDatabase(tmp_path / "database", 0)
    yield open_store(database, "operator", 128)
    database.close()


def call(state: KeyedStateBackend, key: str) -> None:
    state.current_key, state.access_time = key, None


def states(state: KeyedStateBackend, ttl: StateTtlConfig) -> tuple[Any, Any, Any]:
    access = KeyedStateAccess(state)
    return (
        access.get_state(expiring(ValueStateDescriptor("v", int), ttl)),
        access.get_list_state(expiring(ListStateDescriptor("l", int), ttl)),
        access.get_map_state(expiring(MapStateDescriptor("m", int, int), ttl)),
    )


def fill(state: KeyedStateBackend, ttl: StateTtlConfig, keys: Iterable[str]) -> tuple[Any, Any, Any]:
    value, elements, items = states(state, ttl)
    for key in keys:
        call(state, key)
        value.update(1)
        elements.add(1)
        items[1] = 1
    return value, elements, items


def stored(state: KeyedStateBackend) -> dict[str, set[str]]:
    """Returns the keys of each table."""
    return {name: set(held) for name, held in state.snapshot().items() if name != "~times"}


KEYS = [f"k{number}" for number in range(20)]


@pytest.mark.parametrize("is_read", [True, False], ids=["by accesses", "by commits"])
def test_expired_state_that_is_not_read_is_removed_in_rounds(is_read: bool, store: EntryStore) -> None:
    time = Time()
    lived = backend(time, store=store)
    value, elements, items = fill(lived, builder().build(), KEYS)
    changelog = lived.take_changes()
    time.now += TTL_MS
    for number in range(12):  # the rest of a round that has begun, and another one
        if is_read and number % 5:
            call(lived, "other")
            assert (value.value(), list(elements), 1 in items) == (None, [], False)
        else:
            changelog += lived.take_changes()
    assert stored(lived) == {"v": set(), "l": set(), "m": set()}
    restored = backend(time)
    states(restored, builder().build())
    for message in [*changelog, *lived.take_changes()]:
        restored.restore(message)
    assert stored(restored) == stored(lived)


def test_expired_state_is_left_out_of_full_files(store: EntryStore) -> None:
    time = Time()
    lived = backend(time, store=store)
    ttl = builder().disable_cleanup_in_background().build()
    fill(lived, ttl, KEYS)
    time.now += TTL_MS - 1
    fill(lived, ttl, KEYS[:3])
    time.now += 1
    lived.take_changes()
    assert all(keys == set(KEYS) for keys in stored(lived).values())
    restored = backend(Time())
    _, elements, _ = states(restored, ttl)
    for _, message in lived.full([range(128)]):
        restored.restore(message)
    assert all(keys == set(KEYS[:3]) for keys in stored(restored).values())
    call(restored, KEYS[0])
    assert list(elements) == [1]


@given(st.integers(1, 4), st.integers(1, 4))
def test_restored_state_keeps_its_time_at_any_parallelism(before: int, after: int) -> None:
    time = Time()
    ttl = builder().build()
    old = [backend(time, key_groups_of_subtask(index, 128, before)) for index in range(before)]
    messages = []
    for index, state in enumerate(old):
        own = [key for key in KEYS if key_group_of(key, 128) in state.key_groups]
        fill(state, ttl, own[::2])
        time.now += 5
        fill(state, ttl, own[1::2])
        time.now -= 5
        changes = state.take_changes()
        messages.append((Origin(index, before, 128), changes))
    lives: dict[int, set[str]] = {TTL_MS - 1: set(), TTL_MS: set(), TTL_MS + 5: set()}
    for index in range(after):
        state = backend(time, key_groups_of_subtask(index, 128, after))
        value, elements, items = states(state, ttl)
        for origin, changes in messages:
            state.restore_from(origin)
            for message in changes:
                state.restore(message)
        state.restore_from(None)
        for passed, seen in lives.items():
            time.now = 1_000 + passed
            for key in KEYS:
                if key_group_of(key, 128) in state.key_groups:
                    call(state, key)
                    is_there = value.value() is not None
                    assert (list(elements) == [1], dict(items) == {1: 1}) == (is_there, is_there)
                    seen.update([key] * is_there)
        time.now = 1_000
    late = {
        key
        for index in range(before)
        for key in [k for k in KEYS if key_group_of(k, 128) in key_groups_of_subtask(index, 128, before)][
            1::2
        ]
    }
    assert lives == {TTL_MS - 1: set(KEYS), TTL_MS: late, TTL_MS + 5: set()}


def test_expired_state_is_returned_once_if_not_cleaned_up() -> None:
    time = Time()
    lived = backend(time)
    ttl = builder().return_expired_if_not_cleaned_up().disable_cleanup_in_background().build()
    value, elements, items = fill(lived, ttl, "a")
    time.now += TTL_MS
    call(lived, "a")
    assert (value.value(), list(elements), 1 in items, list(items), items[1]) == (1, [1], True, [1], 1)
    assert (value.value(), list(elements), 1 in items, list(items)) == (None, [], False, [])


def test_no_state_expires_during_a_call() -> None:
    time = Time()
    lived = backend(time)
    _, _, items = fill(lived, builder().build(), "a")
    call(lived, "a")
    for item in items:
        time.now += TTL_MS
        assert items[item] == 1


def test_keys_with_expired_state_are_not_visited() -> None:
    time = Time()
    lived = backend(time)
    ttl = builder().build()
    fill(lived, ttl, "ab")
    time.now += TTL_MS
    fill(lived, ttl, "b")
    visited = list[str]()
    for descriptor in (
        ValueStateDescriptor("v", int),
        ListStateDescriptor("l", int),
        MapStateDescriptor("m", int, int),
    ):
        lived.access_time = None
        KeyedStateAccess(lived).for_each_key(expiring(descriptor, ttl), lambda key, _: visited.append(key))
    assert visited == ["b", "b", "b"]


def test_time_to_live_belongs_to_layout_of_state() -> None:
    lived = backend(Time())
    fill(lived, builder().build(), "a")
    with pytest.raises(
        ValueError, match="is a value of int with a time to live but is requested as a value of int:"
    ):
        KeyedStateAccess(lived).get_state(ValueStateDescriptor("v", int))
    disabled = builder().set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    KeyedStateAccess(lived).get_state(expiring(ValueStateDescriptor("other", int), disabled)).update(1)
    assert lived.snapshot()["other"] == {"a": 1}


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(microseconds=999), 5, "1 h"])
def test_time_to_live_is_at_least_a_millisecond(ttl: Any) -> None:
    with pytest.raises(ValueError, match="a timedelta of at least a millisecond, not"):
        StateTtlConfig.new_builder(ttl).build()


def test_broadcast_state_has_no_time_to_live() -> None:
    stream = StreamExecutionEnvironment().from_collection(["a"], str)
    rules = expiring(MapStateDescriptor("rules", str, str), builder().build())
    with pytest.raises(ProgramError, match="'rules' has a time to live: only keyed state can expire"):
        stream.broadcast(rules)
