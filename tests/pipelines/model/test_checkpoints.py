"""Random programs that are restored again and again, as other programs, mean what they meant.

As test_model.py has it, with checkpoints and savepoints that begin at any step, subtasks that crash, and jobs that go
back to a checkpoint, or stop with a savepoint. Then the next job begins with one that completed: at another
parallelism, with another class of rows, or both; it takes checkpoints itself, and so on. What had been given before the
checkpoint, and what is given then, are what the program means. `EXAMPLES` says how many programs are tried.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pipelines.memory_checkpoints import Plan, Taken, storage
from pipelines.memory_cluster import MemoryCluster, Message
from pipelines.model.drawing import programs
from pipelines.model.interpreter import interpret
from pipelines.model.programs import Program, topics
from pipelines.model.rows import Version
from pipelines.model.versions import programs_of

from tailrace.pipelines.checkpoint.fitting import misfits
from tailrace.schemas.types import JobGraph, SnapshotType

EXAMPLES = int(os.environ.get("EXAMPLES", "10"))
MOST_PARALLEL = 5
Printed = Counter[tuple[str | None, str]]
Parallelism = Mapping[int, int]
"""Of what the program has at each parallelism. What has one subtask in the program has one in every job."""


@pytest.mark.timeout(1800)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    programs(rescalable=True) | programs(rescalable=True, typed=True),
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.integers(0, 2),
)
def test_a_program_that_is_restored_gives_what_it_means(
    program: Program, seed: int, crashes: int, rollbacks: int
) -> None:
    note(repr(program))
    check(program, seed, crashes, rollbacks)


def check(program: Program, seed: int, crashes: int, rollbacks: int) -> int:
    """Raises AssertionError where it gives anything else. How many times it was restored."""
    rng = random.Random(seed)
    logs = {
        topic: [
            [Message(value, None, timestamp) for timestamp, value in partition] for partition in partitions
        ]
        for topic, partitions in topics(program).items()
    }
    with tempfile.TemporaryDirectory() as folder, storage(seed) as directory:
        restored: Taken | None = None
        version, parallelism = Version(), _any_parallelism(program, rng)
        graph, meaning = _graph(program, Path(folder), version, parallelism)
        for number in range(rng.randint(2, 4)):
            if restored is not None:
                version = version.next(rng) if program.is_typed and rng.random() < 0.7 else version
                for other in _parallelisms(program, restored, parallelism, rng):
                    graph, same = _graph(program, Path(folder), version, other)
                    assert same == meaning, f"{version} at {other} means something else"
                    if not misfits(restored.metadata, graph):
                        break
                parallelism = other
            plan = Plan(
                rate=rng.choice([0.02, 0.1, 0.3]),
                savepoints=rng.choice([0.0, 0.3, 1.0]),
                stop_at=rng.choice([None, None, rng.randrange(200)]),
            )
            job = MemoryCluster(
                graph,
                logs,
                seed + number,
                job_id=f"job{number}",
                directory=f"{directory}/{number}",
                plan=plan,
                restored=restored,
            )
            job.run(crashes, rollbacks=rollbacks)
            where = f"seed {seed}, job {number} of {version} at {parallelism}"
            if job.taken and job.taken[-1].stops:
                restored = job.taken[-1]
                assert _printed(job.given) == _printed(restored.before), where
                continue
            assert _printed(job.given) == meaning, where
            if not job.taken:
                return number
            restored = rng.choice(job.taken)
    return number


def _any_parallelism(program: Program, rng: random.Random) -> Parallelism:
    most = min(MOST_PARALLEL, program.max_parallelism or MOST_PARALLEL)
    return {1: 1, **{each: rng.randint(1, most) for each in (2, 3, 4)}}


def _parallelisms(
    program: Program, restored: Taken, now: Parallelism, rng: random.Random
) -> Iterator[Parallelism]:
    """Those that may fit the checkpoint; the last one does."""
    if restored.completed.snapshot_type is SnapshotType.SAVEPOINT:
        yield _any_parallelism(program, rng)
    # One to one, so that the same operators are chained: records in flight go to the operators they were sent to.
    most = min(MOST_PARALLEL, program.max_parallelism or MOST_PARALLEL)
    others = range(2, most + 1)
    changed = {1: 1, **dict(zip(others, rng.sample(others, len(others)), strict=True))}
    yield {each: changed[parallelism] for each, parallelism in now.items()}
    yield now


def _graph(
    program: Program, folder: Path, version: Version, parallelism: Parallelism
) -> tuple[JobGraph, Printed]:
    modules = programs_of(version)
    env = modules.write(program.rescaled(parallelism.__getitem__), folder, uids=True)
    meaning = interpret(env.get_stream_graph(), modules.decoded(program))
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph(), meaning.printed


def _printed(given: Iterable[Mapping[str, Any]]) -> Printed:
    return Counter((each["identifier"], each["text"]) for each in given)
