"""A StreamTask on real Kafka reads files that appear, into buckets, and is killed repeatedly: each row once."""

from __future__ import annotations

import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from polling import wait_until

from tailrace import FileSink, FileSource, StreamExecutionEnvironment, WatermarkStrategy
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment
from tailrace.pipelines.runtime.common.protocol import OpenTask, OpenTasks

from .test_connectors import attempt as start_attempt
from .test_connectors import create_topics

FILES = 120
ROWS = 200
HOUR_MS = 3_600_000
KILLED_AT = (1_000, 5_000, 12_000, 18_000)
"""Rows that are there when an attempt is killed."""


class Reading(NamedTuple):
    sensor: str
    id: int
    at: int


def readings(number: int) -> list[Reading]:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return [Reading(f"s{i % 3}", i, i * HOUR_MS // 2_000) for i in ids]


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_each_row_of_files_that_appear_is_in_its_bucket_once_with_any_kill(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    incoming, out = tmp_path / "in", tmp_path / "out"
    incoming.mkdir()
    env = StreamExecutionEnvironment().set_parallelism(1)
    source = FileSource(str(incoming), format="csv", output_type=Reading)
    env.from_source(
        source.monitor_continuously(timedelta(milliseconds=50)),
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at"),
    ).sink_to(
        FileSink(
            str(out), "parquet", roll_interval=timedelta(milliseconds=300), bucket=["sensor", "hour=%H"],
            success_files=True,
        )
    )  # fmt: skip
    graph = env.get_job_graph()
    (vertex,) = graph.vertices
    job = uuid.uuid4().hex
    create_topics(kafka.bootstrap_servers, cluster_id, job, graph)
    wanted = [row for number in range(FILES) for row in readings(number)]
    read: dict[Path, list[int]] = {}
    has_begun = threading.Event()

    def write() -> None:
        has_begun.wait()
        for number in range(FILES):
            rows = "".join(f"{row.sensor},{row.id},{row.at}\n" for row in readings(number))
            (incoming / f".{number:04}").write_text(f"sensor,id,at\n{rows}")
            (incoming / f".{number:04}").rename(incoming / f"{number:04}.csv")
            threading.Event().wait(0.05)  # files appear while tasks run

    def rows_there() -> int:
        for file in out.glob("sensor=*/hour=*/*.parquet"):
            if file not in read:
                read[file] = pq.read_table(file, columns=["id"], partitioning=None)["id"].to_pylist()
        return sum(map(len, read.values()))

    def has(least: int) -> Callable[[], bool]:
        return lambda: rows_there() >= least

    writer = threading.Thread(target=write)
    writer.start()
    for number, least in enumerate((*KILLED_AT, len(wanted))):
        deployment = SubtaskDeployment("", 0, number)
        opening = OpenTasks(
            cluster_id, job, graph, (OpenTask(vertex.vertex_id, deployment),), kafka.connection
        )
        with start_attempt(opening) as process:
            try:
                has_begun.set()
                wait_until(has(least))
                assert process.poll() is None
                process.send_signal(signal.SIGKILL)
            finally:
                process.kill()
    writer.join()
    rows_there()
    assert Counter(i for ids in read.values() for i in ids) == Counter(row.id for row in wanted)
    by_bucket: dict[Path, set[int]] = {}
    for row in wanted:
        bucket = out / f"sensor={row.sensor}" / f"hour={row.at // HOUR_MS:02}"
        by_bucket.setdefault(bucket, set()).add(row.id)
    for bucket, expected in by_bucket.items():
        there = {i for file, ids in read.items() if file.parent == bucket for i in ids}
        assert there == expected
        # The last hour may still get rows.
        assert (bucket / "_SUCCESS").exists() or bucket.name == max(each.name for each in by_bucket)
