"""Files and tables that jobs in this process write: each format gives back what was written, by each execution."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace import DatabaseSink, FileSink, SparkSink, SparkSource, StreamExecutionEnvironment
from tailrace.testing import JobFailedError, MiniCluster


@dataclass(frozen=True)
class Sale:
    what: str
    count: int
    price: float


SALES = [Sale("tea", 2, 1.5), Sale("coffee", 1, 2.25), Sale("a, b", 0, 0.5)]


def write(cluster: MiniCluster, format: str, folder: Path, options: dict[str, object] | None = None) -> None:
    env = StreamExecutionEnvironment()
    env.from_collection(SALES).sink_to(SparkSink(format, str(folder), options))
    cluster.run(env)


def in_this_process(build: Callable[[StreamExecutionEnvironment], None]) -> None:
    env = StreamExecutionEnvironment.local()
    build(env)
    env.execute("sales")


def in_a_cluster(build: Callable[[StreamExecutionEnvironment], None]) -> None:
    env = StreamExecutionEnvironment()
    build(env)
    with MiniCluster() as cluster:
        cluster.run(env)


@pytest.mark.parametrize("run", [in_this_process, in_a_cluster])
def test_each_execution_writes_its_records(
    run: Callable[[Callable[[StreamExecutionEnvironment], None]], None], tmp_path: Path
) -> None:
    """Into the same directory and table: its files and transactions have names of their own."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE sales (what TEXT, count INTEGER, price REAL)")
        for sale in SALES:

            def build(env: StreamExecutionEnvironment, sale: Sale = sale) -> None:
                sales = env.from_collection([sale])
                sales.sink_to(FileSink(str(tmp_path / "sales"), format="json"))
                sales.sink_to(DatabaseSink(f"sqlite:///{tmp_path / 'shop.db'}", "sales"))

            run(build)
        rows = database.execute("SELECT what FROM sales").fetchall()
    files = [json.loads(path.read_text())["what"] for path in (tmp_path / "sales").glob("*.jsonl")]
    assert sorted(files) == sorted(what for (what,) in rows) == sorted(sale.what for sale in SALES)


@pytest.mark.parametrize(
    ("format", "options"), [("json", {}), ("parquet", {}), ("orc", {}), ("csv", {"header": True, "sep": ";"})]
)
def test_rows_of_file_are_those_written(format: str, options: dict[str, object], tmp_path: Path) -> None:
    with MiniCluster() as cluster:
        write(cluster, format, tmp_path, options)
    env = StreamExecutionEnvironment()
    files = str(tmp_path / f"*.{format}*")
    source = SparkSource(format, files, output_type=Sale, options=options)
    assert list(env.from_source(source).execute_and_collect()) == SALES


def test_option_that_needs_spark_is_refused(tmp_path: Path) -> None:
    with MiniCluster() as cluster, pytest.raises(JobFailedError, match="'quote' of CSV files needs Spark"):
        write(cluster, "csv", tmp_path, {"quote": "'"})
