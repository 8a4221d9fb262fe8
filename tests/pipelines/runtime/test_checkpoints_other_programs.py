"""A checkpoint fits a changed program by operator id: operators that still exist have their state, new ones have
none.

Chains may differ, operators may be added, and removed if that is allowed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    KeyedContext,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, give_uids
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage
from .test_any_interleaving import CountAndTell, CountingMap, Pair

EXAMPLES = int(os.environ.get("EXAMPLES", "5"))


class Numbered(KeyedProcessFunction[str, Pair, Pair]):
    """Forwards and counts records."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("passed", int, 0))

    def process_element(self, value: Pair, context: KeyedContext[str]) -> Iterable[Pair]:
        self.count.update((self.count.value() or 0) + 1)
        return [value]


@dataclass(frozen=True)
class Variant:
    """A variant of one program, which always counts by key."""

    parallelism: int
    chained: bool
    passes: bool
    """Whether records pass an operator with state on their way."""
    branches: bool
    """Whether they are counted a second time."""

    def graph(self, pairs: list[Pair]) -> JobGraph:
        env = StreamExecutionEnvironment()
        env.set_parallelism(self.parallelism).configure("execution.isolation", "slot")
        numbers = env.from_collection(pairs, tuple[str, int]).uid("numbers").rebalance()
        stream = numbers.map(CountingMap(), tuple[str, int]).uid("seen")
        if not self.chained:
            stream = (
                stream.start_new_chain().map(lambda pair: pair, tuple[str, int]).uid("same").start_new_chain()
            )
        if self.passes:
            stream = stream.key_by(0).process(Numbered(), tuple[str, int]).uid("passed").name("passed")
        counted = stream.key_by(0).process(CountAndTell(), tuple[str, int]).uid("counted")
        if not self.chained:
            counted = counted.disable_chaining()
        counted.print("counted")
        if self.branches:
            again = stream.key_by(0).process(CountAndTell(), tuple[str, int])
            again.uid("again").name("again").print("again")
        give_uids(env)
        env.configure("execution.checkpointing.interval", "1 s")
        return env.get_job_graph("variant")


VARIANTS = st.builds(Variant, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans())
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), min_size=5, max_size=30)


@example([("a", 0)] * 6, Variant(2, False, True, False), Variant(1, False, False, False), 36, 0)
@given(PAIRS, VARIANTS, VARIANTS, st.integers(0, 1 << 32), st.integers(0, 2))
@settings(max_examples=EXAMPLES)
def test_state_reaches_its_operator(
    pairs: list[Pair], one: Variant, other: Variant, seed: int, crashes: int
) -> None:
    with storage(seed) as directory:
        job = MemoryCluster(one.graph(pairs), {}, seed, directory=directory, plan=Plan(savepoints=0.7))
        job.run(crashes)
        graph = other.graph(pairs)
        for checkpoint in job.taken[-3:]:
            faults = incompatibilities(checkpoint.metadata, graph, allow_non_restored_state=True)
            if faults:
                event(faults[0].partition(":")[0].split("'")[0])
                continue
            event("restored")
            again = MemoryCluster(graph, {}, seed + 1, job_id="again", restored=checkpoint)
            again.run(crashes)
            assert counted(again.given) == Counter(word for word, _ in pairs)


@given(PAIRS, VARIANTS, VARIANTS, st.integers(0, 1 << 32))
@settings(max_examples=EXAMPLES)
def test_unassigned_state_is_rejected_by_name(
    pairs: list[Pair], one: Variant, other: Variant, seed: int
) -> None:
    with storage(seed) as directory:
        job = MemoryCluster(one.graph(pairs), {}, seed, directory=directory, plan=Plan())
        job.run()
        graph = other.graph(pairs)
        gone = {"passed"} if one.passes and not other.passes else set()
        gone |= {"again"} if one.branches and not other.branches else set()
        names = {operator.operator_id: operator.name for v in job.graph.vertices for operator in v.operators}
        for checkpoint in job.taken:
            kept = {
                names[key]
                for part in checkpoint.metadata.subtasks
                for key in part.state.operators
                if key in names
            }
            faults = "\n".join(incompatibilities(checkpoint.metadata, graph))
            for name in gone & kept:
                assert f"'{name}'" in faults
            for name in {"passed", "again"} - gone:
                assert f"state of operator '{name}'" not in faults


def counted(given: Iterable[dict[str, object]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in given:
        if row["identifier"] == "counted":
            word, count = cast("tuple[str, int]", row["record"])
            counts[word] += count  # each key is told once, at the end
    return counts
