"""One attempt of a subtask in one process, and where what is handed over to it comes from."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.pipelines.graph.chain import edge_type, output_type
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

from .memory_kafka import MemoryTransaction, Message

if TYPE_CHECKING:
    from .memory_cluster import MemoryCluster

CLUSTER = "memory"
_MANY = 1_000_000


class MemoryAttempt:
    """One attempt of a subtask, and where what is handed over to it comes from."""

    def __init__(self, cluster: MemoryCluster, vertex_id: str, index: int, number: int) -> None:
        self._cluster = cluster
        kafka, owner = cluster.kafka, (vertex_id, index)
        deployment = VertexDeployment(
            CLUSTER, cluster.job_id, cluster.graph, vertex_id, (SubtaskDeployment("", index, number),)
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


def _no_pause(seconds: float) -> None:
    raise AssertionError(f"a source waits {seconds} s for something: it cannot run in memory")
