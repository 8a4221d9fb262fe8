"""Jobs with large parts on a real cluster: the parts are shipped as blobs, beside the log, and deleted after the job.

The BlobServer serves only clients that know the secret of the cluster.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kazoo.client import KazooClient
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas.everyone import TaskExecutorLost
from tailrace.schemas.task_executor import SubmitTask
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.log.factory import create_admin_client

from .test_cluster import Cluster, alive
from .test_kill import LogFollower, of_job, wait_for_tasks, where

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
LARGEST_IN_THE_LOG = MIB
"""Bytes of an event that may be there all the same: a job's small parts."""

PROGRAM = """
import hashlib
import os
from tailrace import MapFunction, StreamExecutionEnvironment, shipped_file

TABLE = os.urandom({code})


class Looked(MapFunction):
    def __init__(self, table):
        self.table = table

    def open(self, context):
        self.digest = hashlib.sha256(shipped_file("model.bin").read_bytes()).hexdigest()

    def map(self, i: int) -> str:
        return f"{{len(self.table)}} {{self.digest}}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    if {adds}:
        env.add_python_file(os.path.join(os.path.dirname(__file__), "model.bin"))
    numbers = env.generate(lambda i: i, count={count}, rate_per_second={rate}, output_type=int)
    numbers.rebalance().map(Looked(TABLE)).print()
    env.execute("large")


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yields a cluster with a secret, which is given only at its start."""
    home = tmp_path_factory.mktemp("cluster") / "home"
    secret = home.parent / "secret"
    secret.write_text("correct horse battery staple\n")
    cluster = Cluster(home, TAILRACE_HEARTBEAT_INTERVAL="500 ms", TAILRACE_HEARTBEAT_TIMEOUT="30 s")
    try:
        cluster.ok(
            *("cluster", "start", "--taskexecutors", "1", "--slots", "4", "-D", f"blob.secret-file={secret}")
        )
        cluster.watch()
        yield cluster
    finally:
        cluster.run("cluster", "stop")
        for pid, created in cluster.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, str]:
    """Returns a file that is larger than any event may be, and its digest."""
    content = os.urandom(20 * MIB)
    (tmp_path / "model.bin").write_bytes(content)
    return tmp_path / "model.bin", hashlib.sha256(content).hexdigest()


def program_text(
    *, adds: bool = False, count: int | None = 20, rate: int | None = None, code: int = 12 * MIB
) -> str:
    return PROGRAM.format(code=code, adds=adds, count=count, rate=rate)


def records(out: str) -> Counter[str]:
    reports: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    return Counter(report["record"] for report in reports if "record" in report)


def blobs(cluster: Cluster) -> list[str]:
    """Returns the blobs on the BlobServer."""
    return [str(path) for path in (cluster.home / "blobs").rglob("blob_*")]


def largest_event(cluster: Cluster) -> int:
    from confluent_kafka import Consumer, TopicPartition

    from tailrace.services.log.clients import consumer_configuration
    from tailrace.services.log.topics import log_topic, submissions_topic

    result = 0
    consumer = Consumer(
        consumer_configuration(
            KafkaConnection(cluster.record.bootstrap_servers), auto_offset_reset="earliest"
        )
    )
    try:
        for topic in (log_topic(cluster.record.cluster_id), submissions_topic(cluster.record.cluster_id)):
            partition = TopicPartition(topic, 0, 0)
            end = consumer.get_watermark_offsets(partition)[1]
            consumer.assign([partition])
            position = 0
            while position < end:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    result = max(result, len(message.value() or b""))
                    position = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return result


@pytest.mark.parametrize("adds", [True, False], ids=["add_python_file", "--py-file"])
def test_large_files_and_functions_run_and_never_enter_log(
    cluster: Cluster, tmp_path: Path, model: tuple[Path, str], adds: bool
) -> None:
    program = tmp_path / "large.py"
    program.write_text(program_text(adds=adds))
    ships = () if adds else ("--py-file", str(model[0]))
    result = cluster.ok("run", *ships, "-p", "2", "-o", "json", str(program))
    assert records(result.stdout) == {f"{12 * MIB} {model[1]}": 20}
    assert largest_event(cluster) < LARGEST_IN_THE_LOG
    wait_until(lambda: blobs(cluster) == [], "the job's blobs are gone")


def test_application_is_built_from_blobs_and_its_graph_may_be_large(
    cluster: Cluster, tmp_path: Path, model: tuple[Path, str]
) -> None:
    (tmp_path / "large.py").write_text(program_text())
    ships = ("--py-file", str(model[0]), "--py-file", str(tmp_path / "large.py"))
    result = cluster.ok("run", *ships, "-o", "json", "--job-id", "built-there", "large:main")
    assert records(result.stdout) == {f"{12 * MIB} {model[1]}": 20}
    assert largest_event(cluster) < LARGEST_IN_THE_LOG
    wait_until(lambda: blobs(cluster) == [], "the job's blobs are gone")


def test_graph_of_small_parts_reaches_task_executors_as_blob(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"small")
    (tmp_path / "large.py").write_text(program_text(adds=True, code=300 << 10))
    result = cluster.ok("run", "-o", "json", str(tmp_path / "large.py"))
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    job_id = next(report["job"]["job_id"] for report in reports if "job" in report)
    assert records(result.stdout) == {f"{300 << 10} {hashlib.sha256(b'small').hexdigest()}": 20}
    answers = [
        event["body"]
        for line in cluster.ok("log", "--job", job_id, "-o", "json").stdout.splitlines()
        if (event := json.loads(line))["type"].endswith("task_executor.JobManagerRegistrationSuccess")
    ]
    assert answers
    assert all(body["job_graph"] is None for body in answers)
    assert all(body["job_graph_blob"].startswith(f"permanent/{job_id}/") for body in answers)
    wait_until(lambda: blobs(cluster) == [], "the job's blobs are gone")


def master(cluster: Cluster) -> str | None:
    """Returns the jobmanager that leads the Dispatcher."""
    status = json.loads(cluster.run("cluster", "status", "-o", "json").stdout)
    leading = [item for item in status["masters"] if "dispatcher" in item["leads"] and item["running"]]
    return str(leading[0]["name"]) if leading else None


@pytest.fixture(scope="module")
def available_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yields a cluster with two masters and two TaskExecutors of one slot, which forgets at once what is over."""
    cluster = Cluster(tmp_path_factory.mktemp("available") / "home")
    options = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.client.session-timeout": "4 s",
        "execution.checkpointing.interval": "1 s",
        "jobstore.expiration-time": "2 s",
        "resourcemanager.gone-taskmanagers.expiration-time": "2 s",
    }
    settings = [argument for key, text in options.items() for argument in ("-D", f"{key}={text}")]
    try:
        cluster.ok("cluster", "start", "--masters", "2", "--taskexecutors", "2", "--slots", "1", *settings)
        cluster.watch()
        yield cluster
    finally:
        cluster.run("cluster", "stop")
        for pid, created in cluster.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


ENDLESS = "endless"
"""The id of the job of the following tests, which run in order."""


def test_job_uses_store_when_its_blob_server_and_disk_are_lost(
    available_cluster: Cluster, tmp_path: Path, model: tuple[Path, str]
) -> None:
    cluster = available_cluster
    program = tmp_path / "large.py"
    program.write_text(program_text(count=None, rate=20))
    follower = LogFollower(cluster)
    ships = ("--py-file", str(model[0]), "--py-file", str(program))
    cluster.ok("run", *ships, "--job-id", ENDLESS, "-d", "large:main")
    assert len(wait_for_tasks(follower, ENDLESS)) == 1
    cluster.watch()
    leader, worker = master(cluster), where(follower, ENDLESS)
    assert leader is not None
    os.kill(cluster.pid(leader), signal.SIGKILL)
    shutil.rmtree(cluster.home / "blobs")
    os.kill(cluster.pid(worker), signal.SIGKILL)
    follower.until(TaskExecutorLost, lambda body: body.resource_id == worker)
    follower.until(SubmitTask, of_job(ENDLESS))
    assert len(wait_for_tasks(follower, ENDLESS)) == 1
    follower.close()
    assert master(cluster) not in (None, leader)
    assert where(follower, ENDLESS) != worker
    assert len(stored_blobs(cluster)) == 2


def test_nothing_is_left_of_job_and_task_executor_that_are_forgotten(
    available_cluster: Cluster, tmp_path: Path
) -> None:
    cluster = available_cluster
    before = moment(cluster)
    lost = {
        f"task_executor/{name}"
        for name in ("taskexecutor-1", "taskexecutor-2")
        if not is_alive(cluster, name)
    }
    assert len(lost) == 1
    checkpoints = cluster.home / "checkpoints" / ENDLESS
    wait_until(lambda: list(checkpoints.rglob("_metadata")), "a checkpoint")
    assert len(topics_of(cluster, ENDLESS)) > 1
    assert f"job_master/{ENDLESS}" in before["roles"]
    cluster.ok("cancel", ENDLESS)
    gone = {f"job_master/{ENDLESS}", *lost}

    def known() -> set[str]:
        now = moment(cluster)
        return gone.intersection([*now["roles"], *now["leaders"]])

    wait_until(lambda: not known(), "the job and the TaskExecutor are forgotten")
    assert ENDLESS not in json.dumps(moment(cluster)["roles"]["dispatcher"]["jobs"])
    wait_until(lambda: not [*stored_blobs(cluster), *blobs(cluster)], "the job's blobs are gone")
    assert topics_of(cluster, ENDLESS) == []
    assert not checkpoints.exists()
    assert not [path for path in zookeeper_nodes(cluster) if ENDLESS in path]
    assert cluster.ok("list", "-o", "json").stdout == ""
    shown = cluster.run("show", ENDLESS)
    assert shown.returncode == ExitCode.NOT_FOUND
    program = tmp_path / "small.py"
    program.write_text(program_text(code=1, adds=False))
    cluster.ok("run", "--py-file", str(program), "--job-id", ENDLESS, "-d", "small:main")


def moment(cluster: Cluster) -> dict[str, Any]:
    """Returns the states of all roles, and the leaders."""
    states: dict[str, Any] = json.loads(cluster.ok("state", "-o", "json").stdout)
    return states


def is_alive(cluster: Cluster, name: str) -> bool:
    return psutil.pid_exists(cluster.pid(name))


def stored_blobs(cluster: Cluster) -> list[Path]:
    """Returns the blobs in the storage of all masters."""
    return list((cluster.home / "ha" / cluster.record.cluster_id / "blob").rglob("blob_*"))


def topics_of(cluster: Cluster, job_id: str) -> list[str]:
    topics = create_admin_client(cluster.configuration).list_topics(timeout=TIMEOUT_S).topics
    return [topic for topic in topics if job_id in topic]


def zookeeper_nodes(cluster: Cluster) -> list[str]:
    """Returns the paths of all nodes."""
    settings = cluster.record.high_availability
    client = KazooClient(settings["high-availability.zookeeper.quorum"])
    client.start(timeout=TIMEOUT_S)
    try:
        found, unread = [], ["/"]
        while unread:
            path = unread.pop()
            found.append(path)
            unread += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
        return found
    finally:
        client.stop()
        client.close()
