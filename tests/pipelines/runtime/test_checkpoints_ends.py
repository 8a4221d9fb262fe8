"""Jobs that stop with a savepoint: their files and windows together with those of the next job are complete."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import FileSink, StreamExecutionEnvironment
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, give_uids
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage
from .test_any_interleaving import Pair, graph_of, processing_time
from .test_connectors_in_jobs import counted, numbered, records_of

EXAMPLES = int(os.environ.get("EXAMPLES", "5"))
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 100)), min_size=3, max_size=40)


def into_files(folder: Path, parallelism: int) -> JobGraph:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    rows = env.generate(numbered, count=60).rebalance()
    rows.map(lambda row: row).sink_to(FileSink(str(folder / "out"), format="json", roll_records=4))
    give_uids(env)
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph("files")


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1 << 32), st.integers(0, 3), st.integers(1, 60))
@settings(max_examples=EXAMPLES)
def test_files_have_each_record_once(
    parallelism: int, other: int, seed: int, crashes: int, step: int
) -> None:
    with storage(seed) as directory, storage(1) as folder:
        first = into_files(Path(folder), parallelism)
        job = MemoryCluster(first, {}, seed, directory=directory, plan=Plan(rate=0.05, stop_at=step))
        job.run(crashes)
        if job.taken and job.taken[-1].stops:
            again = into_files(Path(folder), other)
            if incompatibilities(job.taken[-1].metadata, again):
                again = first
            MemoryCluster(again, {}, seed + 1, job_id="again", restored=job.taken[-1]).run(crashes)
        assert counted(records_of(Path(folder) / "out")) == counted(list(map(numbered, range(60))))


@given(PAIRS, st.integers(1, 3), st.integers(0, 1 << 32), st.integers(1, 60))
@settings(max_examples=EXAMPLES)
def test_windows_of_drained_job_have_fired(pairs: list[Pair], parallelism: int, seed: int, step: int) -> None:
    graph = graph_of(processing_time, pairs, parallelism, uids=True)
    with storage(seed) as directory:
        plan = Plan(rate=0.05, stop_at=step, drains=True)
        job = MemoryCluster(graph, {}, seed, directory=directory, plan=plan)
        job.run()
        given: list[dict[str, Any]] = job.given
        if job.taken and job.taken[-1].stops:
            again = MemoryCluster(graph, {}, seed + 1, job_id="again", restored=job.taken[-1])
            again.run(2)
            assert len(again.given) >= len(given), "what it has given is before the savepoint"
            given = again.given
    totals: Counter[str] = Counter()
    for word, number in (row["record"] for row in given):
        totals[word] += number
    expected: Counter[str] = Counter()
    for word, number in pairs:
        expected[word] += number
    assert totals == expected
