"""Checkpoints at any moments change nothing, and a job that begins with any of them goes on from exactly there.

What sinks had given when each subtask took its part in a checkpoint, and what the job gives that is restored from it,
are together what an undisturbed run gives: each result once. That holds for any interleaving, any kind of checkpoint,
any crashes while it is taken, any other parallelism afterwards, and for checkpoints of what was itself restored.

`EXAMPLES` says how many runs are tried of each program.
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
from tailrace.schemas.types import JobGraph

from ..memory_checkpoints import Plan, Taken, storage
from ..memory_cluster import MemoryCluster, Outcome, run
from .test_any_interleaving import PROGRAMS, Pair, graph_of

EXAMPLES = int(os.environ.get("EXAMPLES", "5"))
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


def told(given: Iterable[Mapping[str, Any]]) -> Told:
    """What was printed, by identifier."""
    return Counter((each["identifier"], each["text"]) for each in given)


def program(name: str, pairs: list[Pair], parallelism: int, chaining: bool = True) -> JobGraph:
    return graph_of(PROGRAMS[name], pairs, parallelism, chaining, uids=True)


def undisturbed(name: str, pairs: list[Pair]) -> tuple[Outcome, Told]:
    outcome = run(program(name, pairs, 1))
    return outcome, told(outcome.printed)


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.integers(1, 3), st.booleans(), PLANS, SEEDS, st.integers(0, 4))
@settings(max_examples=EXAMPLES)
def test_checkpoints_change_nothing(
    name: str, pairs: list[Pair], parallelism: int, chaining: bool, plan: Plan, seed: int, crashes: int
) -> None:
    in_order, results = undisturbed(name, pairs)
    with storage(seed) as directory:
        job = MemoryCluster(
            program(name, pairs, parallelism, chaining), {}, seed, directory=directory, plan=plan
        )
        outcome = job.run(crashes)
    assert told(outcome.printed) == results
    assert outcome.accumulators == in_order.accumulators


@pytest.mark.parametrize("name", PROGRAMS)
@given(
    PAIRS, st.integers(1, 4), st.integers(1, 4), st.booleans(), st.booleans(), PLANS, SEEDS, st.integers(0, 3)
)
@settings(max_examples=EXAMPLES)
def test_a_job_goes_on_from_any_checkpoint_at_any_parallelism(
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
            program(name, pairs, parallelism, chaining), {}, seed, directory=directory, plan=plan
        )
        job.run(crashes)
        again = program(name, pairs, other, other_chaining)
        for taken in fitting(job.taken, again, seed):
            restored = MemoryCluster(
                again, {}, seed + 1, job_id="again", directory=f"{directory}/again", plan=plan, restored=taken
            )
            outcome = restored.run(crashes)
            assert told(restored.given) == results
            if not any(part.finished for part in taken.metadata.subtasks):
                assert outcome.accumulators == in_order.accumulators


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.lists(st.integers(1, 4), min_size=3, max_size=4), PLANS, SEEDS, st.integers(0, 2))
@settings(max_examples=EXAMPLES)
def test_what_was_restored_is_restored_again(
    name: str, pairs: list[Pair], parallelisms: list[int], plan: Plan, seed: int, crashes: int
) -> None:
    _, results = undisturbed(name, pairs)
    with storage(seed) as directory:
        taken: list[Taken] = []
        for number, parallelism in enumerate(parallelisms):
            graph = program(name, pairs, parallelism)
            fit = fitting(taken, graph, seed)
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
            assert told(job.given) == results
            taken = job.taken


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.integers(1, 4), PLANS, SEEDS, st.integers(0, 3), st.integers(1, 3))
@settings(max_examples=EXAMPLES)
def test_a_job_that_goes_back_to_a_checkpoint_gives_what_it_would_have_given(
    name: str, pairs: list[Pair], parallelism: int, plan: Plan, seed: int, crashes: int, rollbacks: int
) -> None:
    in_order, results = undisturbed(name, pairs)
    with storage(seed) as directory:
        job = MemoryCluster(program(name, pairs, parallelism), {}, seed, directory=directory, plan=plan)
        outcome = job.run(crashes, rollbacks=rollbacks)
    assert told(job.given) == results
    if not any(part.finished for each in job.taken for part in each.metadata.subtasks):
        assert outcome.accumulators == in_order.accumulators


@pytest.mark.parametrize("name", PROGRAMS)
@given(PAIRS, st.integers(1, 4), st.integers(1, 4), SEEDS, st.integers(0, 3), st.integers(1, 60))
@settings(max_examples=EXAMPLES)
def test_what_a_stopped_job_has_given_the_next_one_does_not(
    name: str, pairs: list[Pair], parallelism: int, other: int, seed: int, crashes: int, step: int
) -> None:
    _, results = undisturbed(name, pairs)
    plan = Plan(rate=0.02, stop_at=step)
    with storage(seed) as directory:
        job = MemoryCluster(program(name, pairs, parallelism), {}, seed, directory=directory, plan=plan)
        job.run(crashes)
        if not job.taken or not job.taken[-1].stops:
            assert told(job.given) == results  # it had ended before
            return
        last = job.taken[-1]
        assert told(job.given) == told(last.before)  # it gave nothing after the savepoint
        again = program(name, pairs, other)
        for taken in fitting([last], again, seed):
            restored = MemoryCluster(again, {}, seed + 1, job_id="again", restored=taken)
            restored.run(crashes)
            assert told(restored.given) == results


def fitting(taken: list[Taken], graph: JobGraph, seed: int) -> list[Taken]:
    """Some of those that the graph can begin with."""
    rng = random.Random(seed)
    chosen = rng.sample(taken, min(3, len(taken)))
    return [each for each in chosen if not incompatibilities(each.metadata, graph)]
