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
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.pipelines.graph.chain import edge_type, output_type
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.pipelines.runtime.buffers import BufferCodec, header_of
from tailrace.pipelines.runtime.deployment import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.failures import TaskError
from tailrace.pipelines.runtime.formats import Format, reader_of
from tailrace.pipelines.runtime.formats.format import read_good
from tailrace.pipelines.runtime.operators.build import build_prefix
from tailrace.pipelines.runtime.operators.chain import Line
from tailrace.pipelines.runtime.stream_task.assembly import Assembly, KafkaInput
from tailrace.pipelines.runtime.stream_task.progress import Progress
from tailrace.pipelines.runtime.stream_task.subtask import Subtask
from tailrace.pipelines.runtime.stream_task.transaction import ConsumedOffset
from tailrace.schemas.types import JobGraph

CLUSTER = "memory"
JOB = "job"
BEGIN_MS = 1_700_000_000_000
AFTER_MAX_MS = 3_600_000
"""Brokers' default of message.timestamp.after.max.ms."""
MOST_STEPS = 20_000
"""Of a job that is run until something has come of it."""
_MANY = 1_000_000

Place = tuple[str, int]
"""A subtask: vertex id and index."""
Sent = tuple[str, int, "Message"]
"""A message, and the topic and partition that it went to."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a topic."""

    value: bytes
    key: bytes | None = None
    timestamp_ms: int = BEGIN_MS


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


@dataclass
class MemoryKafka:
    """Logs of messages, and what groups have committed."""

    logs: dict[str, dict[int, list[Message]]] = field(default_factory=dict)
    offsets: dict[Place, dict[tuple[str, int], ConsumedOffset]] = field(default_factory=dict)
    owners: dict[Place, MemoryTransaction] = field(default_factory=dict)
    """Whose transactions count: those of the attempt that came last."""
    sent: dict[Place, list[Sent]] = field(default_factory=dict)
    """What each subtask has committed, in its order."""

    def append(self, topic: str, partition: int, message: Message) -> None:
        self.logs.setdefault(topic, {}).setdefault(partition, []).append(message)

    def log(self, topic: str, partition: int) -> list[Message]:
        return self.logs.get(topic, {}).get(partition, [])


class MemoryTransaction:
    """Transaction of one attempt; nothing of a fenced one arrives."""

    def __init__(
        self,
        kafka: MemoryKafka,
        owner: Place,
        rng: random.Random | None = None,
        now: Callable[[], int] = lambda: BEGIN_MS,
    ) -> None:
        """With `rng`, what is told gets lost or comes late now and then. `now`: the broker's clock."""
        self._kafka = kafka
        self._owner = owner
        self._rng = rng
        self._now = now
        self._late: list[Sent] = []
        self._open: list[Sent] = []
        kafka.owners[owner] = self

    @property
    def sent(self) -> int:
        """How many messages the subtask has sent, with those that are not committed yet."""
        return len(self._kafka.sent.get(self._owner, ())) + len(self._open)

    @property
    def active(self) -> bool:
        return bool(self._open)

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        if partition is None:
            partition = 0
        if timestamp_ms > self._now() + AFTER_MAX_MS:
            raise TaskError(f"a message was not delivered: {timestamp_ms} is too far ahead for {topic}")
        self._open.append((topic, partition, Message(value, key, timestamp_ms)))

    def require_topic(self, topic: str) -> None:
        """Topics are made as they are written to."""

    def tell(self, topic: str, partition: int, value: bytes) -> None:
        fate = 1.0 if self._rng is None else self._rng.random()
        if fate > 0.4:
            self._kafka.append(topic, partition, Message(value))
        elif fate > 0.2:
            self._late.append((topic, partition, Message(value)))

    def commit(self, offsets: Sequence[ConsumedOffset]) -> None:
        if self._kafka.owners[self._owner] is not self:
            raise TaskError("a newer attempt of this subtask has fenced this one")
        self._kafka.sent.setdefault(self._owner, []).extend(self._open)
        for topic, partition, message in (*self._open, *self._late):
            self._kafka.append(topic, partition, message)
        self._late.clear()
        committed = self._kafka.offsets.setdefault(self._owner, {})
        committed.update({(each.topic, each.partition): each for each in offsets})
        self._open.clear()

    def abort(self) -> None:
        self._open.clear()


class _Attempt:
    """One attempt of a subtask, and where what is handed over to it comes from."""

    def __init__(self, cluster: MemoryCluster, vertex_id: str, index: int, number: int) -> None:
        self._cluster = cluster
        kafka, owner = cluster.kafka, (vertex_id, index)
        deployment = VertexDeployment(
            CLUSTER, JOB, cluster.graph, vertex_id, (SubtaskDeployment("", index, number),)
        )
        self._transaction = MemoryTransaction(kafka, owner, cluster.rng, lambda: cluster.now)
        self.assembly = Assembly(deployment, index, number, self._transaction, cluster.wall_clock)
        self.finished = False
        self._index = index
        source = self.assembly.through_spark
        self._kafka_input = None if source is None else self._locate()
        self._topics = self.assembly.channel_topics if self._kafka_input is None else self._kafka_input.topics
        committed = kafka.offsets.get(owner, {}).values()
        self.task: Subtask = self.assembly.subtask(Progress.read(self._topics, committed), self._kafka_input)
        if self.assembly.changelog is not None:
            for message in kafka.log(self.assembly.changelog, index):
                self.task.restore(message.key or b"", message.value)
        self._open_prefix(deployment)
        places = (
            [(i, index) for i in range(len(self._topics))]
            if self._kafka_input is None
            else list(self._kafka_input.ends or ())
        )
        self._cursors = {
            place: cluster.handed_over_from(self.task.positions.get(place[0], {}).get(place[1], 0))
            for place in places
        }
        self.polls = self.assembly.parts.source is not None and source is None
        setup = None
        if self.polls:
            setup = self.assembly.source_setup(cluster.wall_clock, lambda: None, _no_pause)
        self.task.open(setup)

    def _locate(self) -> KafkaInput:
        """The partitions that are this subtask's, each with its end."""
        assembly = self.assembly
        assert assembly.through_spark is not None
        topics = sorted(json.loads(assembly.through_spark.parameters)["topics"])
        places = [
            (i, partition)
            for i, topic in enumerate(topics)
            for partition in range(len(self._cluster.kafka.logs[topic]))
        ]
        mine = [p for n, p in enumerate(places) if n % assembly.vertex.parallelism == self._index]
        ends = {(i, p): len(self._cluster.kafka.log(topics[i], p)) for i, p in mine}
        return KafkaInput(tuple(topics), ends, tuple(mine))

    def _open_prefix(self, deployment: VertexDeployment) -> None:
        prefix, source = self.assembly.parts.prefix, self.assembly.through_spark
        if source is not None:
            parameters = json.loads(source.parameters)
            record_type = output_type(source)
            self._reader = reader_of(Format.of(parameters["format"]), record_type)
            self._skips = parameters.get("on_bad_record") == "skip"
            types = [record_type]
        else:
            types = [edge_type(deployment.job_graph, edge) for edge in deployment.inputs]
        self._line = build_prefix(prefix, *types[:1]) if prefix else Line(())
        self._line.open()
        self._reads = [BufferCodec(each) for each in types] if prefix else []
        self._writes = (
            BufferCodec(output_type(prefix[-1] if prefix else source)) if prefix or source else None
        )

    def step(self, rng: random.Random | None) -> bool:
        """Does something; whether there was anything to do but to wait."""
        moved = self.poll(rng) if self.polls else self._hand_over(rng)
        if self.assembly.parts.source is not None:
            self.task.advance_clock(self._cluster.wall_clock() - 1)
        if self.task.ended:
            self.task.finish()
            self.finished = True
            return True
        if rng is None or rng.random() < 0.4:
            moved = self._commit(rng) or moved
        return moved

    def poll(self, rng: random.Random | None) -> bool:
        """Has the source read some records."""
        return self.task.poll(_MANY if rng is None else rng.randint(1, 5)).batch is not None

    def _commit(self, rng: random.Random | None) -> bool:
        if self.task.dirty:
            return self.task.commit(tell_all=rng is None or rng.random() < 0.3)
        if self.task.is_behind:
            return self.task.tell_time() or self.task.commit(tell_all=True)
        if self.task.repeats and self._cluster.repeats_now(rng):
            self.task.tell_time(again=True)
        return False

    def _hand_over(self, rng: random.Random | None) -> bool:
        """The next buffers of a channel, or records of a topic."""
        ready = [
            place
            for place, cursor in self._cursors.items()
            if cursor < len(self._cluster.kafka.log(self._topics[place[0]], place[1]))
        ]
        news = False
        for place in ready if rng is None else ready and [rng.choice(ready)]:
            log = self._cluster.kafka.log(self._topics[place[0]], place[1])
            first = self._cursors[place]
            count = len(log) - first if rng is None else rng.randint(1, min(3, len(log) - first))
            self._cursors[place] = first + count
            if self._kafka_input is not None:
                self._take_records(place, first, log[first : first + count])
                news = True
            else:
                for offset, message in enumerate(log[first : first + count], first):
                    self._take_buffer(place, offset, message.value)
                    news = news or not header_of(message.value).tick
        return news

    def _take_buffer(self, place: tuple[int, int], offset: int, data: bytes) -> None:
        if self._writes is not None:
            header, batch = self._reads[place[0]].decode(data)
            made = self._line.process(batch)
            with self._line.typed():
                data = self._writes.encode(header, made)
        self.task.take_buffer(*place, offset, data)

    def _take_records(self, place: tuple[int, int], first: int, messages: Sequence[Message]) -> None:
        timestamps = pa.array([message.timestamp_ms for message in messages], pa.int64())
        values = pa.array([message.value for message in messages], pa.binary())
        batch, bad = read_good(self._reader, timestamps, values)
        if bad and not self._skips:
            raise TaskError(bad[0].why)
        assert self._writes is not None
        payload = self._writes.payload(self._line.process(batch))
        position = self.task.positions.get(place[0], {}).get(place[1], 0)
        if first < position < first + len(messages):
            # A query begins at one place: what it hands over again has the same bounds, or begins at the position.
            self._cursors[place] = position
            return
        self.task.take_records(*place, first, first + len(messages), payload)

    def close(self) -> None:
        """After an error too."""
        self.task.close()
        self._line.close()

    def crash(self) -> None:
        """What the process had in memory is gone."""
        self._transaction.abort()
        with contextlib.suppress(Exception):
            self.close()


class MemoryCluster:
    """One run of a job graph."""

    def __init__(self, graph: JobGraph, topics: Mapping[str, Sequence[Sequence[Message]]], seed: int | None):
        self.graph = graph
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
        attempts = {place: _Attempt(self, *place, 0) for place in places}
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
                        attempts[place] = _Attempt(self, *place, numbers[place])
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


def _no_pause(seconds: float) -> None:
    raise AssertionError(f"a source waits {seconds} s for something: it cannot run in memory")


def _total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals
