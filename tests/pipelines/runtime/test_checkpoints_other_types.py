"""A checkpoint of a job whose classes have changed: state and in-flight records are read by field name or rejected."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    KeyedContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OnTimerContext,
    RuntimeContext,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tailrace.pipelines.runtime.common.failures import StateTypeError
from tailrace.pipelines.testing.memory.checkpoints import MemoryCheckpoint, Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, give_uids
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage

EXAMPLES = int(os.environ.get("EXAMPLES", "3"))
Pair = tuple[str, int]
ALL_AT_ONCE = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda _: 5)

# By version: the fields of the class, in their order. All of them mean the same for `word` and `number`.
VERSIONS: dict[str, list[Any]] = {
    "first": [("word", str), ("number", int), ("spare", float, field(default=0.5))],
    "swapped": [("spare", float), ("number", int), ("word", str)],
    "removed": [("word", str), ("number", int)],
    "added": [
        ("note", "str | None", field(default=None)),
        ("word", str),
        ("spare", float, field(default=0.5)),
        ("number", int),
        ("more", list[int], field(default_factory=lambda: [3])),
    ],
    "widened": [("word", str), ("number", float), ("spare", "float | None", field(default=0.5))],
}
REFUSED: dict[str, tuple[list[Any], str]] = {
    "narrowed": ([("word", str), ("number", int), ("spare", int)], "spare was float and is int"),
    "required": ([("word", str), ("number", int), ("more", int)], "more is new and has no default"),
}


def class_of(fields: list[Any]) -> type:
    made = [(name, eval(of) if isinstance(of, str) else of, *rest) for name, of, *rest in fields]
    return make_dataclass("Order", made, kw_only=True)


@dataclass
class Keeping(KeyedProcessFunction[str, Any, Pair]):
    """Keeps records in state of each kind, and emits them at the end."""

    cls: type

    def open(self, context: RuntimeContext) -> None:
        self.sum = context.get_state(ValueStateDescriptor("sum", self.cls))
        self.all = context.get_list_state(ListStateDescriptor("all", self.cls))
        self.by_number = context.get_map_state(MapStateDescriptor("by number", int, self.cls))

    def process_element(self, value: Any, context: KeyedContext[str]) -> None:
        before = self.sum.value()
        self.sum.update(merged(before, value) if before else value)
        self.all.add(value)
        self.by_number[int(value.number)] = value
        context.timer_service.register_event_time_timer(1 << 62)

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[Pair]:
        total = self.sum.value()
        assert total is not None
        assert total.number == sum(item.number for item in self.all)
        assert {number: element.number for number, element in self.by_number.items()} == {
            int(value.number): value.number for value in self.all
        }
        return [(total.word, int(total.number))]


def merged(one: Any, other: Any) -> Any:
    return type(one)(**{**vars(one), "number": one.number + other.number})


def graph(pairs: list[Pair], cls: type) -> JobGraph:
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    types = cls.__annotations__
    spare = {"spare": 1 if types["spare"] is int else 0.5} if "spare" in types else {}
    more = {"more": 1} if types.get("more") is int else {}
    orders = (
        env.from_collection(pairs, tuple[str, int])
        .assign_timestamps_and_watermarks(ALL_AT_ONCE)
        .rebalance()
        .map(lambda pair: cls(word=pair[0], number=pair[1], **spare, **more), cls)
        .start_new_chain()
    )
    keyed = orders.key_by(lambda order: order.word, str)
    keyed.process(Keeping(cls), tuple[str, int]).print("kept")
    summed = keyed.window(TumblingEventTimeWindows.of(seconds=1)).reduce(merged)
    summed.map(lambda order: (order.word, int(order.number)), tuple[str, int]).print("reduced")
    give_uids(env)
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph("orders")


def printed(given: Iterable[dict[str, Any]]) -> list[tuple[str, Pair]]:
    return sorted((row["identifier"], tuple(row["record"])) for row in given)


def checkpoints(pairs: list[Pair], seed: int, directory: str, plan: Plan) -> list[MemoryCheckpoint]:
    job = MemoryCluster(graph(pairs, class_of(VERSIONS["first"])), {}, seed, directory=directory, plan=plan)
    job.run()
    return list(job.taken)


PAIRS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=6, max_size=12)


@given(PAIRS, st.sampled_from(sorted(VERSIONS)), st.integers(0, 1 << 32), st.integers(0, 2))
@settings(max_examples=EXAMPLES)
def test_job_continues_with_changed_class(pairs: list[Pair], version: str, seed: int, crashes: int) -> None:
    sums = {word: sum(number for item, number in pairs if item == word) for word, _ in pairs}
    right = sorted((name, pair) for name in ("kept", "reduced") for pair in sums.items())
    with storage(seed) as directory:
        for checkpoint in checkpoints(pairs, seed, directory, Plan())[-2:]:
            again = MemoryCluster(
                graph(pairs, class_of(VERSIONS[version])), {}, seed + 1, job_id="again", restored=checkpoint
            )
            again.run(crashes)
            assert printed(again.given) == right


@pytest.mark.parametrize("version", sorted(REFUSED))
@pytest.mark.parametrize(("savepoints", "what"), [(1.0, {"state"}), (0.0, {"state", "records"})])
def test_incompatible_class_is_rejected_by_name(version: str, savepoints: float, what: set[str]) -> None:
    pairs = [(word, number) for number in range(4) for word in "abc"]
    fields, why = REFUSED[version]
    with storage(1) as directory:
        refused: list[str] = []
        for checkpoint in checkpoints(pairs, 1, directory, Plan(savepoints=savepoints))[-4:]:
            again = MemoryCluster(graph(pairs, class_of(fields)), {}, 2, job_id="again", restored=checkpoint)
            try:
                again.run()
            except StateTypeError as error:
                refused.append(str(error))
    assert refused
    assert all(f"its field {why}" in item for item in refused)
    assert what >= {element.split()[0] for element in refused}
