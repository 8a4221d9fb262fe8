"""The alerts equal those of a plain loop over the payments."""

from pathlib import Path

from fraud_detection import LARGE, MINUTE_MS, SMALL
from make_payments import payment

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 400


def expected() -> list[tuple[str, float, int]]:
    tried: dict[str, int] = {}
    found = []
    for card, amount, at in map(payment, range(COUNT)):
        if amount > LARGE and card in tried and at - tried[card] <= MINUTE_MS:
            found.append((card, amount, at))
        if amount < SMALL:
            tried[card] = at
        else:
            tried.pop(card, None)
    return found


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with a plain loop."""
    del folder
    cluster.topic("payments", partitions)
    alerts = cluster.topic("alerts")
    cluster.run(HERE / "make_payments.py", ["--count", str(COUNT)])
    cluster.run(HERE / "fraud_detection.py", ["--bounded"])
    found = [(each["card"], each["amount"], each["at"]) for each in alerts.records()]
    assert sorted(found) == sorted(expected()) != []


def test_alerts_equal_those_of_a_loop(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_alerts_are_the_same_with_crashes_and_partitions(tmp_path: Path) -> None:
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, tmp_path, partitions=3)
