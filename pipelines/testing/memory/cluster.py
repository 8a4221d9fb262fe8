"""A whole job in one process: real operators, gates, codecs and writers; Kafka is lists, Spark is a loop, time is a
number.

In each step one subtask does one thing: it takes the next buffer of a channel (handed over as Spark's workers do,
through the stateless prefix), polls its source, looks at the clock, commits, or crashes. A seed decides which, so that
a run can be repeated; without a seed everything happens in order and in large batches, which is fastest.

A crash is a SIGKILL: the open transaction is lost, and a new attempt continues from what was committed. Its input may
start below its positions, as with a query that was started for older attempts.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....schemas.types import JobGraph, JobVertex, RestoredCheckpoint
from ...api import StreamExecutionEnvironment
from ...api.transformations import Physical
from ...checkpoint.compatibility import finished_subtasks
from ...graph.execution_graph import stages_of
from ...graph.execution_mode import has_slot_processes
from ...graph.physical_plan import output_topic
from ...runtime.common.failures import ProgressLostError, TaskError
from .attempt import MemoryAttempt, MemoryProcess
from .checkpoints import MemoryCheckpoint, MemoryCoordinator, Plan, places_of
from .kafka import BEGIN_MS, MemoryKafka, MemoryTransaction, Message, Place
from .surroundings import CLUSTER, MemorySurroundings

__all__ = [
    "BEGIN_MS", "CLUSTER", "JOB", "MemoryCluster", "MemoryKafka", "MemoryTransaction", "Message", "Outcome",
    "give_uids", "run",
]  # fmt: skip

JOB = "job"
MOST_STEPS = 20_000
"""Of a job that is run until something has come of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of a job."""

    topics: Mapping[str, Mapping[int, Sequence[Message]]]
    """Topic -> partition -> messages: Kafka sinks' topics, and everything else that was written."""
    accumulators: Mapping[str, float]
    steps: int
    attempts: int
    """Of all subtasks together."""
    job_id: str = JOB

    @property
    def printed(self) -> list[dict[str, Any]]:
        """Returns the messages of all print sinks: subtask, identifier, text, record."""
        partitions = self.topics.get(output_topic(CLUSTER, self.job_id), {})
        return [json.loads(message.value) for message in partitions.get(0, ())]

    @property
    def records(self) -> list[Any]:
        """Returns the printed records as JSON values."""
        return [message["record"] for message in self.printed]

    def messages(self, topic: str) -> list[Message]:
        """Returns all messages of a topic, partition by partition."""
        return [message for _, messages in sorted(self.topics.get(topic, {}).items()) for message in messages]


class MemoryCluster(MemorySurroundings):
    """One run of a job graph, in one generation after another."""

    def __init__(
        self,
        graph: JobGraph,
        topics: Mapping[str, Sequence[Sequence[Message]]],
        seed: int | None,
        *,
        job_id: str = JOB,
        directory: str = "",
        scratch: str = "/dev/null/state",
        plan: Plan | None = None,
        restored: MemoryCheckpoint | None = None,
        topics_end: bool = False,
        now: int = BEGIN_MS,
        logs: dict[str, dict[int, list[Message]]] | None = None,
    ) -> None:
        """Checkpoints are taken into the directory: as the plan says, which needs a seed. `scratch`: for state on disk.

        `topics_end`: unbounded Kafka sources are read to the ends of their topics, too. `restored`: the checkpoint of
        another job from which this job starts. `now`: the time when it starts (ms). `logs`: topics that jobs share,
        instead of `topics`.
        """
        if logs is None:
            logs = {name: dict(enumerate(map(list, partitions))) for name, partitions in topics.items()}
        super().__init__(
            graph, MemoryKafka(logs), seed, job_id=job_id, scratch=scratch, topics_end=topics_end, now=now
        )
        self.steps = 0
        self._attempts: dict[Place, MemoryAttempt] = {}
        self._stages = stages_of(graph)
        self._numbers = dict.fromkeys(places_of(graph), -1)
        self._canceled = False
        self._zombies: list[tuple[Place, MemoryAttempt]] = []
        """Attempts of an older generation that do not know it yet."""
        self._restored = restored
        """What this generation began with."""
        self._first: dict[Place, int] = dict.fromkeys(self._numbers, 0)
        """How much each subtask had sent before this generation."""
        self.checkpoints: MemoryCoordinator | None = None
        if directory:
            self.checkpoints = MemoryCoordinator(
                graph,
                job_id,
                directory,
                plan,
                self.rng,
                running=self._running,
                given=self.given_by,
                restored=restored,
            )

    @property
    def taken(self) -> list[MemoryCheckpoint]:
        """Returns the complete checkpoints, oldest first."""
        return [] if self.checkpoints is None else self.checkpoints.taken

    @property
    def given(self) -> list[dict[str, Any]]:
        """Returns the printed output that counts: what this generation started with, and its own."""
        before = () if self._restored is None else self._restored.before
        return [*before, *(row for place in self._numbers for row in self.given_by(place))]

    def given_by(self, place: Place, sent: int | None = None) -> list[dict[str, Any]]:
        """Returns what a subtask has printed in this generation, of its first so many messages."""
        output = output_topic(CLUSTER, self.job_id)
        messages = self.kafka.sent.get(place, [])[self._first[place] : sent]
        return [json.loads(message.value) for topic, _, message in messages if topic == output]

    def run(
        self,
        crashes: int = 0,
        patience: int = 1_000,
        crash_rate: float | None = None,
        until: Callable[[MemoryKafka], bool] | None = None,
        rollbacks: int = 0,
    ) -> Outcome:
        """Runs until every subtask has finished, or the output is as large as given. Raises what a subtask raises.

        A job that loses its progress rolls back to its last checkpoint, and fails if there is none. `rollbacks`: the
        maximum number of rollbacks to the last checkpoint, at random times.
        """
        rng = self.rng
        idle = 0
        if rng is None:
            crash_rate = 0.0
        elif crash_rate is None:
            crash_rate = rng.choice([0.1, 0.03])  # early, or when much has been sent
        self._attempts.clear()  # a second run starts the job again
        try:
            self.start()
            while (unfinished := self.unfinished()) and not (until is not None and until(self.kafka)):
                if self._canceled:
                    break
                self.steps += 1
                self._now += 1
                if self.checkpoints is not None:
                    self.checkpoints.step(self.steps)
                chosen = [unfinished[rng.randrange(len(unfinished))]] if rng is not None else unfinished
                moved = False
                if rng is not None:
                    self.disturb(rng)
                for place in chosen:
                    try:
                        moved = self.step(place, rng) or moved
                        if crashes and rng is not None and rng.random() < crash_rate:
                            crashes -= 1
                            self.crash(place)
                    except ProgressLostError as lost:
                        self._go_back(place, lost)
                        moved = True
                latest = self._latest
                if rollbacks and rng is not None and latest is not None and rng.random() < 0.2:
                    rollbacks -= 1
                    self._roll_back(latest)
                self._let_zombies_work()
                if rng is not None:
                    self.kafka.deliver_late(rng)
                if until is not None and self.steps > MOST_STEPS:
                    raise AssertionError(f"after {self.steps} steps it has not come to what was to come")
                idle = 0 if moved else idle + 1
                if idle > patience * len(self._numbers):
                    raise AssertionError(f"nothing happens any more; unfinished are {unfinished}")
            return Outcome(
                self.kafka.logs,
                self.accumulators,
                self.steps,
                sum(number + 1 for number in self._numbers.values()),
                self.job_id,
            )
        finally:
            self.close()

    def start(self) -> None:
        """Starts the first attempt of each subtask; in a job with stages, of each subtask of the next stage."""
        waiting = [places for places in self._processes() if places[0] not in self._attempts]
        stage = min((self._stages[places[0][0]] for places in waiting), default=0)
        for places in waiting:
            if self._stages[places[0][0]] == stage:
                self._start(places)

    def close(self) -> None:
        """Closes all attempts, whatever they raise."""
        for attempt in (*self._attempts.values(), *(zombie for _, zombie in self._zombies)):
            with contextlib.suppress(Exception):
                attempt.close()

    @property
    def accumulators(self) -> dict[str, float]:
        """Returns the committed accumulators of all subtasks together."""
        return _total(attempt.accumulators for attempt in self._attempts.values())

    def _vertex(self, place: Place) -> JobVertex:
        return next(vertex for vertex in self.graph.vertices if vertex.vertex_id == place[0])

    @property
    def _latest(self) -> MemoryCheckpoint | None:
        """Returns the checkpoint for a rollback: the job's last one, or the one that it started from; None if it
        takes none."""
        return None if self.checkpoints is None else self.checkpoints.latest or self._restored

    def unfinished(self) -> list[Place]:
        """Returns the subtasks that have not finished, senders first; in a job with stages, those of the current
        stage."""
        if all(attempt.finished for attempt in self._attempts.values()):
            self.start()
        return [
            place for place in self._numbers if place in self._attempts and not self._attempts[place].finished
        ]

    @property
    def has_finished_subtask(self) -> bool:
        """Whether a subtask has finished."""
        return any(attempt.finished for attempt in self._attempts.values())

    def _running(self) -> dict[Place, MemoryAttempt]:
        return {place: attempt for place, attempt in self._attempts.items() if not attempt.finished}

    def _processes(self) -> list[list[Place]]:
        """Returns the subtasks of each process, senders first."""
        if not has_slot_processes(self.graph.configuration):
            return [[place] for place in self._numbers]
        groups = {
            vertex.vertex_id: vertex.slot_sharing_group or vertex.vertex_id for vertex in self.graph.vertices
        }
        found: dict[tuple[str, int], list[Place]] = {}
        for vertex_id, index in self._numbers:
            found.setdefault((groups[vertex_id], index), []).append((vertex_id, index))
        return list(found.values())

    def _process_of(self, place: Place) -> list[Place]:
        """Returns the subtasks of its process that have not finished."""
        (places,) = (places for places in self._processes() if place in places)
        return [each for each in places if not self._attempts[each].finished]

    def _start(self, places: Sequence[Place]) -> None:
        """Starts the subtasks of a process."""
        for place in places:
            self._prepare(place)
        MemoryProcess([self._attempts[place] for place in places])

    def _prepare(self, place: Place) -> None:
        """Prepares a new attempt from what its subtask has committed in this generation."""
        self._numbers[place] += 1
        restored, checkpoints = self._restored, self.checkpoints
        self._attempts[place] = MemoryAttempt(
            self,
            place,
            self._numbers[place],
            restore=self._restore(),
            finished=restored is not None
            and place[1] in finished_subtasks(restored.metadata, self._vertex(place)),
            checkpoints_over=0 if checkpoints is None else checkpoints.counter,
            tell=None if checkpoints is None else checkpoints.reporter_of(place),
        )

    def _restore(self) -> RestoredCheckpoint | None:
        """Returns what a new attempt restores."""
        latest = None if self.checkpoints is None else self.checkpoints.latest
        if latest is not None:
            return latest.to_restore()
        return None if self._restored is None else self._restored.to_restore(elsewhere=True)

    def step(self, place: Place, rng: random.Random | None) -> bool:
        """Lets a subtask do one thing; with `rng`, any. Returns whether it did more than wait."""
        attempt = self._attempts[place]
        moved = attempt.step(rng)
        if self.checkpoints is not None:
            if attempt.finished:
                self.checkpoints.finished(place)
            else:
                over = set(attempt.task.checkpoints.pending) - self.checkpoints.under_way
                assert not over, f"{place} waits for barriers of checkpoints {over}, which are over"
        return moved

    def crash(self, place: Place) -> None:
        """Kills the process of a subtask, and starts it again."""
        if self._attempts[place].finished:
            return
        places = self._process_of(place)
        for each in places:
            self._attempts[each].crash()
        if self.checkpoints is not None and self.checkpoints.stopped:
            self._canceled = True  # the savepoint has all that was wanted
            return
        if self.checkpoints is not None:
            for each in places:
                self.checkpoints.died(each)
        if self.rng is not None and self.rng.random() < 0.3:
            for each in places:
                # Its TaskExecutor was restarted, and runs the attempts again under their numbers.
                self._numbers[each] -= 1
        self._start(places)

    def _roll_back(self, taken: MemoryCheckpoint) -> None:
        """Starts a new generation from the checkpoint; attempts of the old one continue until they detect that."""
        assert self.checkpoints is not None
        self.checkpoints.begin_generation(taken)
        self.generation += 1
        self._restored = taken
        self._zombies += [(p, attempt) for p, attempt in self._attempts.items() if not attempt.finished]
        for places in self._in_any_order():
            self._let_zombies_work()
            for place in places:
                self.kafka.owners.pop(place, None)  # fenced: what the old generation has sent is known
                self._first[place] = len(self.kafka.sent.get(place, ()))
            self._start(places)

    def disturb(self, rng: random.Random) -> None:
        """Called before each step; a subclass may do harm."""

    def _go_back(self, place: Place, lost: ProgressLostError) -> None:
        """Rolls back after a subtask has lost its progress. Raises the loss if there is no checkpoint."""
        latest = self._latest
        if latest is None:
            raise lost
        for each in self._process_of(place):
            self._attempts[each].crash()
            self._attempts[each].finished = True
        self._roll_back(latest)

    def _in_any_order(self) -> list[list[Place]]:
        processes = self._processes()
        if self.rng is not None:
            self.rng.shuffle(processes)
        return processes

    def _let_zombies_work(self) -> None:
        """Lets attempts of the old generation run now and then; an attempt that is fenced, or reads output of the
        new generation, ends."""
        for dying in list(self._zombies):
            if dying in self._zombies and self.rng is not None and self.rng.random() < 0.3:
                try:
                    dying[1].step(self.rng)
                except TaskError:
                    process = dying[1].process
                    for each in [zombie for zombie in self._zombies if zombie[1].process is process]:
                        each[1].crash()
                        self._zombies.remove(each)
                else:
                    if dying[1].finished:
                        self._zombies.remove(dying)


def run(
    graph: JobGraph,
    *,
    topics: Mapping[str, Sequence[Sequence[Message]]] | None = None,
    seed: int | None = None,
    crashes: int = 0,
    patience: int = 1_000,
) -> Outcome:
    """Runs a job with bounded sources to its end. Raises what a subtask raises.

    `topics`: topic -> partition -> messages, for Kafka sources; they are read to their ends. `seed`: the order of
    steps; None: in order. `crashes`: the maximum number of crashes, if there is a seed.
    """
    return MemoryCluster(graph, topics or {}, seed, topics_end=True).run(crashes, patience)


def give_uids(env: StreamExecutionEnvironment) -> None:
    """Gives a uid to each operator without one, by number."""
    for transformation in list(env._program.transformations.values()):
        if isinstance(transformation, Physical) and transformation.uid is None:
            env._program.change(transformation.id, uid=f"operator {transformation.id}")


def _total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals
