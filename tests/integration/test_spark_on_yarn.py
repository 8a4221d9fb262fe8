"""A TaskExecutor whose queries run on executors in YARN's containers, by `spark.master: yarn`."""

from __future__ import annotations

from pathlib import Path

import kafka_topics
import polling
import psutil
import pytest
import runtime_jobs
from polling import wait_until
from process_status import command_line
from spark_word_count import MORE, WordCount, kill

from tailrace.infra.jars import pyspark_jars_dir
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.pipelines.runtime.spark.cluster import SparkClusterAddress

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def executors(yarn: EmbeddedYarn) -> list[psutil.Process]:
    found = []
    for process in yarn.containers():
        try:
            if process.name() == "java" and any("ExecutorBackend" in part for part in command_line(process)):
                found.append(process)
        except psutil.Error:  # it has ended meanwhile
            continue
    return found


def test_word_count_in_containers_is_exact_with_killed_executors(
    yarn: EmbeddedYarn,
    kafka: EmbeddedKafka,
    cluster_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (kafka_topics, polling, runtime_jobs):
        monkeypatch.setattr(module, "TIMEOUT_S", 300.0)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration_dir))
    # The nodes have Spark's jars: otherwise 400 MB go to HDFS.
    settings = {"spark.yarn.jars": f"local:{pyspark_jars_dir()}/*"}
    address = SparkClusterAddress("yarn", "127.0.0.2", 8, executors=2, settings=settings)
    count = WordCount(kafka, cluster_id, tmp_path, address)
    try:
        count.start()
        killed = wait_until(lambda: found if len(found := executors(yarn)) == 2 else None, "two executors")
        count.check()
        kill(killed)
        count.write([b"more and"] * MORE, 1)
        count.check()
        wait_until(lambda: set(executors(yarn)) - set(killed), "another executor")
        count.write([b"and more"] * MORE, 0)
        count.check()
        count.cancel()
    finally:
        count.runtime.close()
    wait_until(lambda: not yarn.containers(), "the end of all containers")
