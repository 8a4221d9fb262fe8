"""Each change is in one file, in the directory of its day."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from make_changes import envelope

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 700
OPERATIONS = {"c": "insert", "u": "update", "d": "delete"}


def expected() -> Counter[tuple[Any, ...]]:
    """Returns day, id, operation, city and time of each change."""
    found: Counter[tuple[Any, ...]] = Counter()
    for each in map(envelope, range(COUNT)):
        row: Any = each["after"] or each["before"]
        at = int(str(each["ts_ms"]))
        day = f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d}"
        city = None if each["op"] == "d" else row["city"]
        found[day, row["id"], OPERATIONS[str(each["op"])], city, at] += 1
    return found


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with a plain loop."""
    changes = cluster.topic("shop.public.customers", partitions)
    del changes
    cluster.run(HERE / "make_changes.py", ["--count", str(COUNT)])
    cluster.run(HERE / "cdc_to_parquet.py", ["--bounded", "--output", str(folder / "changes")])
    found: Counter[tuple[Any, ...]] = Counter()
    for file in (folder / "changes").glob("day=*/*.parquet"):
        day = file.parent.name.removeprefix("day=")
        for row in pq.ParquetFile(file).read().to_pylist():
            found[day, row["id"], row["operation"], row["city"], row["at"]] += 1
    assert found == expected()
    assert (folder / "changes" / "_SUCCESS").exists()


def test_each_change_is_in_the_directory_of_its_day(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_each_change_is_there_once_with_crashes(tmp_path: Path) -> None:
    for seed in range(3):
        (folder := tmp_path / str(seed)).mkdir()
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, folder, partitions=2)
