"""Jobs with large parts on a real cluster: those travel as blobs, beside the log, and go when the job has ended.

Its BlobServer serves only who knows the secret of the cluster.
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

import pytest
from polling import wait_until

from .test_cluster import Cluster, alive, running_tasks

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
    """With a secret, which only its start is told of."""
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
    """A file that is larger than any event may be, and its digest."""
    content = os.urandom(20 * MIB)
    (tmp_path / "model.bin").write_bytes(content)
    return tmp_path / "model.bin", hashlib.sha256(content).hexdigest()


def program_text(*, adds: bool = False, count: int | None = 20, rate: int | None = None) -> str:
    return PROGRAM.format(code=12 * MIB, adds=adds, count=count, rate=rate)


def records(out: str) -> Counter[str]:
    told: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    return Counter(each["record"] for each in told if "record" in each)


def blobs(cluster: Cluster) -> list[str]:
    """Those on the BlobServer."""
    return [str(each) for each in (cluster.home / "blobs").rglob("blob_*")]


def largest_event(cluster: Cluster) -> int:
    from confluent_kafka import Consumer, TopicPartition

    from tailrace.services.log.clients import consumer_configuration
    from tailrace.services.log.topics import log_topic, submissions_topic

    found = 0
    consumer = Consumer(
        consumer_configuration(cluster.record.bootstrap_servers, auto_offset_reset="earliest")
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
                    found = max(found, len(message.value() or b""))
                    position = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("adds", [True, False], ids=["add_python_file", "--py-file"])
def test_large_files_and_functions_run_and_never_enter_the_log(
    cluster: Cluster, tmp_path: Path, model: tuple[Path, str], adds: bool
) -> None:
    program = tmp_path / "large.py"
    program.write_text(program_text(adds=adds))
    ships = () if adds else ("--py-file", str(model[0]))
    done = cluster.ok("run", *ships, "-p", "2", "-o", "json", str(program))
    assert records(done.stdout) == {f"{12 * MIB} {model[1]}": 20}
    assert largest_event(cluster) < LARGEST_IN_THE_LOG
    wait_until(lambda: blobs(cluster) == [], "the job's blobs are gone")


def test_an_application_is_built_from_blobs_and_its_graph_may_be_large(
    cluster: Cluster, tmp_path: Path, model: tuple[Path, str]
) -> None:
    (tmp_path / "large.py").write_text(program_text())
    ships = ("--py-file", str(model[0]), "--py-file", str(tmp_path / "large.py"))
    done = cluster.ok("run", *ships, "-o", "json", "--job-id", "built-there", "large:main")
    assert records(done.stdout) == {f"{12 * MIB} {model[1]}": 20}
    assert largest_event(cluster) < LARGEST_IN_THE_LOG
    wait_until(lambda: blobs(cluster) == [], "the job's blobs are gone")


def master(cluster: Cluster) -> str | None:
    """The jobmanager that leads the Dispatcher."""
    status = json.loads(cluster.run("cluster", "status", "-o", "json").stdout)
    leading = [each for each in status["masters"] if "dispatcher" in each["leads"] and each["running"]]
    return str(leading[0]["name"]) if leading else None


def running_on(cluster: Cluster) -> str | None:
    """The TaskExecutor that has no slot left."""
    status = json.loads(cluster.run("cluster", "status", "-o", "json").stdout)
    full = [each["resource_id"] for each in status["taskexecutors"] if each["free_slots"] == 0]
    return full[0] if full else None


def test_a_job_goes_on_from_the_store_when_the_server_that_took_its_blobs_is_gone_with_its_disk(
    tmp_path: Path, model: tuple[Path, str]
) -> None:
    cluster = Cluster(tmp_path / "home")
    options = ("-D", "high-availability.type=zookeeper")
    session = ("-D", "high-availability.zookeeper.client.session-timeout=4 s")
    program = tmp_path / "large.py"
    program.write_text(program_text(count=None, rate=20))
    try:
        cluster.ok(
            "cluster", "start", "--masters", "2", "--taskexecutors", "2", "--slots", "1", *options, *session
        )
        cluster.watch()
        job_id = cluster.ok("run", "--py-file", str(model[0]), "-d", str(program)).stdout.strip()
        wait_until(lambda: running_tasks(cluster, job_id) == 2, "running job")
        cluster.watch()
        leader, worker = master(cluster), running_on(cluster)
        assert leader is not None
        assert worker is not None
        os.kill(cluster.pid(leader), signal.SIGKILL)
        shutil.rmtree(cluster.home / "blobs")
        os.kill(cluster.pid(worker), signal.SIGKILL)
        wait_until(lambda: master(cluster) not in (None, leader), "successor")
        wait_until(lambda: running_on(cluster) not in (None, worker), "other TaskExecutor with the job")
        wait_until(lambda: running_tasks(cluster, job_id) == 2, "running job")
        stored = cluster.home / "ha" / cluster.record.cluster_id / "blob"
        assert len(list(stored.rglob("blob_*"))) == 2
        cluster.ok("cancel", job_id)
        wait_until(lambda: not [*stored.rglob("blob_*"), *blobs(cluster)], "the job's blobs are gone")
    finally:
        cluster.run("cluster", "stop")
        for pid, created in cluster.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)
