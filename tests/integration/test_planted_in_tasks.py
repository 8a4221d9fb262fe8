"""If any thread of a TaskExecutor or StreamTask fails, its process ends and names it, and no result is wrong.

One cluster and one job serve all tests: the ResourceManager starts another TaskExecutor for one that has ended, and the
results of the job are compared with what was sent. `make test` holds the parts of this law: a failed thread ends its
process (tests/infra/test_threads.py, test_planted_failures.py), a TaskExecutor or StreamTask that has ended is replaced
(test_kill.py), and the results are exact (test_torture.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_topics import Topics
from polling import wait_until
from process_status import has_ended

from tailrace.services.resource_manager.drivers.local_process import worker_records

from .test_broker_restart import Feed
from .test_cluster import EAGER_SPARK, Cluster, alive

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

PLANTING = Path(__file__).parents[1] / "planting"
PROGRAM = """
import sys
from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment

source, sink = sys.argv[1:]
env = StreamExecutionEnvironment().set_parallelism(1).configure("execution.isolation", "vertex")
pairs = env.from_source(KafkaSource(source, Formats.text())).map(lambda key: (key, 1), tuple[str, int])
counts = pairs.key_by(0).sum(1)
counts.map(lambda pair: f"{pair[0]}|{pair[1]}", str).sink_to(KafkaSink(sink, Formats.text()))
env.execute("counting")
"""
OPTIONS = [
    "resourcemanager.mode=active",
    "taskmanager.numberOfTaskSlots=1",
    "resourcemanager.start-worker.retry-interval=100 ms",
    "restart-strategy.type=fixed-delay",
    "restart-strategy.fixed-delay.attempts=1000",
    "restart-strategy.fixed-delay.delay=100 ms",
    "execution.checkpointing.interval=1 s",
    # What is noticed by silence alone comes too late for a test.
    "heartbeat.timeout=10 min",
]


STREAM_TASK = ("input", "watchdog", "lazy-requests", "checkpoint-io")
"""Threads that run, and have to do something soon."""
STREAM_TASK_STARTS = ("topic-ids", "group-copy", "forked-child")
TASK_EXECUTOR = ("task-runtime", "voice", "topics", "lag", "heartbeats")
TASK_EXECUTOR_STARTS = ("runtime start", "jvm", "warm-up", "query", "stop", "blob clean-up")
"""Threads that are over soon, or wait in C code."""
OTHERS = {
    # Whoever has `state-io` do something asks for the outcome.
    "stream_task": {"MainThread", "planter", "state-io_"},
    # Of Py4J and of subprocess; the one called `end` ends the process.
    "taskexecutor": {"MainThread", "planter", "Thread", "Thread-2 (serve_forever)", "end", "awaiting-stop"},
}


class Plants:
    """The failures requested from the processes of the cluster."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def plant(self, kind: str, thread: str, *, starts: bool) -> None:
        """Requests a failure."""
        fresh = self.directory / "fresh"
        fresh.write_text("starts" if starts else "")
        fresh.rename(self.directory / f"{kind}.{thread}")

    def wait(self, thread: str) -> int:
        """Returns the process that has the failure."""
        (path,) = wait_until(
            lambda: list(self.directory.glob(f"planted.{thread}.*")), f"the end of {thread!r}"
        )
        path.unlink()
        return int(path.suffix[1:])

    def thread_names(self, kind: str) -> set[str]:
        """Returns the names of all threads that processes of this kind have had."""
        return {path.name.split(".", 2)[2] for path in self.directory.glob(f"seen.{kind}.*")}


@pytest.fixture(scope="module")
def plants(tmp_path_factory: pytest.TempPathFactory) -> Plants:
    return Plants(tmp_path_factory.mktemp("plants"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, plants: Plants) -> Iterator[Cluster]:
    """Yields a cluster whose TaskExecutors are all started by the ResourceManager."""
    home = tmp_path_factory.mktemp("planted") / "home"
    patient = dict.fromkeys(("SLOT_REQUEST_TIMEOUT", "SLOT_REQUEST_UNFULFILLABLE_TIMEOUT"), "10 min")
    cluster = Cluster(
        home,
        PYTHONPATH=str(PLANTING),
        PLANTS=str(plants.directory),
        **{f"TAILRACE_{name}": item for name, item in patient.items()},
        **EAGER_SPARK,
    )
    try:
        options = [element for option in OPTIONS for element in ("-D", option)]
        cluster.ok("cluster", "start", *options)
        cluster.watch()
        yield cluster
    finally:
        workers = [(record.pid, record.created) for record in worker_records(home, "tailrace")]
        cluster.run("cluster", "stop")
        for pid, created in [*workers, *cluster.seen]:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def feed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Feed]:
    """Sends input to the job and reads its output; at the end the output is exact."""
    servers = cluster.record.bootstrap_servers
    names = Topics(servers)
    source, sink = names.new(), names.new()
    program = tmp_path_factory.mktemp("program") / "counting.py"
    program.write_text(PROGRAM)
    cluster.ok("run", "-d", str(program), source, sink)
    feed = Feed(servers, source, sink)
    try:
        wait_for_output(feed)
        yield feed
        feed.end()
        wait_until(lambda: len(feed.counts) >= feed.sent, "the rest of the output")
        assert Counter(feed.counts) == feed.expected
    finally:
        feed.end()


def wait_for_output(feed: Feed) -> None:
    """Waits until the job has new output."""
    before = feed.sent
    wait_until(lambda: len(feed.counts) > before, "output")


def logs(cluster: Cluster) -> str:
    return "".join(path.read_text() for path in (cluster.home / "log").glob("worker-*.log"))


def fails(cluster: Cluster, plants: Plants, thread: str) -> None:
    """Waits for the requested failure, and for the end of the process that has it."""
    pid = plants.wait(thread)
    named = f"of process {pid} failed: Planted: by a test"
    wait_until(lambda: has_ended(pid), f"the end of process {pid}")
    (line, *_) = [line for line in logs(cluster).splitlines() if named in line]
    assert f"the thread '{thread}" in line
    assert "the process ends" in line


@pytest.mark.parametrize("thread", STREAM_TASK)
def test_stream_task_with_failed_thread_is_replaced(
    cluster: Cluster, plants: Plants, feed: Feed, thread: str
) -> None:
    plants.plant("stream_task", thread, starts=False)
    fails(cluster, plants, thread)
    wait_for_output(feed)


@pytest.mark.parametrize("thread", STREAM_TASK_STARTS)
def test_stream_task_with_thread_that_fails_at_start_is_replaced(
    cluster: Cluster, plants: Plants, feed: Feed, thread: str
) -> None:
    plants.plant("stream_task", thread, starts=True)
    plants.plant("stream_task", "watchdog", starts=False)
    fails(cluster, plants, "watchdog")
    fails(cluster, plants, thread)
    wait_for_output(feed)


@pytest.mark.parametrize("thread", TASK_EXECUTOR)
def test_taskexecutor_with_failed_thread_is_replaced(
    cluster: Cluster, plants: Plants, feed: Feed, thread: str
) -> None:
    plants.plant("taskexecutor", thread, starts=False)
    fails(cluster, plants, thread)
    wait_for_output(feed)


@pytest.mark.parametrize("thread", TASK_EXECUTOR_STARTS)
def test_taskexecutor_with_thread_that_fails_at_start_is_replaced(
    cluster: Cluster, plants: Plants, feed: Feed, thread: str
) -> None:
    plants.plant("taskexecutor", thread, starts=True)
    if thread in ("query", "stop"):
        plants.plant("stream_task", "watchdog", starts=False)
        fails(cluster, plants, "watchdog")
    else:
        for worker in worker_records(cluster.home, "tailrace"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
    fails(cluster, plants, thread)
    wait_for_output(feed)


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        ("stream_task", {*STREAM_TASK, *STREAM_TASK_STARTS}),
        ("taskexecutor", {*TASK_EXECUTOR, *TASK_EXECUTOR_STARTS}),
    ],
)
@pytest.mark.usefixtures("feed")
def test_every_thread_is_tested(plants: Plants, kind: str, planted: set[str]) -> None:
    assert plants.thread_names(kind) <= planted | OTHERS[kind]
