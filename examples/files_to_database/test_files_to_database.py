"""The table has the totals of a loop over the sales, whatever fails in between."""

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from make_sales import sale, write_sales

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with a plain loop."""
    del partitions
    write_sales(folder / "sales")
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute(
            "CREATE TABLE totals (shop TEXT, day TEXT, sales INT, revenue REAL, PRIMARY KEY (shop, day))"
        )
        arguments = ["--sales", str(folder / "sales"), "--database", f"sqlite:///{folder / 'shop.db'}"]
        cluster.run(HERE / "files_to_database.py", arguments)
        found = database.execute("SELECT shop, day, sales, revenue FROM totals").fetchall()
    totals: dict[tuple[str, str], list[float]] = defaultdict(list)
    for shop, day, _, pieces, price in map(sale, range(1_000)):
        if pieces > 0:
            totals[shop, day].append(pieces * price)
    assert sorted(found) == sorted((*key, len(each), sum(each)) for key, each in totals.items())


def test_table_has_totals_of_a_loop(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_table_has_the_same_totals_with_crashes(tmp_path: Path) -> None:
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, tmp_path / str(seed))
