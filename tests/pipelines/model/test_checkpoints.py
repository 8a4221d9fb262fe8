"""Random programs that take checkpoints, go back to them, and are restored elsewhere mean what they meant.

As test_model.py has it, with one more kind of event: at any step a checkpoint or savepoint may begin. From some of
those that complete the program is begun anew, with another parallelism where a step has more than one subtask; what
had been given before the checkpoint, and what is given then, are what the program means. `EXAMPLES` says how many are
tried.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pipelines.memory_checkpoints import Plan, storage
from pipelines.memory_cluster import MemoryCluster, Message
from pipelines.model.drawing import programs
from pipelines.model.interpreter import interpret
from pipelines.model.programs import Program, decoded, topics, write

from tailrace.pipelines.checkpoint.fitting import misfits
from tailrace.schemas.types import JobGraph

EXAMPLES = int(os.environ.get("EXAMPLES", "10"))


@pytest.mark.timeout(1800)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(programs(rescalable=True), st.integers(0, 2**32), st.integers(0, 3), st.integers(0, 2))
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
    restored = 0
    with tempfile.TemporaryDirectory() as folder, storage(seed) as directory:
        graph, meaning = _graph(program, Path(folder))
        plan = Plan(rate=rng.choice([0.02, 0.1, 0.3]), savepoints=rng.choice([0.0, 0.3, 1.0]))
        job = MemoryCluster(graph, logs, seed, directory=f"{directory}/1", plan=plan)
        job.run(crashes, rollbacks=rollbacks)
        assert _printed(job) == meaning, f"seed {seed}"
        for taken in rng.sample(job.taken, min(2, len(job.taken))):
            # One to one, so that what was FORWARD is, and nothing else.
            other = dict(zip((1, 2, 3, 4), (1, *rng.sample((2, 3, 4), 3)), strict=True))
            changed, _ = _graph(program.rescaled(other.__getitem__), Path(folder))
            for chosen in (changed, graph):
                if misfits(taken.metadata, chosen):
                    continue
                again = MemoryCluster(chosen, logs, seed + 1, job_id="again", restored=taken)
                again.run(crashes)
                assert _printed(again) == meaning, f"seed {seed}, from checkpoint {taken.completed}"
                restored += 1
                break
    return restored


def _graph(program: Program, folder: Path) -> tuple[JobGraph, Counter[tuple[str | None, str]]]:
    env = write(program, folder, uids=True)
    meaning = interpret(env.get_stream_graph(), decoded(program))
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph(), meaning.printed


def _printed(job: MemoryCluster) -> Counter[tuple[str | None, str]]:
    return Counter((each["identifier"], each["text"]) for each in job.given)
