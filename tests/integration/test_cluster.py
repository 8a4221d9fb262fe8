"""A whole cluster on this machine, as a user starts it: a job that counts real text while everything else goes wrong.

One cluster and one job serve all tests, in order: the job runs from the second test to the last but a few, and what it
counted is held against what was sent, word for word.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from confluent_kafka import Producer
from msgspec.structs import replace
from polling import TIMEOUT_S, wait_until

import tailrace
from tailrace.pipelines.api.build import build
from tailrace.schemas.dispatcher import SubmitJob
from tailrace.schemas.event import Event
from tailrace.schemas.types import EntryPoint, ExecutionState, Header, JobGraph
from tailrace.services.cli.demo import TextServer, Window, WindowCounts
from tailrace.services.cli.demo.window_counts import check_counts
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.local import ClusterRecord, read_record
from tailrace.services.client import Client, JobRejectedError, read_output
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
T = TypeVar("T")


class Cluster:
    """A cluster in a home of its own, driven by the command line as a user drives it."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.seen: set[tuple[int, float]] = set()
        own = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
        for name in ("TAILRACE_CACHE_DIR", "TAILRACE_IVY_SETTINGS"):
            if name in os.environ:
                own[name] = os.environ[name]
        self._environment = {
            **own,
            "TAILRACE_HOME": str(home),
            "TAILRACE_SLOT_REQUEST_TIMEOUT": f"{SLOT_TIMEOUT_S} s",
            "TAILRACE_SLOT_REQUEST_UNFULFILLABLE_TIMEOUT": f"{SLOT_TIMEOUT_S} s",
            "TAILRACE_RESOURCEMANAGER_STANDALONE_START_UP_TIME": "0 s",
            **environment,
        }

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tailrace.services.cli", *arguments],
            env=self._environment,
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
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done

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
        """(pid, start) of everything the TaskExecutors run: Spark, its Python workers, StreamTasks."""
        found = set()
        for process in self.record.processes:
            if process.name != "jobmanager":
                with contextlib.suppress(psutil.NoSuchProcess):
                    for child in psutil.Process(process.pid).children(recursive=True):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            found.add((child.pid, child.create_time()))
        return found

    def watch(self) -> None:
        """Notes every process of the cluster, so that the last test can look for what is left."""
        pids = [process.pid for process in self.record.processes]
        pids.append(json.loads((self.home / "kafka" / "kafka.json").read_text())["pid"])
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.seen.add((pid, psutil.Process(pid).create_time()))
        self.seen |= self.workers()

    def story(self) -> tuple[HistoryProjection, list[FormattedEvent]]:
        """The log so far."""
        fold, log = HistoryProjection(), open_event_log(self.configuration)
        entries = list(fold.read(log))
        log.close()
        return fold, entries


@contextlib.contextmanager
def started(cluster: Cluster, *arguments: str) -> Iterator[None]:
    """While it lasts the cluster runs; nothing of it is left behind."""
    try:
        told = cluster.ok("cluster", "start", *arguments)
        assert "cluster tailrace runs" in told.stderr
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
    cluster = Cluster(home, TAILRACE_TASKMANAGER_RESTART_GRACE="2 min")
    with started(cluster, "--taskexecutors", "2", "--slots", "2"):
        yield cluster


@pytest.fixture(scope="module")
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=1000)
    yield server
    server.close()


@pytest.fixture(scope="module")
def job(cluster: Cluster, text: TextServer) -> str:
    """WindowWordCount over all four slots, flatMap at 4 and the windows at 3."""
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    parallelism = ["--flat-map-parallelism", "4", "--window-parallelism", str(WINDOW_PARALLELISM)]
    submitted = cluster.ok("run", "-d", str(PROGRAM), *options, *parallelism)
    job_id = submitted.stdout.strip()
    wait_until(lambda: running_tasks(cluster, job_id) == 8, "8 tasks RUNNING")
    cluster.watch()
    return job_id


@pytest.fixture(scope="module")
def started_with(cluster: Cluster, job: str) -> dict[str, str]:
    """Execution attempt -> task of the job, as first deployed."""
    return attempts(cluster, job)


def alive(pid: int, created: float) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < 0.5
        return same and process.status() != psutil.STATUS_ZOMBIE
    return False


def running_tasks(cluster: Cluster, job_id: str) -> int:
    fold, _ = cluster.story()
    found = [each for each in jobs(fold) if each.job_id == job_id]
    return found[0].tasks.get(ExecutionState.RUNNING.value, 0) if found else 0


def attempts(cluster: Cluster, job_id: str) -> dict[str, str]:
    _, entries = cluster.story()
    return {
        entry.record.body.execution_attempt_id: entry.task or ""  # type: ignore[attr-defined]
        for entry in entries
        if entry.type == "task_executor.SubmitTask" and entry.job == job_id
    }


def windows(cluster: Cluster, job_id: str) -> list[Window]:
    tally = WindowCounts()
    for record in read_output(cluster.configuration, job_id):
        tally.add(record, 0.0)
    return tally.windows()


def wait_for_windows(cluster: Cluster, job_id: str, after_ms: float, count: int) -> list[Window]:
    """Waits until so many windows that end after a time are complete; all complete windows, oldest first."""
    tally, deadline = WindowCounts(), time.monotonic() + TIMEOUT_S
    enough = threading.Event()
    for record in read_output(
        cluster.configuration, job_id, over=lambda: enough.is_set() or time.monotonic() > deadline
    ):
        tally.add(record, 0.0)
        if sum(window.end_ms > after_ms for window in tally.complete(WINDOW_PARALLELISM)) >= count:
            enough.set()
    assert enough.is_set(), f"no {count} windows within {TIMEOUT_S:g} s"
    return tally.complete(WINDOW_PARALLELISM)


def assert_counted_right(cluster: Cluster, job_id: str, text: TextServer) -> None:
    """Waits until the job has counted all that was sent: each word as often as it was sent."""
    with text.paused():
        words = sum(len(line) for line in text.sent_words())
        tally, deadline = WindowCounts(), time.monotonic() + TIMEOUT_S
        enough = threading.Event()
        for record in read_output(
            cluster.configuration, job_id, over=lambda: enough.is_set() or time.monotonic() > deadline
        ):
            tally.add(record, 0.0)
            if sum(window.total for window in tally.windows()) >= words:
                enough.set()
        verdict = check_counts(tally.windows(), text.sent_words())
    assert verdict.right, verdict.text


def test_a_cluster_that_runs_is_not_started_twice(cluster: Cluster) -> None:
    before = cluster.record
    assert "already runs" in cluster.ok("cluster", "start").stderr
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


def test_a_job_runs_on_all_slots_and_counts_what_is_sent(
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


def test_a_killed_jobmanager_loses_nothing(
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


def test_a_killed_taskexecutor_goes_on_with_its_tasks(
    cluster: Cluster, job: str, text: TextServer, started_with: dict[str, str]
) -> None:
    """The one without the source: what a socket sends while nobody listens is gone for everyone."""
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
        (lambda _: b"", "not an Avro event: 0 bytes"),
        (lambda _: b"\xc3\x01" + bytes(8) + b"whatever", "unknown schema: fingerprint 0000000000000000"),
        (broken, "broken tailrace.dispatcher.SubmitJob"),
    ],
    ids=["garbage", "nothing", "unknown schema", "cut off"],
)
def test_what_can_not_be_read_becomes_a_dead_letter(
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
        letters = read_dead_letters(configuration.bootstrap_servers, configuration.cluster_id)
        found = {
            (each.source.topic, each.source.partition, each.source.offset): each.reason for each in letters
        }
        return found.get((topic, 0, placed[0]))

    assert reason in wait_until(letter, "dead letter")

    def is_refused() -> bool:
        _, entries = cluster.story()
        refused = [entry.record.body for entry in entries if entry.type == "dispatcher.SubmissionRefused"]
        return any(body.source.offset == placed[0] for body in refused)  # type: ignore[attr-defined]

    # The letter is written first.
    wait_until(lambda: is_refused(), "refusal in the log")


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
def test_a_job_that_can_not_be_is_rejected_with_the_reason(
    cluster: Cluster, job: str, what: JobGraph | EntryPoint, parallelism: int | None, reason: str
) -> None:
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        job_id = client.submit(what, parallelism)
        with pytest.raises(JobRejectedError, match=reason):
            conversation.await_accepted(job_id, TIMEOUT_S)


def test_a_job_id_is_taken_once(cluster: Cluster, job: str) -> None:
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        client.submit(build(ENTRY_POINT, ["--port", "9"], 1), job_id=job)
        with pytest.raises(JobRejectedError, match=f"job {job} was submitted before and is RUNNING"):
            conversation.await_accepted(job, TIMEOUT_S)


def test_a_job_that_wants_more_slots_than_there_are_fails_and_says_how_many(
    cluster: Cluster, job: str
) -> None:
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        job_id = client.submit(build(ENTRY_POINT, ["--port", "9"], 5))
        conversation.await_accepted(job_id, TIMEOUT_S)
        ended = conversation.finished(job_id, TIMEOUT_S)
    assert ended is not None
    assert ended.status.value == "FAILED"
    assert f"no slot within {SLOT_TIMEOUT_S} s: the job wants 5, 0 are free, 4 are registered" in (
        ended.reason or ""
    )


def test_a_program_that_raises_is_told_where(cluster: Cluster, job: str, tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text("import json\njson.loads('{')\n")
    done = cluster.run("run", str(program))
    assert (done.returncode, done.stdout) == (ExitCode.JOB, "")
    assert "wrong.py:2" in done.stderr
    assert "JSONDecodeError" in done.stderr
    assert "Traceback" not in done.stderr
    missing = cluster.run("run", str(tmp_path / "missing.py"))
    assert missing.returncode == ExitCode.JOB
    assert "does not exist" in missing.stderr


def test_none_of_it_disturbed_the_job_which_is_cancelled(
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


def test_ctrl_c_cancels_an_attached_job(cluster: Cluster, text: TextServer) -> None:
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


def test_a_reader_that_hangs_up_leaves_the_job_running(cluster: Cluster, text: TextServer) -> None:
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "1"]
    with cluster.popen("run", str(PROGRAM), *options) as attached:
        assert attached.stdout is not None
        assert attached.stderr is not None
        assert "> " in attached.stdout.readline()
        attached.stdout.close()
        told = attached.stderr.read()
    assert attached.returncode == ExitCode.BROKEN_PIPE
    assert "runs on, and the program does not wait for it" in told.splitlines()[-1]
    fold, _ = cluster.story()
    (running,) = [each for each in jobs(fold) if each.status.value == "RUNNING"]
    cluster.ok("cancel", running.job_id)


def test_a_job_whose_code_raises_fails_with_its_line(
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
    done = cluster.run("run", "-D", "restart-strategy.type=none", str(program))
    assert (done.returncode, done.stdout) == (ExitCode.JOB, "")
    last = done.stderr.strip().splitlines()[-1]
    assert "is FAILED" in last
    assert "ValueError" in last
    assert "raises.py:3" in last


def test_the_log_tells_all_of_it_from_any_offset(cluster: Cluster, job: str) -> None:
    whole = [json.loads(line) for line in cluster.ok("log", "-o", "json").stdout.splitlines()]
    _, entries = cluster.story()
    assert [each["offset"] for each in whole] == [entry.record.offset for entry in entries]
    of_job = cluster.ok("log", "--job", job, "--from", "12", "--type", "SubmitTask").stdout.splitlines()
    assert len(of_job) == 8
    early = json.loads(cluster.ok("state", "--at", "5", "-o", "json").stdout)
    assert early["offset"] == 5
    assert "dispatcher" not in early["roles"] or early["roles"]["dispatcher"]["jobs"] == {}
    assert cluster.run("state", "--at", "1000000").returncode == ExitCode.NOT_FOUND


def test_a_cluster_stops_in_order_and_leaves_nothing_but_its_log(cluster: Cluster) -> None:
    cluster.watch()
    stopped = cluster.ok("cluster", "stop")
    assert "SIG" not in stopped.stderr, stopped.stderr
    assert [each for each in cluster.seen if alive(*each)] == []
    assert cluster.run("list").returncode == ExitCode.UNREACHABLE
    cluster.ok("cluster", "start", "--taskexecutors", "0")
    cluster.watch()
    assert len(cluster.ok("list", "-o", "json").stdout.splitlines()) == 5
    cluster.ok("cluster", "stop")
    assert [each for each in cluster.seen if alive(*each)] == []
