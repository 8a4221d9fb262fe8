"""Files that Spark reads and writes, in a MiniCluster: each format gives back what was written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace import SparkSink, SparkSource, StreamExecutionEnvironment
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
