"""Operator state of a whole job: at any interleaving, crash, checkpoint and other parallelism no element is lost, and
none is there twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    CheckpointedFunction,
    Context,
    FunctionInitializationContext,
    KeyedContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    ProcessFunction,
    ProgramError,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from tailrace.pipelines.runtime.operators.function_operator import FunctionOperator
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, give_uids
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage
from .test_checkpoints_any_moment import PLANS, SEEDS, fitting

NUMBERS = st.lists(st.integers(0, 100), min_size=3, max_size=40)
Count = tuple[int, int, int]
"""Subtask, parallelism, records."""


class HoldBack(ProcessFunction[int, int], CheckpointedFunction):
    """Holds records in memory, and emits all once it has three.

    Each subtask has its count of records in a union list. At another parallelism the first one goes on with the total.
    """

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.operator_state_store
        self.held = store.get_list_state(ListStateDescriptor("held", int))
        self.counts = store.get_union_list_state(ListStateDescriptor[Count]("counts", tuple[int, int, int]))
        self.buffer = list(self.held)
        assert context.is_restored or not self.buffer

    def open(self, context: RuntimeContext) -> None:
        self.subtask, self.parallelism = context.subtask_index, context.parallelism
        found = list(self.counts)
        if found and found[0][1] != self.parallelism:
            found = [] if self.subtask else [(0, 0, sum(count for _, _, count in found))]
        self.count = sum(count for _, _, count in found)

    def process_element(self, value: int, context: Context) -> Iterable[int]:
        self.buffer.append(value)
        self.count += 1
        if len(self.buffer) >= 3:
            yield from self.buffer
            self.buffer.clear()

    def snapshot_state(self) -> None:
        self.held.update(self.buffer)
        self.counts.update([(self.subtask, self.parallelism, self.count)])


def graph_of(numbers: list[int], parallelism: int) -> JobGraph:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    env.from_collection(numbers, int).rebalance().process(HoldBack(), int).print()
    give_uids(env)
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph("program")


def check(job: MemoryCluster, numbers: list[int]) -> None:
    """Compares what was emitted, and is still held, with the input; and the counts."""
    lists = [
        operator._operator_state._lists
        for attempt in job._attempts.values()
        if hasattr(attempt, "task")
        for operator in attempt.task._chain.operators
        if isinstance(operator, FunctionOperator) and operator._checkpointed
    ]
    held = [number for some in lists for number in some["held"]]
    emitted = [int(row["text"]) for row in job.given]
    assert Counter(emitted + held) == Counter(numbers)
    assert sum(count for some in lists for _, _, count in some["counts"]) == len(numbers)


@given(
    NUMBERS,
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    PLANS,
    SEEDS,
    st.integers(0, 3),
    st.integers(0, 1),
)
@settings(max_examples=example_count(15))
def test_each_element_is_there_once_in_any_job_and_its_successors(
    numbers: list[int], parallelisms: list[int], plan: Plan, seed: int, crashes: int, rollbacks: int
) -> None:
    with storage(seed) as directory:
        restored = None
        for number, parallelism in enumerate(parallelisms):
            graph = graph_of(numbers, parallelism)
            job = MemoryCluster(
                graph, {}, seed + number, job_id=f"job{number}", directory=f"{directory}/{number}", plan=plan,
                restored=restored,
            )  # fmt: skip
            job.run(crashes, rollbacks=rollbacks)
            whole = [one for one in job.taken if not any(part.finished for part in one.metadata.subtasks)]
            if rollbacks == 0 or len(whole) == len(job.taken):
                check(job, numbers)
            if number + 1 == len(parallelisms):
                return
            fit = fitting(whole, graph_of(numbers, parallelisms[number + 1]), seed)
            if not fit:
                return
            restored = fit[0]


class Keyed(KeyedProcessFunction[int, int, int], CheckpointedFunction):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Never called."""

    def process_element(self, value: int, context: KeyedContext[int]) -> None:
        """Never called."""


class Mapped(MapFunction[int, int], CheckpointedFunction):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Never called."""

    def map(self, value: int) -> int:
        return value


def test_function_of_keyed_stream_has_no_operator_state() -> None:
    stream = StreamExecutionEnvironment().from_collection([1], int)
    stream.map(Mapped())
    keyed = stream.key_by(lambda number: number, key_type=int)
    refusal = "a CheckpointedFunction has operator state, which only map"
    with pytest.raises(ProgramError, match=refusal):
        keyed.process(Keyed())
    with pytest.raises(ProgramError, match=refusal):
        keyed.map(Mapped())
