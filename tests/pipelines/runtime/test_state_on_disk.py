"""A job gives the same output with its state on disk: with any interleaving, crashes and checkpoints, and continued at
another parallelism, with its state in memory or on disk before and afterwards."""

from __future__ import annotations

import tempfile

from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.job_options import STATE_BACKEND, StateBackendType
from tailrace.pipelines.graph.physical_plan import keeps_state
from tailrace.pipelines.testing.memory.cluster import MemoryCluster
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage
from .test_any_interleaving import PROGRAMS
from .test_checkpoints_any_moment import PAIRS, PLANS, SEEDS, fitting, printed, program, undisturbed

BACKENDS = st.sampled_from(
    [("rocksdb", "rocksdb"), ("rocksdb", "rocksdb"), ("rocksdb", "hashmap"), ("hashmap", "rocksdb")]
)
STATEFUL = sorted(
    name for name in PROGRAMS if any(map(keeps_state, program(name, [("a", 1)], 1, chaining=False).vertices))
)


def with_backend(graph: JobGraph, backend: str) -> JobGraph:
    return replace(
        graph, configuration={**graph.configuration, STATE_BACKEND.key: StateBackendType(backend).value}
    )


@given(
    st.sampled_from(STATEFUL),
    PAIRS,
    st.integers(1, 3),
    st.integers(1, 3),
    BACKENDS,
    PLANS,
    SEEDS,
    st.integers(0, 3),
)
@settings(max_examples=example_count(6))
def test_job_with_state_on_disk_continues_from_any_checkpoint(
    name: str,
    pairs: list[tuple[str, int]],
    parallelism: int,
    other: int,
    backends: tuple[str, str],
    plan: object,
    seed: int,
    crashes: int,
) -> None:
    _, results = undisturbed(name, pairs)
    before, after = backends
    with storage(seed) as directory, tempfile.TemporaryDirectory() as scratch:
        graph = with_backend(program(name, pairs, parallelism), before)
        job = MemoryCluster(graph, {}, seed, directory=directory, plan=plan, scratch=f"{scratch}/before")
        assert printed(job.run(crashes).printed) == results
        again = with_backend(program(name, pairs, other), after)
        for checkpoint in fitting(job.taken, again, seed)[:1]:
            restored = MemoryCluster(
                again,
                {},
                seed + 1,
                job_id="again",
                directory=f"{directory}/again",
                plan=plan,
                restored=checkpoint,
                scratch=f"{scratch}/after",
            )
            restored.run(crashes)
            assert printed(restored.given) == results
