"""Records larger than a message of a channel arrive whole and once, whatever happens while they are in flight.

The limit of a buffer is a few hundred bytes here, so that records of all sizes around it and its multiples are cut into
fragments. Subtasks die, checkpoints are cut and jobs are restored at another parallelism between any two fragments.
`EXAMPLES` says how many runs are tried.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.records import buffers
from tailrace.pipelines.runtime.stream_task.output import record_writer
from tailrace.schemas.types import JobGraph

from ..memory_checkpoints import Plan, storage
from ..memory_cluster import MemoryCluster, give_uids, run

EXAMPLES = int(os.environ.get("EXAMPLES", "10"))
LIMIT = 200


@pytest.fixture(scope="module", autouse=True)
def small_buffers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_writer, "MAX_BUFFER_BYTES", LIMIT)
        yield


def graph_of(sizes: list[int], parallelism: int, *, chaining: bool) -> JobGraph:
    """Returns large records on edges of every kind, with and without a stateless prefix after them."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    if not chaining:
        env.disable_operator_chaining()
    texts = env.from_collection([f"{i}:" + "x" * size for i, size in enumerate(sizes)], str).rebalance()
    longer = texts.map(lambda text: text + "y", str)
    both = longer.union(texts.shuffle().map(lambda text: text + "z", str))
    both.rebalance().filter(bool).key_by(lambda text: text[:1], str).map(len, int).print("sizes")
    longer.broadcast().map(len, int).global_().print("everywhere")
    give_uids(env)
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph("large")


def meaning_of(sizes: list[int]) -> Counter[int]:
    """Returns the lengths of the records of `sizes`."""
    return Counter(len(f"{i}:") + size + 1 for i, size in enumerate(sizes) for _ in range(2))


def sizes_of(job: MemoryCluster) -> Counter[int]:
    return Counter(row["record"] for row in job.given if row["identifier"] == "sizes")


SIZES = st.lists(
    st.one_of(st.integers(0, 50), st.integers(LIMIT - 60, LIMIT + 20), st.integers(0, 5 * LIMIT)),
    min_size=3,
    max_size=25,
)


@given(SIZES, st.integers(1, 3), st.integers(1, 4), st.booleans(), st.integers(0, 1 << 32), st.integers(0, 4))
@settings(max_examples=EXAMPLES)
def test_records_of_any_size_arrive_once(
    sizes: list[int], parallelism: int, other: int, chaining: bool, seed: int, crashes: int
) -> None:
    rng = random.Random(seed)
    with storage(seed) as directory:
        plan = Plan(rate=0.2, savepoints=rng.choice([0.0, 0.3]))
        job = MemoryCluster(
            graph_of(sizes, parallelism, chaining=chaining), {}, seed, directory=directory, plan=plan
        )
        job.run(crashes, rollbacks=rng.randint(0, 2))
        assert sizes_of(job) == meaning_of(sizes)
        again = graph_of(sizes, other, chaining=chaining)
        for checkpoint in rng.sample(job.taken, min(3, len(job.taken))):
            if not incompatibilities(checkpoint.metadata, again):
                restored = MemoryCluster(again, {}, seed + 1, job_id="again", restored=checkpoint)
                restored.run(crashes)
                assert sizes_of(restored) == meaning_of(sizes)


def test_oversized_record_names_operator_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MAX_RECORD_BYTES", 10_000)
    env = StreamExecutionEnvironment().configure("execution.isolation", "vertex")
    grown = env.from_collection(["x" * 10_001], str).map(str.upper, str).name("Grow")
    grown.print().set_parallelism(2)
    with pytest.raises(
        TaskError, match=r"operator 'Grow': a record has 10,0\d\d bytes, but a channel carries"
    ):
        run(env.get_job_graph("large"))
