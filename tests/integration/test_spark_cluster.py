"""A TaskExecutor whose queries run on a standalone Spark cluster of two Workers. Whichever of its processes is killed,
word counts are exact and no task restarts."""

from __future__ import annotations

import importlib
import logging
import re
import site
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import kafka_topics
import polling
import psutil
import pytest
import runtime_jobs
from polling import wait_until
from spark_word_count import MORE, WordCount, kill

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.spark_cluster import SparkCluster
from tailrace.pipelines.runtime.spark.cluster import SparkClusterAddress

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
PATIENCE_S = 300.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits longer than other tests: on a busy machine an executor, which is a JVM, takes a minute to start."""
    for module in (kafka_topics, polling, runtime_jobs):
        monkeypatch.setattr(module, "TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def spark() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, cores=8) as running:
        yield running


@pytest.fixture
def count(spark: SparkCluster, kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path) -> Iterator[WordCount]:
    made = WordCount(kafka, cluster_id, tmp_path, SparkClusterAddress(spark.master, "127.0.0.1", 8))
    yield made
    made.runtime.close()


def both_run(spark: SparkCluster) -> list[psutil.Process] | None:
    """Returns the executors, if each Worker has one."""
    running = [spark.executors(worker) for worker in range(2)]
    return [executor for each in running for executor in each] if all(running) else None


def test_word_count_is_exact_with_killed_executors(
    spark: SparkCluster, count: WordCount, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    count.start()
    (page,) = re.findall(r"user interface is at (http://127\.0\.0\.1:\d+)", caplog.text)
    queries = urllib.request.urlopen(f"{page}/StreamingQuery/", timeout=60).read().decode()
    assert re.search(r"Source: \S+ .*\(job [0-9a-f]{8}, query \d+\)", queries), queries
    killed = wait_until(lambda: both_run(spark), "an executor on each Worker")
    kill(killed)
    count.write([b"more and"] * MORE, 1)
    count.check()
    wait_until(lambda: set(spark.executors()) - set(killed), "another executor")
    count.write([b"and more"] * MORE, 0)
    count.check()
    count.cancel()


def test_word_count_is_exact_with_killed_worker(spark: SparkCluster, count: WordCount) -> None:
    count.start()
    wait_until(lambda: both_run(spark), "an executor on each Worker")
    spark.kill_worker(0)
    count.write([b"more and"] * MORE, 1)
    count.check()
    wait_until(lambda: not spark.executors(0), "the end of the executors of the killed Worker")
    assert spark.executors(1)
    count.write([b"and more"] * MORE, 0)
    count.check()
    count.cancel()


def test_executors_outlive_master_and_next_master_gives_others(
    spark: SparkCluster, count: WordCount, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    count.start()
    before = wait_until(lambda: both_run(spark), "an executor on each Worker")
    spark.kill_master()
    count.write([b"more and"] * MORE, 1)
    count.check()
    assert all(executor.is_running() for executor in before)
    kill(before)
    wait_until(lambda: "has no executor" in caplog.text, "the warning that no executor is left")
    count.write([b"and more"] * MORE, 0)
    count.check()
    assert not spark.executors()
    spark.restart_master()
    wait_until(spark.executors, "another executor")
    assert "has accepted another application" in caplog.text
    count.write([b"even more"] * MORE, 1)
    count.check()
    count.cancel()


def shipped_words(line: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in importlib.import_module("shipped_splitter").split(line)]


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Returns a Python with our packages, but without tailrace."""
    home = tmp_path / "bare"
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for path in Path(site.getsitepackages()[0]).iterdir():
        if "tailrace" not in path.name and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    return home / "bin" / "python"


def test_code_of_tailrace_and_files_of_job_are_sent_to_executors(
    spark: SparkCluster, kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, bare_python: Path
) -> None:
    shipped = tmp_path / "shipped_splitter.py"
    shipped.write_text("def split(line):\n    return line.split()\n")
    address = SparkClusterAddress(spark.master, "127.0.0.1", 8, python_executable=str(bare_python))
    count = WordCount(kafka, cluster_id, tmp_path / "scratch", address)
    try:
        count.start(shipped_words, (shipped,))
        executors = wait_until(lambda: both_run(spark), "an executor on each Worker")
        count.check()
        sent = {file for executor in executors for file in Path(executor.cwd()).rglob("shipped_splitter.py")}
        assert sent, "the queries have run on the cluster"
        kill(executors)
        count.write([b"and more"] * MORE, 0)
        count.check()
        count.cancel()
    finally:
        count.runtime.close()


def test_python_that_is_not_on_workers_ends_taskexecutor_with_one_line(
    spark: SparkCluster, kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    address = SparkClusterAddress(spark.master, "127.0.0.1", 8, python_executable="/nowhere/python")
    count = WordCount(kafka, cluster_id, tmp_path, address)
    try:
        count.runtime.start()
        (error,) = wait_until(lambda: count.failures, "the failure")
        assert "have no /nowhere/python: set spark.python-executable" in str(error)
        assert "\n" not in str(error)
    finally:
        count.runtime.close()
