"""Random programs that are restored several times, as changed programs, keep their results.

As test_model.py, with checkpoints and savepoints at any step, crashing subtasks, and jobs that roll back to a
checkpoint or stop with a savepoint. The next job starts from a complete one: at another parallelism, with another row
class, or both; it takes checkpoints itself, and so on. The output before the checkpoint and the output afterwards
together are the results of the program. `EXAMPLES` says how many programs are tried.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pipelines.checkpoint_storage import storage
from pipelines.model.interpreter import interpret
from pipelines.model.journal import journal_of, output_of, printed
from pipelines.model.program_strategies import programs
from pipelines.model.programs import Program, topics
from pipelines.model.rows import Version
from pipelines.model.versions import programs_of

from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.testing.memory.checkpoints import MemoryCheckpoint, Plan
from tailrace.pipelines.testing.memory.cluster import BEGIN_MS, MemoryCluster, Message
from tailrace.schemas.types import JobGraph, SnapshotType

EXAMPLES = int(os.environ.get("EXAMPLES", "5"))
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
def test_restored_program_gives_results_of_interpreter(
    program: Program, seed: int, crashes: int, rollbacks: int
) -> None:
    note(repr(program))
    check(program, seed, crashes, rollbacks)


def check(program: Program, seed: int, crashes: int, rollbacks: int) -> int:
    """Compares the output; returns the number of restores. Raises AssertionError."""
    rng = random.Random(seed)
    logs = {
        topic: [
            [Message(value, None, timestamp) for timestamp, value in partition] for partition in partitions
        ]
        for topic, partitions in topics(program).items()
    }
    with tempfile.TemporaryDirectory() as folder, storage(seed) as directory:
        restored: MemoryCheckpoint | None = None
        now = BEGIN_MS
        version, parallelism = Version(), _any_parallelism(program, rng)
        graph, meaning = _graph(program, Path(folder), version, parallelism)
        for number in range(rng.randint(2, 4)):
            plan = Plan(
                rate=rng.choice([0.02, 0.1, 0.3]),
                savepoints=rng.choice([0.0, 0.0, 0.3, 1.0]),
                stop_at=rng.choice([None, None, None, rng.randrange(200)]),
            )
            job = MemoryCluster(
                graph,
                logs,
                seed + number,
                job_id=f"job{number}",
                directory=f"{directory}/{number}",
                plan=plan,
                restored=restored,
                now=now,
            )
            with journal_of(job):
                job.run(crashes, crash_rate=rng.choice([0.1, 0.03, 0.01]), rollbacks=rollbacks)
            now = job.now
            where = f"seed {seed}, job {number} of {version} at {parallelism}"
            if not job.taken:
                assert output_of(job.given) == meaning, where
                return number
            checkpoints = job.taken
            if checkpoints[-1].stops:
                checkpoints = checkpoints[-1:]
                # A transaction that is closed before the savepoint may be committed behind it.
                assert output_of(printed(job.given)) == output_of(printed(checkpoints[-1].before)), where
            else:
                assert output_of(job.given) == meaning, where
            if program.is_typed and rng.random() < 0.7:
                version = version.next(rng)
            for other in _parallelisms(program, parallelism, rng):
                graph, same = _graph(program, Path(folder), version, other)
                assert same == meaning, f"{version} at {other} means something else"
                fitting = [checkpoint for checkpoint in checkpoints if _fits(checkpoint, graph)]
                if fitting:
                    parallelism = other
                    restored = max(rng.choices(fitting, k=5), key=_in_flight)
                    break
    return number


def _any_parallelism(program: Program, rng: random.Random) -> Parallelism:
    most = min(MOST_PARALLEL, program.max_parallelism or MOST_PARALLEL)
    return {1: 1, **{item: rng.randint(1, most) for item in (2, 3, 4)}}


def _parallelisms(program: Program, now: Parallelism, rng: random.Random) -> list[Parallelism]:
    """Yields parallelisms that checkpoints of the job may fit; the last one is that of the job."""
    most = min(MOST_PARALLEL, program.max_parallelism or MOST_PARALLEL)
    others = range(2, most + 1)
    # One to one, so that the same operators are chained.
    changed = {1: 1, **dict(zip(others, rng.sample(others, len(others)), strict=True))}
    one_to_one = {number: changed[parallelism] for number, parallelism in now.items()}
    any_parallelism = _any_parallelism(program, rng)
    return [*rng.sample([one_to_one, any_parallelism], 2), now]


def _fits(taken: MemoryCheckpoint, graph: JobGraph) -> bool:
    """Returns whether in-flight records go only to vertices that still exist, with the same operators."""
    is_savepoint = taken.completed.snapshot_type is SnapshotType.SAVEPOINT
    chains = [{operator.operator_id for operator in vertex.operators} for vertex in graph.vertices]
    before = [{operator.operator_id for operator in vertex.operators} for vertex in taken.metadata.vertices]
    same_chains = all(chain in before for chain in chains)
    return (is_savepoint or same_chains) and not incompatibilities(taken.metadata, graph)


def _in_flight(taken: MemoryCheckpoint) -> int:
    """Returns how many channels had in-flight records."""
    return sum(len(subtask.state.in_flight) for subtask in taken.metadata.subtasks)


def _graph(
    program: Program, folder: Path, version: Version, parallelism: Parallelism
) -> tuple[JobGraph, Printed]:
    modules = programs_of(version)
    env = modules.write(program.rescaled(parallelism.__getitem__), folder, uids=True)
    meaning = interpret(env.get_stream_graph(), modules.decoded(program))
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph(), meaning.printed
