"""A subtask at work, with its mailbox and real time, on a Kafka of lists."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from polling import TIMEOUT_S

from tailrace.pipelines.api import (
    FileSink,
    Formats,
    KafkaSource,
    KeyedContext,
    KeyedProcessFunction,
    MapFunction,
    OnTimerContext,
    RuntimeContext,
    StartingOffsets,
    StreamExecutionEnvironment,
    TumblingProcessingTimeWindows,
)
from tailrace.pipelines.graph.physical_plan import changelog_topic, channel_topic, output_topic
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.common.protocol import (
    BUFFER,
    FAILURE,
    RECORDS,
    QuerySwitched,
    SwitchQuery,
    TaskMetrics,
    TaskNotice,
)
from tailrace.pipelines.runtime.common.settings import TaskSettings
from tailrace.pipelines.runtime.operators.files.pending_files import PendingFiles
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import BufferCodec, BufferHeader, decode_header
from tailrace.pipelines.runtime.stream_task.checkpoint import subtask_output
from tailrace.pipelines.runtime.stream_task.loop import mailbox_loop as running
from tailrace.pipelines.runtime.stream_task.loop.assembly import Assembly, KafkaInput
from tailrace.pipelines.runtime.stream_task.loop.event_loop_thread import EventLoopThread, TaskAsyncCalls
from tailrace.pipelines.runtime.stream_task.loop.mailbox import (
    Command,
    ForwardedMessage,
    Mailbox,
    TaskCanceled,
)
from tailrace.pipelines.runtime.stream_task.loop.slot_commit import SlotCommit
from tailrace.pipelines.runtime.stream_task.loop.task_driver import TaskDriver
from tailrace.pipelines.runtime.stream_task.state.progress import SubtaskProgress
from tailrace.pipelines.testing.memory.cluster import CLUSTER, JOB, MemoryKafka, MemoryTransaction
from tailrace.pipelines.types import Types
from tailrace.schemas.types import JobGraph


class Waiting(MemoryTransaction):
    """Notifies threads that wait for a commit or a tick."""

    changed = threading.Condition()

    def commit(self) -> None:
        with self.changed:
            super().commit()
            self.changed.notify_all()

    def tell(self, topic: str, partition: int, value: bytes) -> None:
        with self.changed:
            super().tell(topic, partition, value)
            self.changed.notify_all()


class Task:
    """A subtask of a vertex, run by a thread."""

    def __init__(
        self, graph: JobGraph, vertex: int, kafka_source: KafkaInput | None = None, **settings: int
    ) -> None:
        self.kafka = MemoryKafka()
        self.mailbox = Mailbox()
        self.notices: list[TaskNotice] = []
        self.end: BaseException | None = None
        self._vertex = chosen = graph.vertices[vertex].vertex_id
        self._output = next((e.data_set_id for e in graph.edges if e.source_vertex_id == chosen), "")
        deployment = VertexDeployment(CLUSTER, JOB, graph, chosen, (SubtaskDeployment("", 0, 0),))
        clock = running.WallClock()
        transaction = Waiting(self.kafka, (chosen, 0))
        self.event_loop = EventLoopThread()
        calls = TaskAsyncCalls(self.event_loop, self.mailbox, 0)
        assembly = Assembly(deployment, 0, 0, transaction, clock, async_calls=calls)
        self.subtask = assembly.subtask(SubtaskProgress(), kafka_source)
        driver = TaskDriver(
            self.subtask, assembly, self.mailbox, TaskSettings(**settings), clock, self.notices.append
        )
        self._run = running.MailboxLoop(
            [driver], self.mailbox, TaskSettings(**settings), SlotCommit([self.subtask], transaction)
        )
        self._thread = threading.Thread(target=self._work)

    def start(self) -> Task:
        self._thread.start()
        return self

    def _work(self) -> None:
        try:
            self._run.open()
            self._run.run_until_ended()
        except BaseException as error:
            self.end = error
        finally:
            self.subtask.close()
            self.event_loop.close()

    def hand_over(self, *letters: ForwardedMessage) -> None:
        self.mailbox.put([(letter, 1) for letter in letters])

    def command(self, command: Command) -> None:
        self.mailbox.command(command)

    def wait(self, condition: Callable[[], bool]) -> None:
        with Waiting.changed:
            assert Waiting.changed.wait_for(lambda: condition() or self.end is not None, TIMEOUT_S)
        assert self.end is None, self.end

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for what comes without a commit."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.end is None, self.end
            assert time.monotonic() < deadline, self.notices
            time.sleep(0.005)

    def ended(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self.mailbox.cancel()
        self.ended()

    def printed(self) -> int:
        return len(self.kafka.log(output_topic(CLUSTER, JOB), 0))

    def texts(self) -> list[str]:
        log = self.kafka.log(output_topic(CLUSTER, JOB), 0)
        return [json.loads(message.value)["text"] for message in log]

    def changelog(self) -> str:
        return changelog_topic(CLUSTER, JOB, self._vertex)

    def headers(self) -> list[BufferHeader]:
        """Returns the headers of the messages that it has sent."""
        topic = channel_topic(CLUSTER, JOB, self._output)
        return [decode_header(message.value) for message in self.kafka.log(topic, 0)]


@pytest.fixture
def start() -> Iterator[Callable[[Task], Task]]:
    """Starts tasks, and stops the remaining ones at the end."""
    tasks: list[Task] = []

    def begin(task: Task) -> Task:
        tasks.append(task.start())
        return task

    yield begin
    for task in tasks:
        task.stop()


def environment() -> StreamExecutionEnvironment:
    """Returns an environment whose partitioned records cross channels from one subtask to one."""
    return StreamExecutionEnvironment().set_parallelism(1).configure("execution.isolation", "vertex")


def buffer(offset: int, values: list[str], *, ends: bool = False, query: int = 0) -> ForwardedMessage:
    header = BufferHeader(0, 0, offset, ends=ends)
    data = BufferCodec(Types.STRING()).encode(header, Batch([0] * len(values), values))
    return ForwardedMessage(BUFFER, 0, query, 0, offset, offset + 1, data)


def printing() -> JobGraph:
    env = environment()
    env.from_collection(["unused"], str).rebalance().print()
    return env.get_job_graph("printing")


def test_records_are_committed_periodically_and_task_ends_with_its_senders(
    start: Callable[[Task], Task],
) -> None:
    task = start(Task(printing(), 1))
    task.hand_over(buffer(0, ["a", "b"]))
    task.wait(lambda: task.printed() == 2)
    task.hand_over(buffer(0, ["a", "b"]), buffer(1, ["c"], ends=True))
    task.ended()
    assert (task.end, task.printed()) == (None, 3)
    last = task.notices[-1]
    assert isinstance(last, TaskMetrics)
    assert (last.records_in, last.records_out) == (3, 0)


def test_source_is_polled_to_its_end(start: Callable[[Task], Task]) -> None:
    env = environment()
    env.from_collection([str(i) for i in range(25_000)], str).print()
    task = start(Task(env.get_job_graph("numbers"), 0))
    task.ended()
    assert (task.end, task.printed()) == (None, 25_000)


def windowed() -> JobGraph:
    env = environment()
    words = env.from_collection(["unused"], str).rebalance().filter(lambda word: word != "no")
    by_word = words.key_by(lambda word: word)
    by_word.window(TumblingProcessingTimeWindows.of(milliseconds=20)).reduce(lambda a, b: a).print()
    return env.get_job_graph("windows")


def timed() -> JobGraph:
    env = environment()
    words = env.from_collection(["unused"], str).rebalance()
    words.key_by(lambda word: word).process(Reminders(), str).print()
    return env.get_job_graph("timers")


class Reminders(KeyedProcessFunction[str, str, str]):
    """Three timers per record, one after the other."""

    def process_element(self, value: str, context: KeyedContext[str]) -> None:
        timers = context.timer_service
        for delay in (0, 20, 40):
            timers.register_processing_time_timer(timers.current_processing_time() + delay)

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[str]:
        late = context.timer_service.current_processing_time() - timestamp
        return [f"{context.current_key} {late > 0}"]


@pytest.mark.parametrize(("graph", "given"), [(windowed(), 2), (timed(), 6)], ids=["window", "timers"])
def test_windows_and_timers_follow_wall_clock_without_input(
    start: Callable[[Task], Task], graph: JobGraph, given: int
) -> None:
    last = len(graph.vertices) - 1
    task = start(Task(graph, last, watermark_interval_ms=1_000_000))
    task.hand_over(buffer(0, ["a", "b"]))
    task.wait(lambda: task.printed() == given)
    reports = [
        json.loads(message.value)["record"] for message in task.kafka.log(output_topic(CLUSTER, JOB), 0)
    ]
    assert not any(str(report).endswith("False") for report in reports), "no timer fires before its time"


@pytest.mark.parametrize("at_its_end", [False, True])
def test_files_closed_by_predecessor_are_published_without_input(
    start: Callable[[Task], Task], tmp_path: Path, at_its_end: bool
) -> None:
    """With a commit, which proves that the attempt is the last."""
    env = environment()
    env.from_source(KafkaSource("lines", Formats.text(), bounded=at_its_end)).sink_to(FileSink(str(tmp_path)))
    graph = env.get_job_graph("files")
    ends = {(0, 3): 0} if at_its_end else None
    task = Task(graph, 0, KafkaInput(("lines",), ends, ((0, 3),)))
    files = PendingFiles("part-{}.txt".format)
    files.fill(1, b"a\n", 0)
    files.close()
    sink = graph.vertices[0].operators[-1].operator_id
    for message in files.take_changes():
        task.subtask.state.restore(sink.encode(), message)
    start(task)
    task.wait_until(lambda: (tmp_path / "part-0.txt").is_file())
    assert [message.key for message in task.kafka.log(task.changelog(), 0)][:1] == [sink.encode()]


def test_input_of_older_query_is_ignored_after_switch(start: Callable[[Task], Task]) -> None:
    env = environment()
    env.from_source(KafkaSource("lines", Formats.text(), bounded=True)).print()
    source = KafkaInput(("lines",), {(0, 3): 6})
    task = start(Task(env.get_job_graph("kafka"), 0, source))
    codec = BufferCodec(Types.STRING())

    def records(query: int, first: int, values: list[str]) -> ForwardedMessage:
        payload = codec.payload(Batch([0] * len(values), values))
        return ForwardedMessage(RECORDS, 0, query, 3, first, first + len(values), payload)

    task.hand_over(records(1, 0, ["a", "b"]))
    task.wait(lambda: task.printed() == 2)
    task.command(SwitchQuery(2))
    task.wait_until(lambda: any(isinstance(notice, QuerySwitched) for notice in task.notices))
    task.hand_over(records(1, 2, ["c"]), records(2, 2, ["c", "d", "e", "f"]))
    task.ended()
    assert (task.end, task.printed()) == (None, 6)
    assert [notice for notice in task.notices if isinstance(notice, QuerySwitched)] == [
        QuerySwitched(2, {0: {3: 2}}, ("lines",))
    ]


def test_added_partitions_of_known_and_new_topics_are_read(start: Callable[[Task], Task]) -> None:
    env = environment()
    env.from_source(KafkaSource("lines", Formats.text())).print()
    task = start(Task(env.get_job_graph("kafka"), 0, KafkaInput(("lines",), None, ((0, 3),))))
    codec = BufferCodec(Types.STRING())

    def records(query: int, index: int, partition: int, first: int) -> ForwardedMessage:
        payload = codec.payload(Batch([0], ["a"]))
        return ForwardedMessage(RECORDS, index, query, partition, first, first + 1, payload)

    task.hand_over(records(1, 0, 3, 0))
    task.wait_until(lambda: task.printed() == 1)
    task.command(SwitchQuery(2, added={"lines": {3: 7, 5: 4}, "more": {0: 9}}))
    task.wait_until(lambda: any(isinstance(notice, QuerySwitched) for notice in task.notices))
    task.hand_over(records(2, 0, 3, 1), records(2, 0, 5, 4), records(2, 1, 0, 9))
    task.wait_until(lambda: task.printed() == 4)
    assert [notice for notice in task.notices if isinstance(notice, QuerySwitched)] == [
        QuerySwitched(2, {0: {3: 1, 5: 4}, 1: {0: 9}}, ("lines", "more"))
    ]
    entry = task.kafka.tail(task.changelog(), 0).entry
    assert entry is not None
    assert {i.topic: dict(i.positions) for i in entry.inputs} == {"lines": {3: 2, 5: 5}, "more": {0: 10}}


def test_command_that_overtakes_input_of_its_own_query_drops_what_the_next_one_repeats(
    start: Callable[[Task], Task],
) -> None:
    env = environment()
    env.from_source(KafkaSource("lines", Formats.text(), bounded=True)).print()
    task = Task(env.get_job_graph("kafka"), 0, KafkaInput(("lines",), {(0, 3): 2}))
    payload = BufferCodec(Types.STRING()).payload(Batch([0, 0], ["a", "b"]))
    task.hand_over(ForwardedMessage(RECORDS, 0, 1, 3, 0, 2, payload))
    task.command(SwitchQuery(2))
    start(task)
    task.wait_until(lambda: QuerySwitched(2, {}, ("lines",)) in task.notices)
    assert task.printed() == 0
    task.hand_over(ForwardedMessage(RECORDS, 0, 2, 3, 0, 2, payload))
    task.ended()
    assert (task.end, task.printed()) == (None, 2)


def test_query_takes_over_when_it_has_caught_up(start: Callable[[Task], Task]) -> None:
    env = environment()
    env.from_source(KafkaSource("lines", Formats.text(), bounded=True)).print()
    task = start(Task(env.get_job_graph("kafka"), 0, KafkaInput(("lines",), {(0, 3): 6})))
    codec = BufferCodec(Types.STRING())

    def records(query: int, first: int, values: list[str]) -> ForwardedMessage:
        payload = codec.payload(Batch([0] * len(values), values))
        return ForwardedMessage(RECORDS, 0, query, 3, first, first + len(values), payload)

    task.hand_over(records(1, 0, ["a", "b"]))
    task.command(SwitchQuery(2, at_once=False))
    task.hand_over(
        *(records(1, 2, ["c", "d"]), records(2, 2, ["c"]), records(2, 3, ["d"])),
        *(records(2, 4, ["e"]), records(1, 4, ["e", "f"]), records(2, 5, ["f"])),
    )
    task.ended()
    assert (task.end, task.printed()) == (None, 6)


def test_failure_counts_only_with_its_records(start: Callable[[Task], Task]) -> None:
    task = start(Task(printing(), 1))
    task.hand_over(
        buffer(0, ["a"]), ForwardedMessage(FAILURE, 0, 0, 0, 0, 1, b"an old story"), buffer(1, ["b"])
    )
    task.wait(lambda: task.printed() == 2)
    task.hand_over(ForwardedMessage(FAILURE, 0, 0, 0, 2, 3, b"ValueError: it is bad"))
    task.ended()
    assert isinstance(task.end, TaskError)
    assert str(task.end) == "ValueError: it is bad"


def test_large_output_is_committed_before_interval_ends(
    start: Callable[[Task], Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtask_output, "LARGE_COMMIT_RECORDS", 3)
    env = environment()
    env.from_collection(["unused"], str).rebalance().map(str.upper, str).rebalance().print()
    task = Task(env.get_job_graph("much"), 1, commit_interval_ms=3_600_000)
    task.hand_over(*(buffer(i, ["a", "b", "c"]) for i in range(4)))
    start(task)
    task.wait(lambda: len(task.headers()) == 4)


class CountingFunction(MapFunction[str, str]):
    """A function that counts in an accumulator."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.metrics.counter("seen")
        self.total = context.accumulator("total")
        context.metrics.gauge("broken", lambda: 1 / 0)

    def map(self, value: str) -> str:
        self.seen.inc()
        self.total.inc(2)
        return value


def test_accumulators_are_reported_after_commit(start: Callable[[Task], Task]) -> None:
    env = environment()
    env.from_collection(["a", "b"], str).map(CountingFunction(), str).name("told").print()
    task = start(Task(env.get_job_graph("told"), 0))
    task.ended()
    last = task.notices[-1]
    assert isinstance(last, TaskMetrics)
    assert last.accumulators == {"total": 4}
    assert last.metrics == {"told.seen": 2}
    assert last.as_accumulators()["numRecordsIn"] == 2


def test_cancelled_task_ends_at_once(start: Callable[[Task], Task]) -> None:
    task = start(Task(printing(), 1))
    task.stop()
    assert isinstance(task.end, TaskCanceled)


def test_latency_markers_need_no_records_and_no_commit(start: Callable[[Task], Task]) -> None:
    env = environment()
    env.configure("metrics.latency.interval", "5 ms")
    source = KafkaSource("lines", Formats.text(), StartingOffsets.earliest())
    env.from_source(source).rebalance().map(str.upper, str).rebalance().print()
    graph = env.get_job_graph("idle")
    source_task = start(Task(graph, 0, KafkaInput(("lines",), None, ((0, 0),))))
    behind = start(Task(graph, 1))
    source_task.wait(lambda: len(source_task.headers()) >= 3)
    assert all(header.marker for header in source_task.headers())
    topic = channel_topic(CLUSTER, JOB, graph.edges[0].data_set_id)
    markers = [message.value for message in source_task.kafka.log(topic, 0)][-2:]
    behind.hand_over(*(ForwardedMessage(BUFFER, 0, 0, 0, i, i + 1, data) for i, data in enumerate(markers)))
    behind.wait(lambda: len(behind.headers()) >= len(markers))
    assert all(header.marker for header in behind.headers())

    def reported() -> list[TaskMetrics]:
        notices = [notice for notice in behind.notices if isinstance(notice, TaskMetrics)]
        return [notice for notice in notices if notice.latencies]

    behind.wait_until(lambda: bool(reported()))
    last = reported()[-1]
    assert (last.commits, last.records_in, sum(last.latencies[0].counts)) == (0, 0, len(markers))
