"""Each message counts once: in a total, or as a dead letter with its reason."""

from collections import Counter
from pathlib import Path

from dead_letters import parse
from make_orders import message

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 500


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with a plain loop."""
    del folder
    cluster.topic("raw-orders", partitions)
    totals, dead = cluster.topic("order-totals"), cluster.topic("dead-orders")
    cluster.run(HERE / "make_orders.py", ["--count", str(COUNT)])
    cluster.run(HERE / "dead_letters.py", ["--bounded"])
    expected: Counter[str] = Counter()
    broken: Counter[tuple[bytes, str]] = Counter()
    for value in map(message, range(COUNT)):
        try:
            order = parse(value)
            expected[order.user] += order.amount
        except ValueError as error:
            broken[value, str(error)] += 1
    assert {user: total["amount"] for user, total in totals.by_key().items()} == dict(expected)
    found: Counter[tuple[bytes | None, str]] = Counter()
    for letter in dead.messages():
        headers = dict(letter.headers)
        found[letter.value, (headers["error"] or b"").decode()] += 1
        assert (headers["place"] or b"").startswith(b"raw-orders-")
    assert found == broken
    assert len(broken) > 4


def test_each_message_counts_once(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_each_message_counts_once_with_crashes(tmp_path: Path) -> None:
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, tmp_path, partitions=2)
