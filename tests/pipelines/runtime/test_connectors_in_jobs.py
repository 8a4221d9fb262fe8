"""Whole programs from files to files: at any parallelism and with any crashes, each record is in one file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from connectors import web_server_log
from custom_connectors import FilePerTransaction, Lists
from pipelines.checkpoint_storage import storage

from tailrace import FileSink, SparkSink, SparkSource, StreamExecutionEnvironment, WatermarkStrategy
from tailrace.pipelines.runtime.operators.files import file_reader
from tailrace.pipelines.testing.memory import cluster as memory_cluster
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.schemas.types import JobGraph

seeds = pytest.mark.parametrize("seed", range(6))


@dataclass(frozen=True)
class Hit:
    client: str
    at: int
    status: int


@dataclass(frozen=True)
class Numbered:
    index: int


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "SPLIT_BYTES", 2_000)


def parse(lines: pa.RecordBatch) -> pa.Table:
    parts = pc.extract_regex(lines["value"], r'^(?P<client>\S+) - - \[(?P<at>\d+)\] "[^"]*" (?P<status>\d+)')
    return pa.table(
        {
            "client": pc.struct_field(parts, "client"),
            "at": pc.struct_field(parts, "at").cast(pa.int64()),
            "status": pc.struct_field(parts, "status").cast(pa.int64()),
        }
    )


def hit_of(line: str) -> dict[str, Any]:
    client, _, _, at, *_ = line.split()
    return {"client": client, "at": int(at[1:-1]), "status": int(line.split('" ')[1].split()[0])}


def counted(records: Iterator[Any] | list[Any]) -> Counter[str]:
    return Counter(json.dumps(record, sort_keys=True) for record in records)


def records_of(directory: Path) -> list[Any]:
    results: list[Any] = []
    for file in directory.iterdir():
        assert not file.name.startswith(".")
        if file.suffix == ".parquet":
            results += pq.read_table(file).to_pylist()
        else:
            results += map(json.loads, file.read_text().splitlines())
    return results


@seeds
def test_lines_are_parsed_into_columns_and_written_to_files(tmp_path: Path, seed: int) -> None:
    lines = list(web_server_log(300, seed))
    source = tmp_path / "logs"
    source.mkdir()
    for i in range(3):
        (source / f"access.{i}.log").write_text("\n".join(lines[i::3]))
    env = StreamExecutionEnvironment()
    env.set_parallelism(1 + seed % 3)
    env.read_text_file(str(source)).map_batches(parse, output_type=Hit).sink_to(
        FileSink(str(tmp_path / "out"), format="parquet" if seed % 2 else "json", roll_records=20)
    )
    memory_cluster.run(env.get_job_graph(), seed=seed, crashes=8)
    assert counted(records_of(tmp_path / "out")) == counted(map(hit_of, lines))


@seeds
def test_records_are_shuffled_between_files(tmp_path: Path, seed: int) -> None:
    rows = [{"client": f"c{i % 5}", "at": i * 100, "status": 200 + i % 3} for i in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "hits.parquet", row_group_size=30)
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    (
        env.read_parquet(str(tmp_path / "*.parquet"), output_type=Hit)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_bounded_out_of_orderness(seconds=10).with_timestamp_assigner("at")
        )
        .rebalance()
        .filter(lambda hit: hit.status != 201)
        .sink_to(FileSink(str(tmp_path / "out"), format="json"))
    )
    memory_cluster.run(env.get_job_graph(), seed=seed, crashes=5)
    assert counted(records_of(tmp_path / "out")) == counted([row for row in rows if row["status"] != 201])


def numbered(index: int) -> dict[str, int]:
    return {"index": index}


@seeds
def test_generated_records_at_rate_are_written_once(tmp_path: Path, seed: int) -> None:
    env = StreamExecutionEnvironment()
    env.set_parallelism(3)
    env.generate(numbered, count=100, rate_per_second=500).sink_to(
        FileSink(str(tmp_path / "out"), format="json")
    )
    memory_cluster.run(env.get_job_graph(), seed=seed, crashes=5)
    assert counted(records_of(tmp_path / "out")) == counted(list(map(numbered, range(100))))


@seeds
def test_files_have_each_record_once_after_rollback(tmp_path: Path, seed: int) -> None:
    """Attempts of the older generation continue until they detect the rollback."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    env.generate(numbered, count=600).rebalance().map(lambda record: record).sink_to(
        FileSink(str(tmp_path), format="json", roll_records=1 + seed)
    )
    with storage(seed) as directory:
        plan = Plan(rate=0.3, savepoints=0.0)
        job = memory_cluster.MemoryCluster(env.get_job_graph(), {}, seed, directory=directory, plan=plan)
        job.run(crashes=5, rollbacks=5)
    assert job.generation > 0
    assert counted(records_of(tmp_path)) == counted(list(map(numbered, range(600))))


@seeds
def test_rows_are_in_their_buckets_once_with_markers(tmp_path: Path, seed: int) -> None:
    rollbacks = seed % 2 * 4
    rows = [{"client": f"c{i % 3}", "at": i * 180_000, "status": 200 + i % 3} for i in range(240)]
    for i in range(3):
        lines = [f"{row['client']},{row['at']},{row['status']}\n" for row in rows[i::3]]
        (tmp_path / f"{i}.csv").write_text(f"client,at,status\n{''.join(lines)}")
    out = tmp_path / "out"
    env = StreamExecutionEnvironment()
    env.set_parallelism(1 + seed % 3)
    (
        env.read_csv(str(tmp_path / "*.csv"), output_type=Hit)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_bounded_out_of_orderness(seconds=3_600).with_timestamp_assigner("at")
        )
        .rebalance()
        .map(lambda hit: hit, output_type=Hit)
        .sink_to(
            FileSink(
                str(out), "orc", roll_records=10, bucket=["client", "hour=%H"], max_open_files=4,
                success_files=True,
            )
        )
    )  # fmt: skip
    with storage(seed) as directory:
        plan = Plan(rate=0.3, savepoints=0.0)
        job = memory_cluster.MemoryCluster(env.get_job_graph(), {}, seed, directory=directory, plan=plan)
        job.run(crashes=5, rollbacks=rollbacks)
    found = {file: orc.read_table(file).to_pylist() for file in out.rglob("*.orc")}
    for file, records in found.items():
        hour, client = file.parent.name, file.parent.parent.name
        for record in records:
            assert hour == f"hour={record['at'] // 3_600_000:02}"
            record["client"] = client.removeprefix("client=")
    assert counted([record for records in found.values() for record in records]) == counted(rows)
    markers = {marker.parent for marker in out.rglob("_SUCCESS")}
    if not rollbacks:
        assert markers == {out, *(file.parent for file in found)}
    assert [path for path in out.glob(".*") if path.is_dir()] == []


@seeds
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_rows_that_spark_reads_and_writes_are_there_once(tmp_path: Path, seed: int, form: str) -> None:
    rows = [{"client": f"c{i % 5}", "at": i * 100, "status": 200 + i % 50} for i in range(150)]
    for i in range(2):
        if form == "json":
            (tmp_path / f"{i}.json").write_text("\n".join(map(json.dumps, rows[i::2])))
        else:
            pq.write_table(pa.Table.from_pylist(rows[i::2]), tmp_path / f"{i}.parquet")
    env = StreamExecutionEnvironment()
    env.set_parallelism(1 + seed % 3)
    (
        env.from_source(SparkSource(form, str(tmp_path / f"*.{form}"), output_type=Hit))  # type: ignore[arg-type]
        .where("status = 207")
        .with_column("seconds", "at / 1000")
        .where("seconds < 12")
        .select("client, at")
        .sink_to(SparkSink(form, str(tmp_path / "out"), roll_records=2))  # type: ignore[arg-type]
    )
    job = memory_cluster.MemoryCluster(env.get_job_graph(), {}, seed)
    job.run(crashes=8)
    expected = [row for row in rows if row["status"] == 207 and row["at"] < 12_000]
    assert counted(records_of(tmp_path / "out")) == counted(
        [{"client": row["client"], "at": row["at"]} for row in expected]
    )
    assert job.spark.dropped


@seeds
def test_rows_that_spark_reads_are_there_once_at_another_parallelism(tmp_path: Path, seed: int) -> None:
    (tmp_path / "rows.json").write_text("\n".join(json.dumps({"index": i}) for i in range(300)))

    def program(parallelism: int) -> JobGraph:
        env = StreamExecutionEnvironment()
        source = SparkSource("json", str(tmp_path / "rows.json"), output_type=Numbered)
        rows = env.from_source(source).uid("rows").set_parallelism(parallelism)
        rows.where("index % 3 = 0").uid("where").set_parallelism(parallelism).print().uid("print")
        return env.get_job_graph()

    with storage(seed) as directory:
        plan = Plan(rate=0.5, savepoints=1.0)
        first = memory_cluster.MemoryCluster(program(1 + seed % 3), {}, seed, directory=directory, plan=plan)
        first.run(crashes=3)
        assert first.taken
        for taken in first.taken[:3]:
            then = memory_cluster.MemoryCluster(
                program(3 - seed % 3), {}, seed + 1, job_id="then", restored=taken
            )
            then.run(crashes=3)
            assert Counter(row["record"]["index"] for row in then.given) == Counter(range(0, 300, 3))


def test_foreach_gets_every_record(tmp_path: Path) -> None:
    path = tmp_path / "seen"

    def note(value: int) -> None:
        with path.open("a") as out:
            out.write(f"{value}\n")

    env = StreamExecutionEnvironment()
    env.from_collection([1, 2, 3]).foreach(note)
    memory_cluster.run(env.get_job_graph())
    assert path.read_text() == "1\n2\n3\n"


@seeds
def test_records_of_custom_source_reach_custom_sink_once(tmp_path: Path, seed: int) -> None:
    lists = [[f"{number}.{i}" for i in range(20 * number)] for number in range(5)]
    env = StreamExecutionEnvironment()
    env.set_parallelism(1 + seed % 3)
    sink = FilePerTransaction(tmp_path, roll_records=7)
    env.from_source(Lists(*lists)).rebalance().map(lambda record: record).sink_to(sink)
    memory_cluster.run(env.get_job_graph(), seed=seed, crashes=8)
    assert Counter(sink.records()) == Counter(record for records in lists for record in records)
