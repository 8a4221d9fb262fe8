"""Random programs over random inputs give the results of a simple interpreter of the API.

The runtime works in one process (`memory_cluster`): operators, gates, codecs and partitioners are those of a real job,
in an order by seed, with crashes; every second run is in BATCH mode. `EXAMPLES` says how many programs are tried.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pipelines.model.expressions import WHERE
from pipelines.model.interpreter import interpret
from pipelines.model.journal import journal_of, output_of
from pipelines.model.program_strategies import programs
from pipelines.model.programs import Program, Source, decoded, topics, write
from pipelines.model.rows import Row
from pipelines.model.steps import Step

from tailrace.pipelines.graph.job_options import RUNTIME_MODE
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, Message

EXAMPLES = int(os.environ.get("EXAMPLES", "8"))


@pytest.mark.timeout(1800)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 2**32), st.integers(0, 4))
def test_program_gives_results_of_interpreter(program: Program, seed: int, crashes: int) -> None:
    note(repr(program))
    check(program, (seed, seed + 1, None), crashes)


@pytest.mark.parametrize("kind", ["collection", "files", "orc", "spark", "json"])
def test_condition_gives_rows_of_interpreter(kind: str) -> None:
    rows = tuple(Row("abc"[i % 3], i % 12 - 3, i * 7 % 5 * (i % 4)) for i in range(40))
    source = Source(kind, (rows,), 0, 1)
    for condition in WHERE:
        steps = (Step("where", (0,), (condition,), 1), Step("printed", (1,), ("x",), 1))
        program = Program((source,), steps, chaining=True, mini_batch=False, max_parallelism=None)
        check(program, (1, None), crashes=3)


def check(program: Program, seeds: Sequence[int | None], crashes: int) -> None:
    """Compares the output of the program with its meaning in any order of events. Raises AssertionError."""
    logs = {
        topic: [
            [Message(value, None, timestamp) for timestamp, value in partition] for partition in partitions
        ]
        for topic, partitions in topics(program).items()
    }
    with tempfile.TemporaryDirectory() as folder:
        env = write(program, Path(folder))
        meaning = interpret(env.get_stream_graph(), decoded(program))
        graph = env.get_job_graph()
        in_stages = msgspec.structs.replace(
            graph, configuration={**graph.configuration, RUNTIME_MODE.key: "BATCH"}
        )
        for place, seed in enumerate(seeds):
            job = MemoryCluster(in_stages if place % 2 else graph, logs, seed, topics_end=True)
            with journal_of(job):
                outcome = job.run(crashes)
            assert output_of(outcome.printed) == meaning.printed, f"seed {seed}"
            assert Counter(outcome.accumulators) == meaning.accumulators, f"seed {seed}"
