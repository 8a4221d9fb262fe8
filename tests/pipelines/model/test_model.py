"""Random programs over random inputs give what a straightforward interpreter of the API says they mean.

The runtime works in one process (`memory_cluster`): its operators, gates, codecs and partitioners are those of a real
job, in an order of events that a seed decides, with crashes. `EXAMPLES` says how many programs are tried.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pipelines.memory_cluster import Message
from pipelines.model.drawing import programs
from pipelines.model.interpreter import interpret
from pipelines.model.programs import Program, decoded, topics, write

from pipelines import memory_cluster

EXAMPLES = int(os.environ.get("EXAMPLES", "150"))


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(programs(), st.one_of(st.none(), st.integers(0, 2**32)), st.integers(0, 4))
def test_a_program_gives_what_it_means(program: Program, seed: int | None, crashes: int) -> None:
    note(repr(program))
    check(program, seed, crashes)


def check(program: Program, seed: int | None, crashes: int) -> None:
    """Raises AssertionError where the program gives anything else than it means."""
    with tempfile.TemporaryDirectory() as folder:
        env = write(program, Path(folder))
        stream_graph = env.get_stream_graph()
        meaning = interpret(stream_graph, decoded(program))
        logs = {
            topic: [
                [Message(value, None, timestamp) for timestamp, value in partition]
                for partition in partitions
            ]
            for topic, partitions in topics(program).items()
        }
        outcome = memory_cluster.run(env.get_job_graph(), topics=logs, seed=seed, crashes=crashes)
    printed = Counter((message["identifier"], message["text"]) for message in outcome.printed)
    assert printed == meaning.printed
    assert Counter(outcome.accumulators) == meaning.accumulators
