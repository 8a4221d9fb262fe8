"""A whole cluster on this machine, as a user starts it: a job counts real text while everything else fails.

One cluster and one job serve all tests, in order: the job runs from the second test almost to the last, and its counts
are compared word for word with what was sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from confluent_kafka import Producer
from msgspec.structs import replace
from polling import TIMEOUT_S, wait_until
from submitted_tasks import submitted_tasks

import tailrace
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api.build import build
from tailrace.schemas.body import Body
from tailrace.schemas.client import JobFinished
from tailrace.schemas.dispatcher import SubmitJob
from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import ClusterTerminated, FeatureLevelRaised, LeaderElected
from tailrace.schemas.types import EntryPoint, ExecutionState, Header, JobGraph, Origin
from tailrace.services.cli.demo.text_server import TextServer
from tailrace.services.cli.demo.word_check import check_counts
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.local.cluster_record import ClusterRecord, read_record
from tailrace.services.client import Client, JobRejectedError, OutputRecord, read_output
from tailrace.services.configuration import Configuration
from tailrace.services.history import FormattedEvent, HistoryProjection
from tailrace.services.history.cluster_view import jobs
from tailrace.services.log import Codec
from tailrace.services.log.dead_letters import read_dead_letters as read_dead_letters
from tailrace.services.log.factory import open_event_log
from tailrace.services.log.topics import submissions_topic

pytestmark = pytest.mark.timeout(300)

PROGRAM = Path(tailrace.__file__).parent / "pipelines" / "examples" / "window_word_count.py"
ENTRY_POINT = "tailrace.pipelines.examples.window_word_count:main"
SLOT_TIMEOUT_S = 3
WINDOW_PARALLELISM = 3
EAGER_SPARK = {"TAILRACE_TASKMANAGER_SPARK_START_ON_DEMAND": "false"}
T = TypeVar("T")


class Cluster:
    """A cluster in a home of its own, driven by the command line. Its TaskExecutors start Spark on demand: a JVM
    costs more than most tests, and most jobs here need none. `EAGER_SPARK` starts it as by default."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.seen: set[tuple[int, float]] = set()
        own = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
        for name in ("TAILRACE_CACHE_DIR", "TAILRACE_IVY_SETTINGS"):
            if name in os.environ:
                own[name] = os.environ[name]
        self.environment = {
            **own,
            "TAILRACE_HOME": str(home),
            "TAILRACE_SLOT_REQUEST_TIMEOUT": f"{SLOT_TIMEOUT_S} s",
            "TAILRACE_SLOT_REQUEST_UNFULFILLABLE_TIMEOUT": f"{SLOT_TIMEOUT_S} s",
            "TAILRACE_RESOURCEMANAGER_STANDALONE_START_UP_TIME": "0 s",
            "TAILRACE_TASKMANAGER_SPARK_START_ON_DEMAND": "true",
            **environment,
        }

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tailrace.services.cli", *arguments],
            env=self.environment,
            cwd=self.home.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.popen(*arguments) as process:
            out, err = process.communicate(timeout=250)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ok(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        result = self.run(*arguments)
        assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"
        return result

    @property
    def record(self) -> ClusterRecord:
        record = read_record(self.home)
        assert record is not None
        return record

    @property
    def configuration(self) -> Configuration:
        record = self.record
        return Configuration(
            {
                "home": str(self.home),
                "bootstrap.servers": record.bootstrap_servers,
                "cluster.id": record.cluster_id,
            }
        )

    def pid(self, name: str) -> int:
        return next(process.pid for process in self.record.processes if process.name == name)

    def workers(self) -> set[tuple[int, float]]:
        """Returns (pid, start) of all processes of the TaskExecutors: Spark, its Python workers, StreamTasks."""
        results = set()
        for process in self.record.processes:
            if process.name != "jobmanager":
                with contextlib.suppress(psutil.NoSuchProcess):
                    for child in psutil.Process(process.pid).children(recursive=True):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            results.add((child.pid, child.create_time()))
        return results

    def watch(self) -> None:
        """Records every process of the cluster, so that the last test can look for the remaining ones."""
        pids = [process.pid for process in self.record.processes]
        pids.append(json.loads((self.home / "kafka" / "kafka.json").read_text())["pid"])
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.seen.add((pid, psutil.Process(pid).create_time()))
        self.seen |= self.workers()

    def story(self) -> tuple[HistoryProjection, list[FormattedEvent]]:
        """Returns the log so far."""
        fold, log = HistoryProjection(), open_event_log(self.configuration)
        entries = list(fold.read(log))
        log.close()
        return fold, entries


@contextlib.contextmanager
def started(cluster: Cluster, *arguments: str) -> Iterator[None]:
    """Runs the cluster during the block; leaves nothing."""
    try:
        result = cluster.ok("cluster", "start", *arguments)
        assert "cluster tailrace runs" in result.stderr
        cluster.watch()
        yield
    finally:
        cluster.run("cluster", "stop")
        for pid, created in cluster.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A TaskExecutor that is killed here comes back, and goes on; `test_kill` has those that don't.
    home = tmp_path_factory.mktemp("cluster") / "home"
    cluster = Cluster(home, TAILRACE_TASKMANAGER_RESTART_GRACE="2 min", **EAGER_SPARK)
    with started(cluster, "--taskexecutors", "2", "--slots", "2"):
        yield cluster


@pytest.fixture(scope="module")
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=40)
    yield server
    server.close()


@pytest.fixture(scope="module")
def job(cluster: Cluster, text: TextServer) -> str:
    """Yields WindowWordCount over all four slots, flatMap with parallelism 4 and the windows with 3."""
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    parallelism = ["--flat-map-parallelism", "4", "--window-parallelism", str(WINDOW_PARALLELISM)]
    submitted = cluster.ok("run", "-d", str(PROGRAM), *options, *parallelism)
    job_id = submitted.stdout.strip()
    wait_until(lambda: running_tasks(cluster, job_id) == 8, "8 tasks RUNNING")
    cluster.watch()
    return job_id


@pytest.fixture(scope="module")
def started_with(cluster: Cluster, job: str) -> dict[str, str]:
    """Returns for each first attempt its task of the job."""
    return attempts(cluster, job)


def alive(pid: int, created: float) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < 0.5
        return same and process.status() != psutil.STATUS_ZOMBIE
    return False


def running_tasks(cluster: Cluster, job_id: str) -> int:
    fold, _ = cluster.story()
    results = [job for job in jobs(fold) if job.job_id == job_id]
    return results[0].tasks.get(ExecutionState.RUNNING.value, 0) if results else 0


def attempts(cluster: Cluster, job_id: str) -> dict[str, str]:
    fold, entries = cluster.story()
    return {
        task.execution_attempt_id: fold.task_of(task.execution_attempt_id)
        for entry in entries
        if entry.job == job_id
        for task in submitted_tasks([entry.record.body])
    }


@dataclass(slots=True)
class Window:
    end_ms: int
    counts: Counter[str] = field(default_factory=Counter)


class WindowCounts:
    """Collects what WindowWordCount prints into windows."""

    def __init__(self) -> None:
        self._windows: dict[int, Window] = {}
        self._latest: Counter[int] = Counter()

    def add(self, record: OutputRecord) -> None:
        end = record.timestamp + 1
        window = self._windows.setdefault(end, Window(end))
        window.counts[record.record["word"]] += record.record["count"]
        self._latest[record.subtask] = max(end, self._latest[record.subtask])

    def complete(self, subtasks: int) -> list[Window]:
        """The windows for which nothing more can arrive, because all subtasks have printed later ones."""
        if len(self._latest) < subtasks:
            return []
        return [window for window in self.windows() if window.end_ms < min(self._latest.values())]

    def windows(self) -> list[Window]:
        """Oldest first."""
        return [self._windows[end] for end in sorted(self._windows)]


def windows(cluster: Cluster, job_id: str) -> list[Window]:
    tally = WindowCounts()
    for record in read_output(cluster.configuration, job_id):
        tally.add(record)
    return tally.windows()


def wait_for_windows(cluster: Cluster, job_id: str, after_ms: float, count: int) -> list[Window]:
    """Waits until so many windows that end after a time are complete; returns all complete windows, oldest first."""
    tally, deadline = WindowCounts(), time.monotonic() + TIMEOUT_S

    def enough() -> bool:
        return sum(window.end_ms > after_ms for window in tally.complete(WINDOW_PARALLELISM)) >= count

    for record in read_output(
        cluster.configuration, job_id, over=lambda: enough() or time.monotonic() > deadline
    ):
        tally.add(record)
    assert enough(), f"no {count} windows within {TIMEOUT_S:g} s"
    return tally.complete(WINDOW_PARALLELISM)


def assert_counted_right(cluster: Cluster, job_id: str, text: TextServer) -> None:
    """Waits until the counts of the job equal what was sent, word by word."""
    with text.paused():
        words = sum(len(line) for line in text.sent_words())
        tally, deadline, counted = WindowCounts(), time.monotonic() + TIMEOUT_S, 0
        enough = threading.Event()
        for record in read_output(
            cluster.configuration, job_id, over=lambda: enough.is_set() or time.monotonic() > deadline
        ):
            tally.add(record)
            counted += record.record["count"]
            if counted >= words:
                enough.set()
        is_right, line = check_counts(
            sum((window.counts for window in tally.windows()), Counter()), text.sent_words()
        )
    assert is_right, line


def test_running_cluster_is_not_started_twice(cluster: Cluster) -> None:
    before = cluster.record
    again = cluster.ok("cluster", "start").stderr
    assert "already runs" in again
    assert "keep their options" not in again
    assert "keep their options" in cluster.ok("cluster", "start", "-D", "heartbeat.timeout=1 min").stderr
    assert cluster.record == before
    status = json.loads(cluster.ok("cluster", "status", "-o", "json").stdout)
    assert status["slots"] == {"total": 4, "free": 4}
    assert [process["name"] for process in status["processes"]] == [
        "kafka",
        "taskexecutor-1",
        "taskexecutor-2",
        "jobmanager",
    ]
    assert all(process["running"] for process in status["processes"])


def test_job_runs_on_all_slots_and_counts_exactly(
    cluster: Cluster, job: str, text: TextServer, started_with: dict[str, str]
) -> None:
    assert sorted(started_with.values())[:5] == [
        "Flat Map (1/4)",
        "Flat Map (2/4)",
        "Flat Map (3/4)",
        "Flat Map (4/4)",
        "Source: Socket Stream (1/1)",
    ]
    wait_for_windows(cluster, job, 0, 2)
    assert_counted_right(cluster, job, text)
    (listed,) = [json.loads(line) for line in cluster.ok("list", "-o", "json").stdout.splitlines()]
    assert (listed["job_id"], listed["status"], listed["tasks"]) == (job, "RUNNING", {"RUNNING": 8})


def test_taskexecutor_does_not_load_pandas(cluster: Cluster, started_with: dict[str, str]) -> None:
    """It would be a third of its memory, and PySpark loads it at every opportunity."""
    files = psutil.Process(cluster.pid("taskexecutor-1")).memory_maps()
    assert not [file.path for file in files if "/pandas/" in file.path]


def test_killed_jobmanager_loses_nothing(
    cluster: Cluster, job: str, text: TextServer, started_with: dict[str, str]
) -> None:
    workers = cluster.workers()
    os.kill(cluster.pid("jobmanager"), signal.SIGKILL)
    killed = time.time() * 1000
    wait_for_windows(cluster, job, killed, 1)
    assert "runs:" in cluster.ok("cluster", "start").stderr
    cluster.watch()
    fold, entries = cluster.story()
    epochs = {role: leader.epoch for role, leader in fold.replica.leadership.leaders.items()}
    assert epochs == {
        "dispatcher": 2,
        "resource_manager": 2,
        "rest_server": 2,
        "task_executor/taskexecutor-1": 1,
        "task_executor/taskexecutor-2": 1,
    }
    assert [entry for entry in entries if entry.ignored] == []
    wait_for_windows(cluster, job, time.time() * 1000, 1)
    assert attempts(cluster, job) == started_with
    assert running_tasks(cluster, job) == 8
    assert workers <= cluster.workers(), "a process of a task has ended"
    assert_counted_right(cluster, job, text)


def test_killed_taskexecutor_continues_with_its_tasks(
    cluster: Cluster, job: str, text: TextServer, started_with: dict[str, str]
) -> None:
    """The one without the source: what a socket sends while nobody reads it is lost for every system."""
    _, entries = cluster.story()
    (source,) = [
        entry.record.header.recipient.partition("/")[2]
        for entry in entries
        if entry.type == "task_executor.SubmitTask" and (entry.task or "").startswith("Source")
    ]
    (other,) = {"taskexecutor-1", "taskexecutor-2"} - {source}
    os.kill(cluster.pid(other), signal.SIGKILL)
    assert f"{other} is registered with 2 slots" in cluster.ok("cluster", "start").stderr
    cluster.watch()
    wait_for_windows(cluster, job, time.time() * 1000, 2)
    assert attempts(cluster, job) == started_with
    assert_counted_right(cluster, job, text)


def submission(cluster: Cluster, body: SubmitJob) -> bytes:
    header = Header(
        event_id=secrets.token_hex(16),
        time=time.time_ns() // 1000,
        sender="client/test",
        sender_epoch=0,
        recipient="dispatcher",
    )
    return Codec(submissions_topic(cluster.configuration.cluster_id)).encode(Event(header, body))


def broken(cluster: Cluster) -> bytes:
    whole = submission(
        cluster, SubmitJob(job_id="broken", entry_point=EntryPoint(target="a:b", arguments=()))
    )
    return whole[: len(whole) // 2]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda _: b"\x93garbage", "not an Avro event: 8 bytes that begin with 93 67"),
        (lambda _: b"", "the value is empty"),
        (lambda _: b"\xc3\x01" + bytes(8) + b"whatever", "unknown schema: fingerprint 0000000000000000"),
        (broken, "broken tailrace.dispatcher.SubmitJob"),
    ],
    ids=["garbage", "nothing", "unknown schema", "cut off"],
)
def test_unreadable_submission_becomes_dead_letter(
    cluster: Cluster, job: str, value: Callable[[Cluster], bytes], reason: str
) -> None:
    configuration = cluster.configuration
    topic = submissions_topic(configuration.cluster_id)
    placed: list[int] = []
    producer = Producer({"bootstrap.servers": configuration.bootstrap_servers})
    producer.produce(
        topic, value(cluster), on_delivery=lambda _, message: placed.append(message.offset() or 0)
    )
    producer.flush(30)

    def letter() -> str | None:
        letters = read_dead_letters(
            KafkaConnection(configuration.bootstrap_servers), configuration.cluster_id
        )
        result = {
            (letter.source.topic, letter.source.partition, letter.source.offset): letter.reason
            for letter in letters
        }
        return result.get((topic, 0, placed[0]))

    assert reason in wait_until(letter, "dead letter")

    def is_refused() -> bool:
        _, entries = cluster.story()
        refused = [entry.record.body for entry in entries if entry.type == "dispatcher.SubmissionRefused"]
        return any(body.source.offset == placed[0] for body in refused)  # type: ignore[attr-defined]

    # The letter is written first.
    wait_until(lambda: is_refused(), "refusal in the log")


@pytest.mark.parametrize(
    ("sender", "epoch", "body", "reason"),
    [
        (
            "dispatcher",
            2**63 - 1,
            LeaderElected(role="dispatcher", epoch=2**63 - 1, address="evil:1", session="evil"),
            "dispatcher claims epoch 9223372036854775807: more than 281474976710656 above",
        ),
        (
            "client/evil",
            0,
            FeatureLevelRaised(level=10**6),
            "client/evil may not send it: only dispatcher may",
        ),
        ("task_executor/evil", 7, ClusterTerminated(reason="bye"), "only resource_manager may"),
    ],
)
def test_event_of_outsider_changes_nothing_and_is_named(
    cluster: Cluster, job: str, sender: str, epoch: int, body: Body, reason: str
) -> None:
    configuration = cluster.configuration
    header = Header(event_id="evil", time=1, sender=sender, sender_epoch=epoch, recipient=EVERYONE)
    log = open_event_log(configuration)
    try:
        (offset,) = log.append([Event(header, body)])
    finally:
        log.close()

    def letters() -> list[str]:
        found = read_dead_letters(KafkaConnection(configuration.bootstrap_servers), configuration.cluster_id)
        source = Origin(topic=log.topic, partition=0, offset=offset)
        return [letter.reason for letter in found if letter.source == source]

    (found,) = wait_until(letters, "dead letter")
    assert reason in found
    status = json.loads(cluster.ok("cluster", "status", "-o", "json").stdout)
    (counted,) = [each for each in status["dead_letters"] if each["topic"] == log.topic]
    assert (counted["offset"], counted["reason"]) == (offset, found)
    assert all(process["running"] for process in status["processes"])
    doctor = json.loads(cluster.ok("cluster", "doctor", "-o", "json").stdout)
    named = [each["message"] for each in doctor["findings"] if each["check"] == "dead letters"]
    assert any(
        f"{log.topic}, partition 0, offset {offset}: " in each and repr(sender) in each for each in named
    )


def graph(cluster: Cluster, parallelism: int) -> JobGraph:
    return build(ENTRY_POINT, ["--port", "9"], parallelism)


def without_parallelism(graph: JobGraph) -> JobGraph:
    return replace(graph, vertices=tuple(replace(vertex, parallelism=0) for vertex in graph.vertices))


@pytest.mark.parametrize(
    ("what", "parallelism", "reason"),
    [
        (EntryPoint(target="nowhere:main", arguments=()), None, "no module 'nowhere' can be imported"),
        (EntryPoint(target="json:nothing", arguments=()), None, "json has no nothing"),
        (EntryPoint(target=ENTRY_POINT, arguments=("--port", "text")), None, "invalid int value: 'text'"),
        (EntryPoint(target=ENTRY_POINT, arguments=("--port", "9")), -1, "parallelism -1 is impossible"),
        (without_parallelism(build(ENTRY_POINT, ["--port", "9"], 1)), None, "parallelism"),
    ],
    ids=["no module", "no function", "raises", "impossible parallelism", "impossible graph"],
)
def test_invalid_job_is_rejected_with_reason(
    cluster: Cluster, job: str, what: JobGraph | EntryPoint, parallelism: int | None, reason: str
) -> None:
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        job_id = client.submit(what, parallelism)
        with pytest.raises(JobRejectedError, match=reason):
            conversation.accepted_at(job_id, TIMEOUT_S)


def test_duplicate_job_id_is_rejected(cluster: Cluster, job: str) -> None:
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        client.submit(build(ENTRY_POINT, ["--port", "9"], 1), job_id=job)
        with pytest.raises(JobRejectedError, match=f"job {job} was submitted before and is RUNNING"):
            conversation.accepted_at(job, TIMEOUT_S)


def test_job_that_needs_more_slots_than_exist_fails_with_number(cluster: Cluster, job: str) -> None:
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        job_id = client.submit(build(ENTRY_POINT, ["--port", "9"], 5))
        conversation.accepted_at(job_id, TIMEOUT_S)
        ended = conversation.wait_for(
            lambda record: record.body if isinstance(record.body, JobFinished) else None, TIMEOUT_S
        )
    assert ended is not None
    assert ended.status.value == "FAILED"
    assert f"no slot within {SLOT_TIMEOUT_S} s: the job wants 5, 0 are free, 4 are registered" in (
        ended.reason or ""
    )


def test_program_that_raises_is_reported_with_line(cluster: Cluster, job: str, tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text("import json\njson.loads('{')\n")
    result = cluster.run("run", str(program))
    assert (result.returncode, result.stdout) == (ExitCode.JOB, "")
    assert "wrong.py:2" in result.stderr
    assert "JSONDecodeError" in result.stderr
    assert "Traceback" not in result.stderr
    missing = cluster.run("run", str(tmp_path / "missing.py"))
    assert missing.returncode == ExitCode.JOB
    assert "does not exist" in missing.stderr


def test_job_was_not_disturbed_and_is_cancelled(
    cluster: Cluster, job: str, text: TextServer, started_with: dict[str, str]
) -> None:
    assert_counted_right(cluster, job, text)
    complete = wait_for_windows(cluster, job, time.time() * 1000, 1)
    assert attempts(cluster, job) == started_with
    cancelled = cluster.ok("cancel", job[:-2])
    assert f"job {job} is CANCELED" in cancelled.stderr
    assert windows(cluster, job)[: len(complete)] == complete
    again = cluster.run("cancel", job)
    assert (again.returncode, "is already CANCELED: there is nothing to cancel" in again.stderr) == (
        ExitCode.JOB,
        True,
    )


def test_ctrl_c_cancels_attached_job(cluster: Cluster, text: TextServer) -> None:
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "1"]
    with cluster.popen("run", "-o", "json", str(PROGRAM), *options) as attached:
        assert attached.stdout is not None
        first = json.loads(attached.stdout.readline())
        assert set(first) == {"offset", "timestamp", "subtask", "identifier", "text", "record"}
        attached.send_signal(signal.SIGINT)
        _, err = attached.communicate(timeout=TIMEOUT_S)
    assert attached.returncode == ExitCode.INTERRUPTED
    assert "interrupted: cancelling job" in err
    assert "is CANCELED" in err
    assert "Traceback" not in err


def test_closed_output_pipe_leaves_job_running(cluster: Cluster, text: TextServer) -> None:
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "1"]
    with cluster.popen("run", str(PROGRAM), *options) as attached:
        assert attached.stdout is not None
        assert attached.stderr is not None
        assert "> " in attached.stdout.readline()
        attached.stdout.close()
        report = attached.stderr.read()
    assert attached.returncode == ExitCode.BROKEN_PIPE
    assert "runs on, and the program does not wait for it" in report.splitlines()[-1]
    fold, _ = cluster.story()
    (running,) = [job for job in jobs(fold) if job.status.value == "RUNNING"]
    cluster.ok("cancel", running.job_id)


def test_job_whose_code_raises_fails_with_its_line(
    cluster: Cluster, text: TextServer, tmp_path: Path
) -> None:
    program = tmp_path / "raises.py"
    program.write_text(
        "from tailrace import StreamExecutionEnvironment\n"
        "def convert(line):\n"
        "    return int('x' + line[:0])\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        f"env.socket_text_stream('127.0.0.1', {text.port}).map(convert).print()\n"
        "env.execute('raises')\n"
    )
    result = cluster.run("run", "-D", "restart-strategy.type=none", str(program))
    assert (result.returncode, result.stdout) == (ExitCode.JOB, "")
    last = result.stderr.strip().splitlines()[-1]
    assert "is FAILED" in last
    assert "ValueError" in last
    assert "raises.py:3" in last


def test_log_has_everything_from_any_offset(cluster: Cluster, job: str) -> None:
    whole = [json.loads(line) for line in cluster.ok("log", "-o", "json").stdout.splitlines()]
    _, entries = cluster.story()
    assert [item["offset"] for item in whole] == [entry.record.offset for entry in entries]
    submitted = cluster.ok("log", "--job", job, "--from", "12", "--type", "SubmitTask", "-o", "json")
    bodies = [json.loads(line)["body"] for line in submitted.stdout.splitlines()]
    assert sum(len(body["subtasks"]) for body in bodies) == 8
    early = json.loads(cluster.ok("state", "--at", "5", "-o", "json").stdout)
    assert early["offset"] == 5
    assert "dispatcher" not in early["roles"] or early["roles"]["dispatcher"]["jobs"] == {}
    assert cluster.run("state", "--at", "1000000").returncode == ExitCode.NOT_FOUND


def test_cluster_stops_in_order_and_leaves_only_its_log(cluster: Cluster) -> None:
    cluster.watch()
    stopped = cluster.ok("cluster", "stop")
    assert "SIG" not in stopped.stderr, stopped.stderr
    assert [pair for pair in cluster.seen if alive(*pair)] == []
    assert cluster.run("list").returncode == ExitCode.UNREACHABLE
    cluster.ok("cluster", "start", "--taskexecutors", "0")
    cluster.watch()
    assert len(cluster.ok("list", "-o", "json").stdout.splitlines()) == 5
    cluster.ok("cluster", "stop")
    assert [item for item in cluster.seen if alive(*item)] == []
