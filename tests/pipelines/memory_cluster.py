"""A whole job in one process: real operators, gates, codecs and writers; Kafka is lists, Spark a loop, time a number.

Each step one subtask does one thing: takes the next buffer of a channel (handed over as Spark's workers do, through the
stateless prefix), polls its source, looks at the clock, commits, or crashes. A seed decides which, so that a run can be
run again; without one everything happens in order and in large batches, which is the fastest.

A crash is what SIGKILL is: the open transaction is gone, and a new attempt goes on from what was committed. What is
handed over to it may begin below its positions, as a query does that was started for older ones.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.schemas.types import JobGraph

from .memory_attempt import CLUSTER, MemoryAttempt
from .memory_kafka import BEGIN_MS, MemoryKafka, MemoryTransaction, Message

__all__ = [
    "BEGIN_MS", "CLUSTER", "JOB", "MemoryCluster", "MemoryKafka", "MemoryTransaction", "Message", "Outcome", "run",
]  # fmt: skip

JOB = "job"
MOST_STEPS = 20_000
"""Of a job that is run until something has come of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job leaves behind."""

    topics: Mapping[str, Mapping[int, Sequence[Message]]]
    """Topic -> partition -> messages: Kafka sinks' topics, and everything else that was written."""
    accumulators: Mapping[str, float]
    steps: int
    attempts: int
    """Of all subtasks together."""
    job_id: str = JOB

    @property
    def printed(self) -> list[dict[str, Any]]:
        """The messages of all print sinks: subtask, identifier, text, record."""
        partitions = self.topics.get(output_topic(CLUSTER, self.job_id), {})
        return [json.loads(message.value) for message in partitions.get(0, ())]

    @property
    def records(self) -> list[Any]:
        """What was printed, as JSON has it."""
        return [message["record"] for message in self.printed]

    def messages(self, topic: str) -> list[Message]:
        """All messages of a topic, partition by partition."""
        return [message for _, messages in sorted(self.topics.get(topic, {}).items()) for message in messages]


class MemoryCluster:
    """One run of a job graph."""

    def __init__(
        self,
        graph: JobGraph,
        topics: Mapping[str, Sequence[Sequence[Message]]],
        seed: int | None,
        *,
        job_id: str = JOB,
    ) -> None:
        self.graph = graph
        self.job_id = job_id
        self.kafka = MemoryKafka({name: dict(enumerate(map(list, logs))) for name, logs in topics.items()})
        self.rng = None if seed is None else random.Random(seed)
        self._now = BEGIN_MS

    @property
    def now(self) -> int:
        """The broker's clock, milliseconds."""
        return self._now

    def wall_clock(self) -> int:
        """Milliseconds; goes on a little now and then."""
        if self.rng is not None and self.rng.random() < 0.2:
            self._now += self.rng.randint(0, 50)
        return self._now

    def repeats_now(self, rng: random.Random | None) -> bool:
        """Whether a subtask tells again what it has told."""
        return self._now % 100 == 0 if rng is None else rng.random() < 0.05

    def handed_over_from(self, position: int) -> int:
        """Where a query begins for an attempt with that position."""
        if self.rng is None or self.rng.random() < 0.7:
            return position
        return self.rng.randint(0, position)

    def run(
        self,
        crashes: int,
        patience: int,
        crash_rate: float = 0.1,
        until: Callable[[MemoryKafka], bool] | None = None,
    ) -> Outcome:
        """Until every subtask has finished, or so much has come of it. Raises what a subtask raises."""
        rng = self.rng
        places = [(v.vertex_id, i) for v in self.graph.vertices for i in range(v.parallelism)]
        attempts = {place: MemoryAttempt(self, *place, 0) for place in places}
        numbers = dict.fromkeys(places, 0)
        unfinished = list(places)
        crashable = 0.0 if not crashes else crash_rate
        steps = idle = 0
        try:
            while unfinished and not (until is not None and until(self.kafka)):
                steps += 1
                self._now += 1
                chosen = [unfinished[rng.randrange(len(unfinished))]] if rng is not None else unfinished
                moved = False
                for place in list(chosen):
                    moved = attempts[place].step(rng) or moved
                    if rng is not None and crashes and rng.random() < crashable:
                        crashes -= 1
                        attempts[place].crash()
                        numbers[place] += 1
                        attempts[place] = MemoryAttempt(self, *place, numbers[place])
                    if attempts[place].finished:
                        unfinished.remove(place)
                if until is not None and steps > MOST_STEPS:
                    raise AssertionError(f"after {steps} steps it has not come to what was to come")
                idle = 0 if moved else idle + 1
                if idle > patience * len(places):
                    raise AssertionError(f"nothing happens any more; unfinished are {unfinished}")
            return Outcome(
                self.kafka.logs,
                _total(attempt.assembly.accumulators.committed() for attempt in attempts.values()),
                steps,
                len(places) + sum(numbers.values()),
                self.job_id,
            )
        finally:
            for attempt in attempts.values():
                with contextlib.suppress(Exception):
                    attempt.close()


def run(
    graph: JobGraph,
    *,
    topics: Mapping[str, Sequence[Sequence[Message]]] | None = None,
    seed: int | None = None,
    crashes: int = 0,
    patience: int = 1_000,
) -> Outcome:
    """Runs a job whose sources are all bounded, to its end. Raises what a subtask raises.

    `topics`: topic -> partition -> messages, for Kafka sources; they are read to their ends. `seed`: who does what
    when; None: in order. `crashes`: at most so many subtasks die, if there is a seed.
    """
    return MemoryCluster(graph, topics or {}, seed).run(crashes, patience)


def _total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals
