"""The runtime with real Spark, real Kafka and real sockets: input is counted exactly once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import pytest
from kafka_topics import Topics
from polling import TIMEOUT_S, wait_until
from process_status import process_name
from runtime_jobs import Job, Reports

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows
from tailrace.pipelines.api.build import build
from tailrace.pipelines.graph.physical_plan import channel_topic
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState, JobGraph

pytestmark = pytest.mark.timeout(300)


class TextServer:
    """A text server on a free port."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def accept(self) -> socket.socket:
        self._listener.settimeout(TIMEOUT_S)
        return self._listener.accept()[0]

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def server() -> Iterator[TextServer]:
    serving = TextServer()
    yield serving
    serving.close()


def word_count(
    port: int, flat_map: int = 1, window: int = 1, seconds: float = 1, isolation: str = "slot"
) -> JobGraph:
    arguments = {
        "--hostname": "127.0.0.1", "--port": port, "--window-seconds": seconds,
        "--flat-map-parallelism": flat_map, "--window-parallelism": window,
    }  # fmt: skip
    flat = [str(part) for pair in arguments.items() for part in pair]
    return build(
        "tailrace.pipelines.examples.window_word_count:main", flat, 1, {"execution.isolation": isolation}
    )


def text(words: list[str]) -> bytes:
    return "".join(" ".join(words[i : i + 10]) + "\n" for i in range(0, len(words), 10)).encode()


WORDS = [f"word-{i % 97}" for i in range(20_000)]


@pytest.mark.parametrize(("flat_map", "window"), [(1, 1), (4, 3)])
def test_every_word_is_counted_once_and_windows_close_without_more_input(
    start: Callable[[JobGraph], Job], server: TextServer, flat_map: int, window: int
) -> None:
    job = start(word_count(server.port, flat_map, window))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    with server.accept() as connection:
        connection.sendall(text(WORDS))
        # The connection stays open and silent: only the clock can close the last window.
        assert job.printed_in_all(len(WORDS)) == Counter(WORDS)
        read_by_windows = [job.attempt(len(job.graph.vertices) - 1, index) for index in range(window)]
        # In one vertex with the source, they come as lines.
        records = len(WORDS) if job.graph.edges else len(WORDS) // 10
        counted = job.accumulated("numRecordsIn", read_by_windows, records)
        assert counted == records, "what the windows have committed is every word"
    for attempt in attempts:
        assert job.reports.of(attempt)[:2] == [ExecutionState.INITIALIZING, ExecutionState.RUNNING]


def test_end_of_text_fires_open_windows_and_finishes_every_task(
    start: Callable[[JobGraph], Job], server: TextServer
) -> None:
    job = start(word_count(server.port, 2, 3, seconds=3600))
    attempts = job.deploy_all()
    with server.accept() as connection:
        connection.sendall(b"to be or not\r\nto be")
    job.reports.wait(attempts, ExecutionState.FINISHED)
    assert job.printed_in_all(6) == Counter(["to", "be", "or", "not", "to", "be"])
    for attempt in attempts:
        assert job.reports.of(attempt)[-1] is ExecutionState.FINISHED


@pytest.mark.parametrize("isolation", ["slot", "vertex"])
def test_next_attempt_continues_killed_stream_task_exactly(
    start: Callable[[JobGraph], Job], server: TextServer, runtime: TaskRuntime, isolation: str
) -> None:
    """The source has parallelism 1, so slot 1 has only the other two vertices."""
    job = start(word_count(server.port, 4, 3, isolation=isolation))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    window = len(job.graph.vertices) - 1
    sent: list[str] = []
    with server.accept() as connection:
        for turn in range(2):
            for killed in ((window, window - 1),) if isolation == "slot" else ((window,), (window - 1,)):
                sent += WORDS
                connection.sendall(text(WORDS))
                victims = [job.attempt(vertex, 1, turn) for vertex in killed]
                os.kill(runtime.process_ids()[victims[0]], signal.SIGKILL)
                job.reports.wait(victims, ExecutionState.FAILED)
                sent += WORDS
                connection.sendall(text(WORDS))
                again = [attempt for vertex in killed for attempt in job.deploy(vertex, [1], turn + 1)]
                job.reports.wait(again, ExecutionState.RUNNING)
        sent += WORDS
        connection.sendall(text(WORDS))
        assert job.printed_in_all(len(sent)) == Counter(sent)
    untouched = job.attempt(window, 0)
    assert ExecutionState.FAILED not in job.reports.of(untouched)


def test_repeated_cancellation_is_reported_once(start: Callable[[JobGraph], Job], server: TextServer) -> None:
    job = start(word_count(server.port))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    job.cancel_all([*attempts, *attempts])
    # The runtime takes cancellations in order: when it has answered the stranger, it has had the others twice.
    job.cancel_all([*attempts, "a-stranger"])
    for attempt in attempts:
        assert job.reports.of(attempt).count(ExecutionState.CANCELED) == 1


def test_garbage_in_channel_is_named_and_job_rolls_back(
    start: Callable[[JobGraph], Job], kafka: EmbeddedKafka, server: TextServer
) -> None:
    """Spark's workers read it, and run a function on the content of the channel."""
    job = start(word_count(server.port, isolation="vertex"))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    edge = job.graph.edges[0]
    channel = channel_topic(job.cluster, job.id, edge.data_set_id)
    Topics(kafka.bootstrap_servers).write(channel, [b"\x03 garbage"])
    target = next(
        i for i, vertex in enumerate(job.graph.vertices) if vertex.vertex_id == edge.target_vertex_id
    )
    attempt = job.attempt(target, 0)
    job.reports.wait([attempt], ExecutionState.FAILED)
    assert f"{channel} [0] at offset " in (job.reports.failure_of(attempt) or "")
    assert attempt in job.reports.lost


def test_unknown_attempt_is_reported_as_canceled(runtime: TaskRuntime, reports: Reports) -> None:
    runtime.cancel("never-heard-of")
    reports.wait(["never-heard-of"], ExecutionState.CANCELED)


def test_missing_text_server_fails_source_with_reason(
    start: Callable[[JobGraph], Job], server: TextServer
) -> None:
    job = start(word_count(server.port))
    server.close()
    (source,) = job.deploy(0)
    job.reports.wait([source], ExecutionState.FAILED)
    failure = job.reports.failure_of(source)
    assert failure is not None
    assert f"127.0.0.1:{server.port}: Connection refused" in failure
    assert job.reports.of(source) == [ExecutionState.INITIALIZING, ExecutionState.FAILED]


def _program(port: int, broken: str) -> JobGraph:
    """Returns a word count whose functions raise on the word "bad", in the named operator."""

    def check(where: str, word: str) -> str:
        if where == broken and word == "bad":
            raise ValueError(f"{where} does not like it")
        return word

    env = StreamExecutionEnvironment()
    lines = env.socket_text_stream("127.0.0.1", port)
    words = lines.flat_map(lambda line: [check("source", word) for word in line.split()])
    mapped = words.map(lambda word: (check("map", word), 1)).set_parallelism(2)
    counted = (
        mapped.key_by(lambda pair: pair[0])
        .window(TumblingProcessingTimeWindows.of(seconds=1))
        .reduce(lambda a, b: (check("reduce", a[0]), a[1] + b[1]))
        .set_parallelism(2)
    )
    counted.print().set_parallelism(2)
    return env.get_job_graph("broken")


@pytest.mark.parametrize("broken", ["source", "map", "reduce"])
def test_error_in_user_code_fails_task_with_type_message_and_line(
    start: Callable[[JobGraph], Job], server: TextServer, broken: str
) -> None:
    job = start(_program(server.port, broken))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    with server.accept() as connection:
        # Of many, two meet in a window, at one subtask. One word is mapped, or two subtasks might each get theirs.
        connection.sendall(b"good" + b" bad" * (20 if broken == "reduce" else 1) + b" good\n")
        failed = _first_failure(job, attempts)
    failure = job.reports.failure_of(failed)
    assert failure is not None
    first, *rest = failure.splitlines()
    assert first.startswith(f"ValueError: {broken} does not like it at ")
    assert f"{Path(__file__).name}:" in first
    assert rest[0].startswith("Traceback")
    slot = failed.split("-")[2]
    others = [attempt for attempt in attempts if attempt.split("-")[2] != slot]
    assert not any(job.reports.failure_of(other) for other in others), "other slots do not notice"
    neighbors = [attempt for attempt in attempts if attempt.split("-")[2] == slot and attempt != failed]
    job.reports.wait(neighbors, ExecutionState.FAILED)
    for neighbor in neighbors:
        assert f"in the same slot failed: {first}" in (job.reports.failure_of(neighbor) or "")


def _first_failure(job: Job, attempts: list[str]) -> str:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for attempt in attempts:
            has_failed = ExecutionState.FAILED in job.reports.of(attempt)
            if has_failed and "in the same slot failed" not in (job.reports.failure_of(attempt) or ""):
                return attempt
        time.sleep(0.02)
    raise AssertionError(f"nothing failed: {job.reports.all}")


def test_results_are_exact_when_spark_ends_real_time_batch(
    start: Callable[[JobGraph], Job], server: TextServer, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.pipelines.runtime.spark.query._REAL_TIME_BATCH", "5 seconds")
    before = set(scratch.glob("query-*"))

    def ended() -> list[int]:
        """Returns how many batches each of the job's two queries has ended."""
        queries = set(scratch.glob("query-*")) - before
        return [sum(file.name.isdecimal() for file in query.glob("commits/*")) for query in queries]

    job = start(word_count(server.port, 2, 2))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    sent: list[str] = []
    with server.accept() as connection:
        deadline = time.monotonic() + TIMEOUT_S
        while len(ended()) < 2 or min(ended()) < 2:
            assert time.monotonic() < deadline, f"batches that have ended, by query: {ended()}"
            sent += WORDS[:1000]
            connection.sendall(text(WORDS[:1000]))
            time.sleep(0.1)
        assert job.printed_in_all(len(sent)) == Counter(sent)
    assert not any(job.reports.failure_of(attempt) for attempt in attempts)


def test_tasks_continue_without_query_and_with_next_one(
    start: Callable[[JobGraph], Job],
    runtime: TaskRuntime,
    server: TextServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.pipelines.runtime.task_runtime.query_manager.RESTART_PAUSE_S", 3.0)
    job = start(word_count(server.port, 2, 2, seconds=0.1))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    assert runtime._spark.session is not None
    queries = runtime._spark.session.streams
    sent: list[str] = []

    def send() -> None:
        nonlocal sent
        sent += WORDS
        connection.sendall(text(WORDS))

    with server.accept() as connection:
        wait_until(lambda: len(queries.active) == 2, "the queries of both vertices run")
        send()
        assert job.printed_in_all(len(sent)) == Counter(sent)
        for query in queries.active:
            query.stop()
        send()
        assert job.printed_in_all(len(sent)) == Counter(sent)
        assert not queries.active, "the tasks have read it themselves"
        wait_until(lambda: len(queries.active) == 2, "the next queries run")
        send()
        assert job.printed_in_all(len(sent)) == Counter(sent)
    assert not any(job.reports.failure_of(attempt) for attempt in attempts)


@dataclass(frozen=True)
class Length:
    """Counts the records of each number of bytes."""

    word: str
    count: int


def test_records_larger_than_message_cross_channels(start: Callable[[JobGraph], Job]) -> None:
    """One channel with a stateless prefix after it, which runs in Spark for other records, and one with state."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    sizes = [1, 899_000, 900_000, 901_000, 2_500_000, 7]
    texts = env.from_collection(sizes, int).map(lambda size: "x" * size, str)
    lengths = texts.rebalance().map(len, int).key_by(lambda size: size, int)
    texts.key_by(len, int).map(lambda text: Length(str(len(text)), 1), Length).print()
    lengths.map(lambda size: Length(str(size), 1), Length).print()
    job = start(env.get_job_graph("large"))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.FINISHED)
    assert job.printed_in_all(2 * len(sizes)) == Counter(2 * list(map(str, sizes)))


def test_micro_batches_give_same_counts(start: Callable[[JobGraph], Job], server: TextServer) -> None:
    graph = word_count(server.port, 2, 2)
    job = start(msgspec.structs.replace(graph, configuration={"execution.mode": "micro-batch"}))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    with server.accept() as connection:
        connection.sendall(text(WORDS))
        assert job.printed_in_all(len(WORDS)) == Counter(WORDS)


# What a TaskExecutor does, as a process that can be killed.
_TASK_EXECUTOR = """
import sys, threading
from pathlib import Path
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime

runtime = TaskRuntime(kafka=KafkaConnection(sys.argv[1]), scratch=Path(sys.argv[2]), slots=2, report=print)
runtime.start()
print("started", flush=True)
threading.Event().wait()
"""


def test_killed_task_executor_leaves_no_process(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TASK_EXECUTOR, kafka.bootstrap_servers, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as executor:
        try:
            assert executor.stdout is not None
            assert executor.stdout.readline() == "started\n"
            children = psutil.Process(executor.pid).children(recursive=True)
            assert {"java"} <= {process_name(child) for child in children}
        finally:
            executor.kill()
    _, alive = psutil.wait_procs(children, timeout=TIMEOUT_S)
    for orphan in alive:
        orphan.kill()
    assert not alive


def test_jvm_that_ends_before_spark_is_ready_is_one_line(tmp_path: Path) -> None:
    # A process of its own: PySpark starts no second JVM in one.
    program = f"""if True:
        from pathlib import Path
        from tailrace.pipelines.runtime.task_runtime.spark_process import SparkProcess
        SparkProcess(Path({str(tmp_path)!r}), None, heap_mib=1).start()
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd="/")
    (*_, last) = result.stderr.splitlines()
    assert (
        "RuntimeProcessDied: Spark's JVM has died before it was ready (what it printed is in the log)" in last
    )


def test_session_starts_after_jvm_of_an_earlier_one_died(tmp_path: Path) -> None:
    # A process of its own: PySpark has one session in one.
    program = f"""if True:
        import os, signal
        from pathlib import Path
        from tailrace.pipelines.runtime.task_runtime.spark_process import SparkProcess
        for scratch in ("first", "second"):
            spark = SparkProcess(Path({str(tmp_path)!r}) / scratch, None, heap_mib=640)
            print(spark.start().range(3).count())
            os.kill(spark.process_id, signal.SIGKILL)
            spark.close(stop_session=False)
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd="/")
    assert result.stdout.split() == ["3", "3"], result.stderr
