"""Nothing is lost, and nothing counts twice, after many restores at other parallelisms: for all kinds of state, in
memory and on disk.

Each program runs at parallelism 1 without a restore first, in memory. Then the same inputs are cut by restores, each at
a random parallelism, on a random backend, from files of all state or of changes; and by crashes.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import Any

import pytest
from example_count import example_count
from pipelines.runtime.harness import Clock, Commit, Records, Subject, Watermark
from pipelines.runtime.rescaled import MAX_PARALLELISM, Crash, RescaledOperator, Restore, Step

from tailrace.pipelines.functions import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeTrigger,
    FunctionInitializationContext,
    KeyedBroadcastContext,
    KeyedBroadcastProcessFunction,
    KeyedContext,
    KeyedProcessFunction,
    KeyedReadOnlyBroadcastContext,
    ListStateDescriptor,
    MapStateDescriptor,
    OnTimerContext,
    ProcessFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tailrace.pipelines.functions.process import Context
from tailrace.pipelines.functions.window import WindowContext
from tailrace.pipelines.runtime.state_backend import rocksdb_timers
from tailrace.pipelines.runtime.state_backend.entry_store import EntryStore, OpenStore, open_heap_store
from tailrace.pipelines.runtime.state_backend.rocksdb_database import RocksDatabase
from tailrace.pipelines.runtime.state_backend.rocksdb_store import open_store
from tailrace.pipelines.types import Types

Pair = tuple[str, int]
PAIR = Types.TUPLE([str, int])
KEYS = [f"key-{number}" for number in range(12)]
RULES = MapStateDescriptor[str, int]("rules", str, int)
TTL_MS = 40
TTL = StateTtlConfig.new_builder(timedelta(milliseconds=TTL_MS)).build()
TELL = -1
"""The record after which a function tells what it has."""


class Sum(AggregateFunction[int, list[int], tuple[int, int]]):
    """The sum and the number, in an accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, int]:
        return accumulator[0], accumulator[1]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [a[0] + b[0], a[1] + b[1]]


class AllKinds(KeyedProcessFunction[str, Pair, Any]):
    """Every kind of keyed state, with and without a time to live, and timers of both clocks."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ValueStateDescriptor("total", int, 0))
        self.seen = context.get_list_state(ListStateDescriptor("seen", int))
        self.counts = context.get_map_state(MapStateDescriptor("counts", int, int))
        self.most = context.get_reducing_state(ReducingStateDescriptor("most", max, int))
        self.sum = context.get_aggregating_state(AggregatingStateDescriptor("sum", Sum(), list[int]))
        lately, often = ValueStateDescriptor("lately", int, 0), MapStateDescriptor("often", int, int)
        lately.enable_time_to_live(TTL)
        often.enable_time_to_live(TTL)
        self.lately = context.get_state(lately)
        self.often = context.get_map_state(often)

    def process_element(self, value: Pair, context: KeyedContext[str]) -> Iterable[Any]:
        _, number = value
        self.total.update((self.total.value() or 0) + number)
        self.seen.add(number)
        self.counts[number % 3] = self.counts.get(number % 3, 0) + 1
        self.most.add(number)
        self.sum.add(number)
        self.lately.update((self.lately.value() or 0) + 1)
        self.often[number % 2] = self.often.get(number % 2, 0) + 1
        if number % 5 == 0:
            self.seen.clear()
        if number % 7 == 0:
            self.counts.clear()
        timers = context.timer_service
        timers.register_event_time_timer(context.timestamp + number)
        timers.register_processing_time_timer(timers.current_processing_time() + number)
        return [self._told(context)]

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[Any]:
        return [(timestamp, self._told(context))]

    def _told(self, context: KeyedContext[str]) -> Any:
        return (
            context.current_key, self.total.value(), list(self.seen), sorted(self.counts.items()),
            self.most.get(), self.sum.get(), self.lately.value(), sorted(self.often.items()),
        )  # fmt: skip


class Rules(KeyedBroadcastProcessFunction[str, Pair, Pair, Any]):
    """Emits each record with all rules; a rule of a negative number is removed."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", int, 0))

    def process_element(self, value: Pair, context: KeyedReadOnlyBroadcastContext[str]) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        return [(value, self.count.value(), sorted(context.get_broadcast_state(RULES).items()))]

    def process_broadcast_element(self, value: Pair, context: KeyedBroadcastContext[str]) -> None:
        rules = context.get_broadcast_state(RULES)
        if value[1] % 4:
            rules[value[0]] = value[1]
        else:
            rules.pop(value[0], None)


class Lists(ProcessFunction[Pair, Any], CheckpointedFunction):
    """Keeps records in a list that is divided and in one that each subtask gets whole, in the list itself or, until the
    next commit, in memory."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.operator_state_store
        self.own = store.get_list_state(ListStateDescriptor("own", tuple[str, int]))
        self.held = store.get_list_state(ListStateDescriptor("held", tuple[str, int]))
        self.shared = store.get_union_list_state(ListStateDescriptor("shared", tuple[str, int]))
        self.pending = list(self.held)
        self.all = set(self.shared)

    def snapshot_state(self) -> None:
        self.held.update(self.pending)
        self.shared.update(sorted(self.all))

    def process_element(self, value: Pair, context: Context) -> Iterable[Any]:
        if value[1] == TELL:
            yield from (("own", *pair) for pair in self.own)
            yield from (("held", *pair) for pair in self.pending)
            yield "shared", sorted(self.all)
        else:
            self.own.add(value)
            self.pending.append(value)
            self.all.add(value)


@dataclass(frozen=True)
class Kind:
    """A subject, and the inputs that suit it."""

    subject: Subject
    key_of: Callable[[Any], Any] | None = itemgetter(0)
    has_rules: bool = False


def total(a: Pair, b: Pair) -> Pair:
    return a[0], a[1] + b[1]


class Listed(ProcessWindowFunction[str, Pair, Any]):
    """Emits the records of a window in their order."""

    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window.start, context.window.end, list(elements)


def window(assigner: dict[str, Any], aggregation: str, lateness_ms: int, time: str = "event") -> Subject:
    parameters = {
        "assigner": {**assigner, "time": time}, "aggregation": aggregation, "key_type": "str",
        "output_type": "pickled", "field": None, "allowed_lateness_ms": lateness_ms if time == "event" else None,
    }  # fmt: skip
    functions = (itemgetter(0), total if aggregation == "reduce" else None, Listed())
    return Subject("window", functions, parameters, (PAIR,))


def with_trigger(
    assigner: dict[str, Any], trigger: Any, evictor: Any = None, aggregation: str = "none"
) -> Subject:
    time = "processing" if assigner["kind"] == "global" else "event"
    own = window(assigner, aggregation, 15, time)
    names = (
        {"trigger": str(trigger)} if evictor is None else {"trigger": str(trigger), "evictor": str(evictor)}
    )
    function = InSession() if assigner["kind"] == "session" else InWindow()
    functions = (*own.functions[:2], function, trigger, evictor, None)
    return dataclasses.replace(own, functions=functions, parameters={**own.parameters, **names})


class InWindow(ProcessWindowFunction[str, Pair, Any]):
    """Emits the records of a window, and numbers its firings, except in sessions."""

    fired = ValueStateDescriptor[int]("fired", int, 0)

    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window
        store = context.global_state() if window.start % 2 else context.window_state()
        state = store.get_state(self.fired)
        state.update((state.value() or 0) + 1)
        yield key, window.start, window.end, state.value(), sorted(elements)

    def clear(self, context: WindowContext) -> None:
        if context.window.start % 2 == 0:
            context.window_state().get_state(self.fired).clear()


class InSession(InWindow):
    """The same in sessions, which have no state of their own."""

    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window.start, context.window.end, sorted(elements)

    def clear(self, context: WindowContext) -> None: ...


ASSIGNERS = {
    "tumbling": {"kind": "tumbling", "size_ms": 10, "offset_ms": 3},
    "sliding": {"kind": "sliding", "size_ms": 12, "slide_ms": 4, "offset_ms": 0},
    "session": {"kind": "session", "gap_ms": 6},
}
KINDS: dict[str, Kind] = {
    "keyed": Kind(Subject("keyed_process", (itemgetter(0), AllKinds()), {"key_type": "str"}, (PAIR,))),
    "running": Kind(Subject("reduce", (itemgetter(0), total), {"key_type": "str"}, (PAIR,))),
    "broadcast": Kind(
        Subject(
            "keyed_broadcast_process", (itemgetter(0), Rules()),
            {"broadcast_states": {"rules": {"key_type": "str", "value_type": "int"}}, "key_type": "str"},
            (PAIR, PAIR),
        ),
        has_rules=True,
    ),
    "operator": Kind(Subject("process", (Lists(),), {}, (PAIR,)), key_of=None),
    **{
        f"{name} {aggregation} {lateness_ms} {time}": Kind(window(assigner, aggregation, lateness_ms, time))
        for name, assigner in ASSIGNERS.items()
        for aggregation, lateness_ms, time in [
            ("reduce", 0, "event"), ("none", 0, "event"), ("reduce", 15, "event"), ("none", 15, "event"),
            ("none", 0, "processing"),
        ]
    },
    "tumbling early": Kind(
        with_trigger(
            ASSIGNERS["tumbling"],
            EventTimeTrigger.create().with_early_firings(milliseconds=9).with_late_firings(milliseconds=7),
        )
    ),
    "sliding purging": Kind(
        with_trigger(
            ASSIGNERS["sliding"],
            PurgingTrigger.of(ContinuousEventTimeTrigger.of(milliseconds=5)),
            aggregation="reduce",
        )
    ),
    "session count": Kind(with_trigger(ASSIGNERS["session"], CountTrigger.of(3))),
    "count": Kind(with_trigger({"kind": "global"}, CountTrigger.of(2), CountEvictor.of(3))),
}  # fmt: skip


def inputs(kind: Kind, rng: random.Random) -> Iterator[Step]:
    """Yields the inputs between two restores; they go on without an end."""
    time, clock = 0, 0
    while True:
        for _ in range(rng.randrange(1, 4)):
            times = [time + rng.randrange(-12, 20) for _ in range(rng.randrange(1, 8))]
            yield Records([(at, (rng.choice(KEYS), rng.randrange(30))) for at in times])
            if kind.has_rules and rng.random() < 0.5:
                yield Records([(time, (rng.choice("abcd"), rng.randrange(9)))], 1)
            if rng.random() < 0.5:
                yield Commit()
        time += rng.randrange(12)
        clock += rng.randrange(12)
        yield Watermark(time)
        yield Clock(clock)
        if rng.random() < 0.7:
            yield Commit()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocksDatabase]:
    made = RocksDatabase(tmp_path_factory.mktemp("state") / "database", 0)
    yield made
    made.close()


def on_disk(database: RocksDatabase, kept_bytes: int, operator_id: str, max_parallelism: int) -> EntryStore:
    """Opens a store that keeps about so many bytes of objects, and so many timers of a key group, in memory."""
    database._generation_bytes = kept_bytes
    rocksdb_timers._MOST_AHEAD = 1 + kept_bytes // 1_000
    return open_store(database, operator_id, max_parallelism)


def run(name: str, database: RocksDatabase, seed: int, restores: int) -> None:
    kind = KINDS[name]
    rng, inputs_of = random.Random(seed), inputs(kind, random.Random(seed))
    undisturbed: list[Step] = []
    disturbed: list[Step] = []
    stores: list[OpenStore] = [open_heap_store, *(partial(on_disk, database, kept) for kept in (0, 2_000))]
    for _ in range(restores):
        some = [next(inputs_of) for _ in range(rng.randrange(3, 20))]
        undisturbed += some
        disturbed += some
        if rng.random() < 0.3:
            disturbed += [Commit(), Crash()]
        parallelism = rng.randrange(1, MAX_PARALLELISM + 1)
        disturbed.append(Restore(parallelism, rng.choice(stores), rng.random() < 0.7))
    if kind.key_of is None:
        tell = Records([(0, ("", TELL))])
        undisturbed += [Commit(), tell]
        disturbed += [Restore(1), tell]
    expected = RescaledOperator(kind.subject, kind.key_of).run(undisturbed)
    assert expected
    assert RescaledOperator(kind.subject, kind.key_of).run(disturbed) == expected


@pytest.mark.parametrize("name", KINDS)
def test_state_is_exact_after_restores_at_other_parallelisms(name: str, database: RocksDatabase) -> None:
    for seed in range(example_count(1)):
        run(name, database, seed, restores=3)


@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
def test_state_is_exact_after_hundred_restores(name: str, database: RocksDatabase) -> None:
    run(name, database, random.randrange(1 << 32), restores=100)
