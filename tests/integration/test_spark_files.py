"""Spark reads and writes files for StreamTasks: each row once, with any crash, and whatever Spark drops."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connectors import operator_config
from graphs import operator
from msgspec.structs import replace
from polling import wait_until

from tailrace import SparkSink, SparkSource, StreamExecutionEnvironment
from tailrace.infra.jars import spark_jars
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.common.protocol import OpenTask, OpenTasks
from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.spark import file_jobs
from tailrace.pipelines.runtime.spark.file_client import SparkFileClient
from tailrace.pipelines.runtime.spark.session import start_session
from tailrace.pipelines.runtime.stream_task.input.sources.build import build_source
from tailrace.pipelines.runtime.stream_task.input.sources.source import Source, SourceSetup
from tailrace.pipelines.runtime.task_runtime.spark_file_server import SparkFileServer
from tailrace.pipelines.types import RecordType
from tailrace.schemas.types import OperatorConfig

from .test_connectors import attempt as start_attempt
from .test_connectors import create_topics, visible

pytestmark = pytest.mark.timeout(300)


class Row(NamedTuple):
    id: int
    name: str | None
    price: float


ROWS = [Row(i, None if i % 11 == 0 else f'n, "{i}" é', i / 4) for i in range(2_400)]
TABLE = pa.table({name: [row[i] for row in ROWS] for i, name in enumerate(Row._fields)})


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkFileClient]:
    patch = pytest.MonkeyPatch()
    for name in ("maxPartitionBytes", "openCostInBytes"):
        patch.setitem(file_jobs._SETTINGS, f"spark.sql.files.{name}", str(40 << 10))  # type: ignore[arg-type]
    patch.setitem(file_jobs._SETTINGS, "spark.sql.execution.arrow.maxRecordsPerBatch", "100")  # type: ignore[arg-type]
    session = start_session(tmp_path_factory.mktemp("spark"), spark_jars(), 640)
    directory = tmp_path_factory.mktemp("s")
    server = SparkFileServer(directory, lambda: session)
    yield SparkFileClient(directory)
    server.close()
    session.stop()
    patch.undo()


def source(form: str, path: Path, output_type: object = Row, **options: str) -> OperatorConfig:
    return operator_config(
        "files", paths=[str(path)], format=f"spark-{form}", output_type=output_type, options=options
    )


def where(condition: str) -> OperatorConfig:
    return operator("w", OperatorKind.WHERE, parameters=json.dumps({"condition": condition}))


def attempt(config: OperatorConfig, spark: SparkFileClient, condition: str, changelog: list[bytes]) -> Source:
    opened = build_source(config, [where(condition)])
    for message in changelog:
        opened.restore(message)
    setup = SourceSetup(config, TaskContext(), lambda: 0, spark=spark)
    opened.open(replace(setup, reads_ahead=False))
    return opened


def rows_of(opened: Source, most: int = 1 << 30) -> Iterator[Any]:
    """Polls the source until it has given so many rows, or has ended."""
    given = 0
    while given < most:
        polled = opened.poll(min(70, most - given))
        if polled.batch is not None:
            given += len(polled.batch)
            yield from polled.batch.values
        if polled.has_ended:
            return


@pytest.mark.soak
def test_each_row_is_in_one_file_with_any_kill(
    spark: SparkFileClient, kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    """A StreamTask from JSON to Parquet is killed while Spark writes for it, and goes on.

    `make test` holds this law for any crash in memory: pipelines/runtime/test_connectors_in_jobs.py.
    """
    rows = [{"id": i, "name": f"n{i % 7}", "price": i / 4} for i in range(8_000)]
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "out"
    env = StreamExecutionEnvironment().set_parallelism(1)
    (
        env.from_source(SparkSource("json", str(tmp_path / "rows.json"), output_type=Row))
        .where("id % 10 = 3")
        .select("id, price * 2 AS price")
        .sink_to(SparkSink("parquet", str(out), {"compression": "gzip"}, roll_records=200))
    )
    graph = env.get_job_graph()
    (vertex,) = graph.vertices
    job = uuid.uuid4().hex
    create_topics(kafka.bootstrap_servers, cluster_id, job, graph)
    for number, files in enumerate((1, 2, None)):
        subtask = OpenTask(vertex.vertex_id, SubtaskDeployment("", 0, number))
        opening = OpenTasks(cluster_id, job, graph, (subtask,), kafka.connection, cache=str(spark._directory))
        with start_attempt(opening) as process:
            try:
                while files is not None and process.poll() is None and len(visible(out)) < files:
                    time.sleep(0.005)
                if files is not None:
                    process.send_signal(signal.SIGKILL)
                assert process.stdout is not None
                output = process.stdout.read().decode()
            finally:
                process.kill()
        assert files is not None or "Finished" in output, output
    tables = [pq.read_table(file).to_pylist() for file in visible(out)]
    assert [len(table) for table in tables] == [200] * 4
    written = sorted((row for table in tables for row in table), key=lambda row: row["id"])
    assert written == [{"id": i, "price": i / 2} for i in range(3, 8_000, 10)]
    assert list(out.glob(".*")) == []


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("json", {"compression": "none"}),
        pytest.param("csv", {"header": "true", "escape": '"'}, marks=pytest.mark.soak),
        pytest.param("orc", {"compression": "zlib"}, marks=pytest.mark.soak),
        ("parquet", {}),
    ],
)
def test_each_row_that_spark_writes_is_read_once_with_any_crash(
    spark: SparkFileClient, tmp_path: Path, form: Any, options: Mapping[str, str]
) -> None:
    written = tmp_path / f"odd {{name}}%41 [x]*.{form}"
    written.write_bytes(spark.write_file(TABLE, form, options))
    assert len(list(tmp_path.iterdir())) == 1
    directory = source(form, tmp_path, **options)
    changelog: list[bytes] = []
    following = 0
    # Each attempt has another condition, and rows that it does not commit.
    for divisor, most in ((2, 300), (3, 200), (7, len(ROWS))):
        opened = attempt(directory, spark, f"id % {divisor} = 0 AND price >= 0.0", changelog)
        read = list(rows_of(opened, most))
        changelog += opened.take_changes()
        assert read == [row for row in ROWS[following:] if row.id % divisor == 0][:most]
        list(rows_of(opened, 30))
        opened.close()
        following = read[-1].id + 1


def test_parquet_is_read_by_several_subtasks_as_declared(spark: SparkFileClient, tmp_path: Path) -> None:
    """Narrow columns become those of the record type, and row groups that no row is kept of are not read."""
    narrow = TABLE.set_column(0, "id", TABLE["id"].cast(pa.int16()))
    pq.write_table(narrow, tmp_path / "rows.parquet", row_group_size=200, compression="none")
    config = source("parquet", tmp_path / "rows.parquet")
    found = []
    for subtask in range(3):
        opened = build_source(config, [where("id * 20000 >= 40000000")])
        context = TaskContext(subtask_index=subtask, parallelism=3)
        opened.open(SourceSetup(config, context, lambda: 0, spark=spark))
        while not (polled := opened.poll(1_000)).has_ended:
            found += [] if polled.batch is None else polled.batch.values
        opened.close()
    assert sorted(found, key=lambda row: row.id) == ROWS[2_000:]


@pytest.mark.soak
def test_spark_reads_files_that_appear_in_buckets(spark: SparkFileClient, tmp_path: Path) -> None:
    config = operator_config(
        "files", paths=[str(tmp_path)], format="spark-parquet", output_type=Row, options={},
        monitor_ms=10, max_age_ms=1_000_000,
    )  # fmt: skip
    opened = build_source(config)
    opened.open(SourceSetup(config, TaskContext(), lambda: 0, spark=spark))
    read: list[Row] = []

    def reads(count: int) -> Callable[[], bool]:
        def look() -> bool:
            if (polled := opened.poll(1_000)).batch is not None:
                read.extend(polled.batch.values)
            return len(read) >= count

        return look

    into = operator_config(
        "file_sink", path=str(tmp_path), format="spark-parquet", bucket=["%Y-%m-%d/%H"], roll_records=200
    )
    setup = OperatorSetup(
        into, TaskContext(), "c", "j", lambda *_, **__: None, (RecordType.of(Row),), spark=spark
    )
    sink = build_operator(setup)
    sink.open()
    try:
        for hour in range(3):
            sink.process(Batch([hour * 3_600_000] * 200, ROWS[hour * 200 : (hour + 1) * 200]))
            sink.before_commit()
            list(sink.take_changes())
            sink.committed()
            wait_until(reads((hour + 1) * 200))
        assert sorted(read, key=lambda row: row.id) == ROWS[:600]
        assert {str(path.relative_to(tmp_path)) for path in tmp_path.glob("1970-01-01/*")} == {
            f"1970-01-01/0{hour}" for hour in range(3)
        }
    finally:
        opened.close()
        sink.close()


class Wrong(NamedTuple):
    id: int
    price: str


class Missing(NamedTuple):
    id: int
    cost: float


class Strict(NamedTuple):
    id: int
    name: str


@pytest.mark.parametrize(
    ("output_type", "reason"),
    [
        (Wrong, "rows.parquet: column price is double, which is no str"),
        (Missing, "rows.parquet has no column cost; it has id, name, price"),
        (Strict, "rows.parquet: column name has no value in some record: declare it as str | None"),
    ],
)
def test_row_of_other_type_is_rejected_by_column(
    spark: SparkFileClient, tmp_path: Path, output_type: object, reason: str
) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    config = source("parquet", tmp_path / "rows.parquet", output_type)
    column = "name" if output_type is Strict else "id"
    opened = attempt(config, spark, f"{column} IS NULL OR id = 1", [])
    with pytest.raises(TaskError) as error:
        list(rows_of(opened))
    assert reason in str(error.value)


def test_malformed_row_fails_with_file_and_reason(spark: SparkFileClient, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1, "price": 1.0}\n{"id": \n')
    opened = attempt(source("json", tmp_path / "rows.json"), spark, "id > 0", [])
    with pytest.raises(TaskError) as error:
        list(rows_of(opened))
    assert str(tmp_path / "rows.json") in str(error.value)
    assert "\n" not in str(error.value)


def test_option_that_spark_refuses_is_named(spark: SparkFileClient) -> None:
    with pytest.raises(TaskError, match="Spark could not write orc") as error:
        spark.write_file(TABLE, "orc", {"compression": "zipped"})
    assert "zipped" in str(error.value).lower()
    assert not [name for name in os.listdir(spark._directory) if name.startswith("write-")]
