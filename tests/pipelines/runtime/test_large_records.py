"""Records larger than a message of a channel arrive whole and once, whatever happens while they are in flight.

The limit of a buffer is a few hundred bytes here, so that records of all sizes around it and its multiples are cut into
fragments. Subtasks die, checkpoints are cut and jobs are restored at another parallelism between any two fragments.
`EXAMPLES` says how many runs are tried.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.operators.lazy_prefix import LazyPrefix
from tailrace.pipelines.runtime.operators.local_input import LocalInput
from tailrace.pipelines.runtime.records import buffers
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import BufferCodec, BufferHeader, RecordTooLarge
from tailrace.pipelines.runtime.stream_task.output import record_writer
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, give_uids, run
from tailrace.pipelines.types import PICKLED, RecordType, Types
from tailrace.schemas.types import JobGraph, OperatorConfig

from ..checkpoint_storage import storage

EXAMPLES = int(os.environ.get("EXAMPLES", "6"))
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


@pytest.mark.parametrize("isolation", ["slot", "vertex"])
def test_oversized_record_names_operator_and_size(monkeypatch: pytest.MonkeyPatch, isolation: str) -> None:
    monkeypatch.setattr(buffers, "MAX_RECORD_BYTES", 10_000)
    env = StreamExecutionEnvironment().configure("execution.isolation", isolation)
    grown = env.from_collection(["x" * 10_001], str).map(str.upper, str).name("Grow")
    grown.broadcast().print().set_parallelism(2)
    with pytest.raises(
        TaskError, match=r"operator 'Grow': a record has 10,0\d\d bytes, but a channel carries"
    ):
        run(env.get_job_graph("large"))


HUGE = 2_000
TEXTS = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=3), st.integers(0, HUGE))
RECORDS: dict[RecordType, st.SearchStrategy[list[Any]]] = {
    Types.STRING(): st.lists(TEXTS, max_size=4),
    Types.TUPLE([Types.STRING(), Types.INT()]): st.lists(st.tuples(TEXTS, st.integers(0, 9)), max_size=4),
    PICKLED: st.lists(
        st.one_of(TEXTS, st.binary(max_size=2 * HUGE), st.lists(TEXTS, max_size=2)), max_size=4
    ),
}


@given(st.sampled_from(list(RECORDS)).flatmap(lambda of: st.tuples(st.just(of), RECORDS[of])), st.booleans())
@settings(max_examples=50)
def test_call_refuses_what_channel_refuses(drawn: tuple[RecordType, list[Any]], columnar: bool) -> None:
    record_type, values = drawn
    parameters = {} if record_type is PICKLED else {"output_type": record_type.to_json()}
    sender = OperatorConfig(
        operator_id="a", name="Sender", kind="map", parameters=json.dumps(parameters), code=b""
    )
    batch = Batch([0] * len(values), values)
    if columnar:
        batch = Batch.from_columns(batch.timestamp_column(), batch.columns(record_type), record_type)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "MAX_RECORD_BYTES", HUGE)
        try:
            BufferCodec(record_type).encode_within(LIMIT, BufferHeader(0, 0, 0), batch)
        except RecordTooLarge as refused:
            with pytest.raises(TaskError, match=re.escape(f"operator 'Sender': {refused}: send a reference")):
                LocalInput(sender, None, LazyPrefix()).take(batch)
        else:
            assert LocalInput(sender, None, LazyPrefix()).take(batch).values == values
