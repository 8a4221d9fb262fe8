"""Checkpoints at any time change nothing, and a job that restores one continues exactly from there.

The output of sinks before each subtask's part of a checkpoint, and the output of the job that restores it, together are
the output of an undisturbed run: each result once. This holds for any interleaving, any kind of checkpoint, any crashes
during it, any other parallelism afterwards, and for checkpoints of restored jobs.

`EXAMPLES` says how many runs of each program are tried.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.testing.memory.checkpoints import MemoryCheckpoint, Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, Outcome, run
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage
from .test_any_interleaving import PROGRAMS, Pair, graph_of

EXAMPLES = int(os.environ.get("EXAMPLES", "3"))
SEEDS = st.integers(0, 1 << 32)
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 100)), min_size=3, max_size=40)
PLANS = st.sampled_from(
    [
        Plan(),
        Plan(savepoints=0.0),
        Plan(savepoints=1.0, at_once=1),
        Plan(rate=0.5, at_once=4),
        Plan(rate=0.05, savepoints=0.0, full=0.0, at_once=1),
    ]
)
Told = Counter[tuple[str | None, str]]


def printed(given: Iterable[Mapping[str, Any]]) -> Told:
    """Returns the printed records by identifier."""
    return Counter((row["identifier"], row["text"]) for row in given)


def program(
    name: str, pairs: list[Pair], parallelism: int, chaining: bool = True, *, seed: int = 0
) -> JobGraph:
    """A third of the seeds have a process for each task."""
    isolation = "vertex" if seed % 3 == 2 else "slot"
    return graph_of(PROGRAMS[name], pairs, parallelism, chaining, isolation=isolation, uids=True)


def undisturbed(name: str, pairs: list[Pair]) -> tuple[Outcome, Told]:
    outcome = run(program(name, pairs, 1))
    return outcome, printed(outcome.printed)


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.integers(1, 3), st.booleans(), PLANS, SEEDS, st.integers(0, 4))
@settings(max_examples=EXAMPLES)
def test_checkpoints_do_not_change_output(
    name: str, pairs: list[Pair], parallelism: int, chaining: bool, plan: Plan, seed: int, crashes: int
) -> None:
    in_order, results = undisturbed(name, pairs)
    with storage(seed) as directory:
        job = MemoryCluster(
            program(name, pairs, parallelism, chaining, seed=seed), {}, seed, directory=directory, plan=plan
        )
        outcome = job.run(crashes)
    assert printed(outcome.printed) == results
    assert outcome.accumulators == in_order.accumulators


@pytest.mark.parametrize("name", PROGRAMS)
@given(
    PAIRS, st.integers(1, 4), st.integers(1, 4), st.booleans(), st.booleans(), PLANS, SEEDS, st.integers(0, 3)
)
@settings(max_examples=EXAMPLES)
def test_job_continues_from_any_checkpoint_at_any_parallelism(
    name: str,
    pairs: list[Pair],
    parallelism: int,
    other: int,
    chaining: bool,
    other_chaining: bool,
    plan: Plan,
    seed: int,
    crashes: int,
) -> None:
    in_order, results = undisturbed(name, pairs)
    with storage(seed) as directory:
        job = MemoryCluster(
            program(name, pairs, parallelism, chaining, seed=seed), {}, seed, directory=directory, plan=plan
        )
        job.run(crashes)
        again = program(name, pairs, other, other_chaining, seed=seed + 1)
        for taken in job.taken:
            if not any(part.finished for part in taken.metadata.subtasks):
                assert incompatibilities(taken.metadata, again) == []
        for checkpoint in fitting(job.taken, again, seed):
            restored = MemoryCluster(
                again,
                {},
                seed + 1,
                job_id="again",
                directory=f"{directory}/again",
                plan=plan,
                restored=checkpoint,
            )
            outcome = restored.run(crashes)
            assert printed(restored.given) == results
            if not any(part.finished for part in checkpoint.metadata.subtasks):
                assert outcome.accumulators == in_order.accumulators


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.lists(st.integers(1, 4), min_size=3, max_size=4), PLANS, SEEDS, st.integers(0, 2))
@settings(max_examples=EXAMPLES)
def test_restored_job_is_restored_again(
    name: str, pairs: list[Pair], parallelisms: list[int], plan: Plan, seed: int, crashes: int
) -> None:
    _, results = undisturbed(name, pairs)
    with storage(seed) as directory:
        checkpoints: list[MemoryCheckpoint] = []
        for number, parallelism in enumerate(parallelisms):
            graph = program(name, pairs, parallelism, seed=seed + number)
            fit = fitting(checkpoints, graph, seed)
            if number and not fit:
                continue
            job = MemoryCluster(
                graph,
                {},
                seed + number,
                job_id=f"job{number}",
                directory=f"{directory}/{number}",
                plan=plan,
                restored=fit[0] if fit else None,
            )
            job.run(crashes)
            assert printed(job.given) == results
            checkpoints = job.taken


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.integers(1, 4), PLANS, SEEDS, st.integers(0, 3), st.integers(1, 3))
@settings(max_examples=EXAMPLES)
def test_rolled_back_job_gives_same_output(
    name: str, pairs: list[Pair], parallelism: int, plan: Plan, seed: int, crashes: int, rollbacks: int
) -> None:
    in_order, results = undisturbed(name, pairs)
    with storage(seed) as directory:
        job = MemoryCluster(
            program(name, pairs, parallelism, seed=seed), {}, seed, directory=directory, plan=plan
        )
        outcome = job.run(crashes, rollbacks=rollbacks)
    assert printed(job.given) == results
    if not any(part.finished for checkpoint in job.taken for part in checkpoint.metadata.subtasks):
        assert outcome.accumulators == in_order.accumulators


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.integers(1, 4), st.integers(1, 4), SEEDS, st.integers(0, 3), st.integers(1, 60))
@settings(max_examples=EXAMPLES)
def test_output_of_stopped_job_is_not_repeated_by_next_job(
    name: str, pairs: list[Pair], parallelism: int, other: int, seed: int, crashes: int, step: int
) -> None:
    _, results = undisturbed(name, pairs)
    plan = Plan(rate=0.02, stop_at=step)
    with storage(seed) as directory:
        job = MemoryCluster(
            program(name, pairs, parallelism, seed=seed), {}, seed, directory=directory, plan=plan
        )
        job.run(crashes)
        if not job.taken or not job.taken[-1].stops:
            assert printed(job.given) == results  # it had ended before
            return
        last = job.taken[-1]
        assert printed(job.given) == printed(last.before)  # it gave nothing after the savepoint
        again = program(name, pairs, other, seed=seed + 1)
        for checkpoint in fitting([last], again, seed):
            restored = MemoryCluster(again, {}, seed + 1, job_id="again", restored=checkpoint)
            restored.run(crashes)
            assert printed(restored.given) == results


def fitting(taken: list[MemoryCheckpoint], graph: JobGraph, seed: int) -> list[MemoryCheckpoint]:
    """Returns some of the checkpoints that the graph can start from."""
    rng = random.Random(seed)
    chosen = rng.sample(taken, min(3, len(taken)))
    return [checkpoint for checkpoint in chosen if not incompatibilities(checkpoint.metadata, graph)]
