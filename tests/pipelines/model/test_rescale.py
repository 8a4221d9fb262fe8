"""Random programs that are rescaled while they run keep their results, and publish each of them once.

As test_checkpoints.py, but in one job: at some steps a cut is taken, a checkpoint behind which all subtasks stand
still, and the job goes on from it at another parallelism, in a new generation. Its old attempts live on for a while.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pipelines.checkpoint_storage import storage
from pipelines.model.interpreter import interpret
from pipelines.model.journal import journal_of, output_of, printed
from pipelines.model.program_strategies import programs
from pipelines.model.programs import Program, topics
from pipelines.model.rows import Version
from pipelines.model.versions import programs_of

from tailrace.pipelines.graph.parallelism import vertices_at_default, with_parallelism
from tailrace.pipelines.graph.validation import validate
from tailrace.pipelines.testing.memory.checkpoints import MemoryCheckpoint, Plan, places_of
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, Message
from tailrace.pipelines.testing.memory.kafka import Place
from tailrace.schemas.types import JobGraph, SnapshotType

EXAMPLES = int(os.environ.get("EXAMPLES", "5"))
MOST_PARALLEL = 5


class RescaledCluster(MemoryCluster):
    """A job that is rescaled to one parallelism after the other."""

    def __init__(
        self, graph: JobGraph, parallelisms: Sequence[int], rate: float, *given: Any, **named: Any
    ) -> None:
        super().__init__(graph, *given, **named)
        self._parallelisms = list(parallelisms)
        self._rate = rate
        self._vertices = vertices_at_default(graph)
        self._cut: int | None = None
        self.rescales = 0

    def unfinished(self) -> list[Place]:
        """Returns the subtasks that have not finished. It is called first in each step: here the job may change."""
        if self.rng is not None:
            self._progress(self.rng)
        return super().unfinished()

    def _progress(self, rng: random.Random) -> None:
        checkpoints = self.checkpoints
        assert checkpoints is not None
        cut = next((each for each in self.taken if each.completed.checkpoint_id == self._cut), None)
        if cut is not None and self._is_whole(cut):
            self._rescale(cut, rng)
        elif self._parallelisms and not checkpoints.under_way and rng.random() < self._rate:
            if any(self._attempts[place].finished for place in self._numbers):
                return
            self._cut = checkpoints.trigger(SnapshotType.CHECKPOINT, full=rng.random() < 0.3, stops=True)

    def _is_whole(self, cut: MemoryCheckpoint) -> bool:
        """Returns whether no subtask has finished meanwhile; the parallelism stays then, and the tasks go on."""
        return not any(part.finished for part in cut.metadata.subtasks)

    def _rescale(self, cut: MemoryCheckpoint, rng: random.Random) -> None:
        assert self.checkpoints is not None
        self._cut = None
        wanted = dict.fromkeys(self._vertices, self._parallelisms.pop(0))
        graph = with_parallelism(self.graph, wanted)
        if validate(graph):
            graph = self.graph
        before = Counter(map(str, printed(cut.before)))
        assert Counter(map(str, printed(self.given))) == before, "something is published behind the cut"
        self.rescales += graph is not self.graph
        self.checkpoints.begin_generation(cut)
        self.checkpoints.graph = graph
        self.generation += 1
        self._restored = cut
        for place, attempt in self._attempts.items():
            if rng.random() < 0.5:
                attempt.crash()
            else:
                self._zombies.append((place, attempt))
        last: dict[str, int] = {}
        for (vertex_id, _), number in self._numbers.items():
            last[vertex_id] = max(last.get(vertex_id, 0), number)
        self.graph = graph
        self._attempts.clear()
        self._numbers = {place: last.get(place[0], 0) for place in places_of(graph)}
        for place in self._numbers:
            self.kafka.owners.pop(place, None)
            self._first[place] = len(self.kafka.sent.get(place, ()))
        for places in self._in_any_order():
            self._start(places)


@pytest.mark.timeout(1800)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    programs(rescalable=True),
    st.integers(0, 2**32),
    st.integers(0, 2),
    st.lists(st.integers(1, MOST_PARALLEL), min_size=1, max_size=4),
    st.sampled_from(("slot", "vertex")),
)
def test_rescaled_program_gives_results_of_interpreter(
    program: Program, seed: int, crashes: int, parallelisms: list[int], isolation: str
) -> None:
    note(repr(program))
    check(program, seed, crashes, parallelisms, isolation)


def check(program: Program, seed: int, crashes: int, parallelisms: list[int], isolation: str) -> int:
    """Compares the output; returns the number of rescales. Raises AssertionError."""
    rng = random.Random(seed)
    logs = {
        topic: [
            [Message(value, None, timestamp) for timestamp, value in partition] for partition in partitions
        ]
        for topic, partitions in topics(program).items()
    }
    most = min(MOST_PARALLEL, program.max_parallelism or MOST_PARALLEL)
    # At parallelism 1 a job is mostly one vertex, which is divided when it gets a higher one.
    first = {1: 1, **dict.fromkeys((2, 3, 4), rng.choice([1, rng.randint(min(2, most), most)]))}
    with tempfile.TemporaryDirectory() as folder, storage(seed) as directory:
        modules = programs_of(Version())
        env = modules.write(program.rescaled(first.__getitem__), Path(folder), uids=True)
        meaning = interpret(env.get_stream_graph(), modules.decoded(program)).printed
        env.configure("execution.checkpointing.interval", "1 s")
        env.configure("execution.isolation", isolation)
        graph = env.get_job_graph()
        graph = replace(graph, configuration=dict(graph.configuration))
        job = RescaledCluster(
            graph,
            parallelisms,
            rng.choice([0.02, 0.1, 0.3]),
            logs,
            seed,
            directory=directory,
            plan=Plan(rate=rng.choice([0.0, 0.05]), savepoints=0.3),
        )
        with journal_of(job):
            job.run(crashes, crash_rate=rng.choice([0.1, 0.03]))
        assert output_of(job.given) == meaning, f"seed {seed}, {job.rescales} rescales of {parallelisms}"
        return job.rescales
