"""A task that reads its input itself while no query does: whoever reads, and whoever takes over when, each message is
processed once, in the order of its partition."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import Formats, KafkaSource, StreamExecutionEnvironment
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.common.protocol import RECORDS, QueryConnected, QuerySwitched, SwitchQuery
from tailrace.pipelines.runtime.common.settings import TaskSettings
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import BufferCodec
from tailrace.pipelines.runtime.spark.message_place import PLACE
from tailrace.pipelines.runtime.spark.query import QueryMode
from tailrace.pipelines.runtime.spark.record_forwarder import RECORD_COLUMNS, TIMESTAMP, TOPIC
from tailrace.pipelines.runtime.stream_task.input.direct_reader import to_rows
from tailrace.pipelines.runtime.stream_task.loop.assembly import Assembly, KafkaInput
from tailrace.pipelines.runtime.stream_task.loop.direct_reading import NEAR, DirectReading
from tailrace.pipelines.runtime.stream_task.loop.mailbox import (
    ConnectionsClosed,
    DirectMessage,
    ForwardedMessage,
    Mail,
    Mailbox,
)
from tailrace.pipelines.runtime.stream_task.loop.slot_commit import SlotCommit
from tailrace.pipelines.runtime.stream_task.loop.task_driver import TaskDriver
from tailrace.pipelines.runtime.stream_task.state.progress import SubtaskProgress
from tailrace.pipelines.testing.memory.cluster import CLUSTER, JOB, MemoryKafka, MemoryTransaction, Message
from tailrace.pipelines.testing.memory.kafka_rows import kafka_rows
from tailrace.pipelines.types import Types

CODEC = BufferCodec(Types.STRING())
PARTITIONS = (0, 1)


def _graph() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment().set_parallelism(1)
    env.from_source(KafkaSource("lines", Formats.text())).print()
    return env


GRAPH = _graph().get_job_graph("direct")


class Deliverer:
    """A query, or the task's own reader: delivers what follows its positions, in any portions."""

    def __init__(
        self, begin: Mapping[int, int], number: int, largest: int, is_reader: bool = False, overlap: int = 0
    ) -> None:
        self.one_by_one_to = {partition: begin.get(partition, 0) + overlap for partition in PARTITIONS}
        self.cursors = dict.fromkeys(PARTITIONS, 0) | dict(begin)
        self.number = number
        self.largest = largest
        self.is_reader = is_reader
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class World:
    """A task, the topic, and everything that reads it; does what a TaskRuntime does with its queries."""

    def __init__(self, seed: int, *, from_the_start: bool, drops: bool = False) -> None:
        self.rng = random.Random(seed)
        self.drops = drops
        self.written = dict.fromkeys(PARTITIONS, 0)
        self.kafka = MemoryKafka()
        self._answers: list[QuerySwitched] = []
        self.readers: list[Deliverer] = []
        self.queries: list[Deliverer] = []
        vertex = GRAPH.vertices[0].vertex_id
        deployment = VertexDeployment(CLUSTER, JOB, GRAPH, vertex, (SubtaskDeployment("", 0, 0),))
        transaction = MemoryTransaction(self.kafka, (vertex, 0))
        assembly = Assembly(deployment, 0, 0, transaction, lambda: 0)
        places = tuple((0, partition) for partition in PARTITIONS)
        self.task = assembly.subtask(SubtaskProgress(), KafkaInput(("lines",), None, places))
        self.commits = SlotCommit([self.task], transaction)
        self.direct = DirectReading(self._open_reader, from_the_start=from_the_start)
        self.driver = TaskDriver(
            self.task, assembly, Mailbox(), TaskSettings(), lambda: 0, self._notice, direct=self.direct
        )
        self.driver.open()
        self.direct.start()
        self._number = 0
        self.mode = QueryMode.REAL_TIME
        self.query: Deliverer | None = None
        """The one that was started last; None after a failure."""
        if from_the_start:
            self._start_query({})
        else:
            self.restart()

    def _notice(self, notice: object) -> None:
        if isinstance(notice, QuerySwitched):
            self._answers.append(notice)

    def _open_reader(self, number: int) -> Deliverer:
        self.readers.append(Deliverer(self.task.positions.get(0, {}), number, 5, is_reader=True))
        return self.readers[-1]

    def handle(self, letter: Mail) -> None:
        self.driver.handle(letter)

    def is_dropped(self, offset: int) -> bool:
        """Whether a condition drops a message."""
        return self.drops and offset % 7 in (1, 2, 3, 4)

    def results(self, partition: int, first: int, following: int) -> list[str]:
        """Returns the records of some messages."""
        return [f"{partition} {offset}" for offset in range(first, following) if not self.is_dropped(offset)]

    def deliver(self, who: Deliverer) -> None:
        """Delivers some messages of a partition."""
        partition = self.rng.choice(PARTITIONS)
        first, end = who.cursors[partition], self.written[partition]
        following = min(end, first + self.rng.randint(1, who.largest))
        if first < who.one_by_one_to[partition]:
            following = min(following, first + 1)
        if following <= first:
            return
        if self.is_dropped(first) and who.largest == 1 and first >= who.one_by_one_to[partition]:
            # In real time Spark hands over together what a condition has dropped.
            while following < end and self.is_dropped(following) and self.rng.random() < 0.8:
                following += 1
        who.cursors[partition] = following
        values = self.results(partition, first, following)
        number = 0 if who.is_reader else who.number
        payload = CODEC.payload(Batch([0] * len(values), values))
        message = ForwardedMessage(RECORDS, 0, number, partition, first, following, payload)
        self.handle(DirectMessage(who.number, message) if who.is_reader else message)

    def _switch(self, *, at_once: bool, reads: bool, overlap: int | None = None) -> Mapping[int, int]:
        self._number += 1
        self.handle(SwitchQuery(self._number, at_once, overlap=overlap, reads_directly=reads))
        return self._answers[-1].positions.get(0, {})

    def _start_query(self, begin: Mapping[int, int], overlap: int | None = None) -> None:
        if self.query is None:
            self._number = max(self._number, 1)
        # A query may begin where the task was before.
        largest = 1 if self.mode is QueryMode.REAL_TIME else 4
        self.query = Deliverer(begin, self._number, largest, overlap=overlap or 0)
        self.queries.append(self.query)

    def _continue(self, before: QueryMode | None) -> None:
        at_once = self.mode is QueryMode.BULK or (before, self.mode) == (
            QueryMode.COALESCED,
            QueryMode.REAL_TIME,
        )
        reads = self.mode is QueryMode.REAL_TIME and (at_once or before is None)
        overlap = self.rng.randint(0, 9) if self.mode is QueryMode.COALESCED else None
        self._start_query(self._switch(at_once=at_once, reads=reads, overlap=overlap), overlap)

    def restart(self) -> None:
        """Starts a query after a failure, or the first one."""
        if self.query is None:
            self._continue(None)

    def fail(self) -> None:
        """A query fails. What it had sent before may still arrive."""
        if self.query is not None:
            self.query = None
            self._switch(at_once=True, reads=self.mode is not QueryMode.BULK)

    def change_mode(self, mode: QueryMode | None = None) -> None:
        """Continues in another mode, or in the same one with more partitions. The old query may still deliver."""
        if self.query is not None:
            before = self.mode
            self.mode = mode or self.rng.choice([QueryMode.REAL_TIME, QueryMode.COALESCED, QueryMode.BULK])
            self._continue(before)

    def renew(self) -> None:
        """A query begins its next batch: its workers have delivered everything, and others connect."""
        if self.query is not None and len(self.queries) == 1:
            self.handle(ConnectionsClosed())

    def retire(self) -> None:
        """An older query, or a reader that is closed, delivers no more."""
        self.readers = [reader for reader in self.readers if not reader.is_closed or self.rng.random() < 0.3]
        self.queries = [query for query in self.queries if query is self.query or self.rng.random() < 0.3]

    def step(self) -> None:
        """Does anything that may happen."""
        for partition in PARTITIONS:
            self.written[partition] += self.rng.randint(0, 2)
        rare: list[Callable[[], object]] = [
            self.restart, self.fail, self.change_mode, self.renew, self.retire, self.retire, self.commits.commit,
            lambda: self.handle(QueryConnected()), self.direct.close,
        ]  # fmt: skip
        readers = [*self.readers, *self.queries]
        if readers and self.rng.random() < 0.6:
            self.deliver(self.rng.choice(readers))
        else:
            # Only a query that runs lets the reader end before it has delivered.
            self.rng.choice(rare if self.query is not None else rare[:-2])()

    def end(self) -> list[str]:
        """Lets the last query deliver everything, and returns what was printed."""
        self.restart()
        assert self.query is not None
        while any(self.query.cursors[partition] < self.written[partition] for partition in PARTITIONS):
            self.deliver(self.query)
        self.commits.commit()
        printed = self.kafka.log(output_topic(CLUSTER, JOB), 0)
        self.task.close()
        return [str(json.loads(message.value)["record"]) for message in printed]


@given(seed=st.integers(0, 2**32), from_the_start=st.booleans(), drops=st.booleans())
@settings(max_examples=example_count(60), deadline=None)
def test_each_message_is_processed_once_in_order_whoever_reads_it(
    seed: int, *, from_the_start: bool, drops: bool
) -> None:
    world = World(seed, from_the_start=from_the_start, drops=drops)
    for _ in range(60):
        world.step()
    printed = world.end()
    for partition in PARTITIONS:
        own = [text for text in printed if text.startswith(f"{partition} ")]
        assert own == world.results(partition, 0, world.written[partition])
    assert world.task.positions.get(0, {}) == {p: end for p, end in world.written.items() if end}


def test_task_reads_until_query_delivers_and_again_between_its_batches() -> None:
    world = World(1, from_the_start=True)
    world.written = dict.fromkeys(PARTITIONS, 100)
    (first,), query = world.readers, world.query
    assert query is not None
    world.deliver(first)
    assert not first.is_closed
    world.deliver(query)
    assert first.is_closed, "the query delivers"
    world.renew()
    second = world.readers[-1]
    assert second is not first
    assert second.cursors == dict.fromkeys(PARTITIONS, 0) | world.task.positions[0]
    world.handle(QueryConnected())
    assert not second.is_closed
    assert world.direct.ends_at < float("inf"), "without input it ends soon"


def test_task_does_not_read_between_batches_of_bulk_query() -> None:
    world = World(1, from_the_start=False)
    world.change_mode(QueryMode.BULK)
    (reader,) = world.readers
    assert reader.is_closed
    world.handle(ConnectionsClosed())
    assert world.readers == [reader]


class FakeMessage:
    """A message as a Consumer returns it."""

    def __init__(self, message: Message, offset: int) -> None:
        self._message, self._offset = message, offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._message.timestamp_ms

    def key(self) -> bytes | None:
        return self._message.key

    def value(self) -> bytes | None:
        return self._message.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._message.headers) or None


@pytest.mark.parametrize("columns", [(PLACE, "value"), (TOPIC, *RECORD_COLUMNS, TIMESTAMP, PLACE, "value")])
def test_rows_of_messages_are_those_of_spark(columns: tuple[str, ...]) -> None:
    messages = [Message(b"a"), Message(b"", b"k", 5, (("h", b"1"), ("h", None)))]
    rows = to_rows([FakeMessage(message, 7 + i) for i, message in enumerate(messages)], columns)  # type: ignore[misc]
    theirs = kafka_rows(messages, 7, 3).append_column(TOPIC, pa.array(["t", "t"]))
    assert rows == theirs.select(list(columns))


def test_query_that_is_far_behind_does_not_end_reading() -> None:
    world = World(1, from_the_start=True)
    world.written = {0: NEAR + 2, 1: 0}
    (reader,), query = world.readers, world.query
    assert query is not None
    while reader.cursors[0] < world.written[0]:
        world.deliver(reader)
    world.handle(QueryConnected())
    while not query.cursors[0]:
        world.deliver(query)
    assert not reader.is_closed
    assert world.direct.ends_at == float("inf")
    while query.cursors[0] < 2:
        world.deliver(query)
    assert reader.is_closed
