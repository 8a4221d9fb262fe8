"""The alerts equal those of a loop, and a rule that changes while the job runs counts from then on."""

from collections import defaultdict
from pathlib import Path

from make_measurements import RULES, measurement

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 600


def expected() -> list[tuple[str, str, int]]:
    """Returns machine, rule and time of each alert."""
    broken: dict[tuple[str, str], int] = defaultdict(int)
    found = []
    for machine, metric, value, at in map(measurement, range(COUNT)):
        for rule in RULES:
            if rule["metric"] == metric:
                place = machine, str(rule["name"])
                broken[place] = broken[place] + 1 if value > float(str(rule["most"])) else 0
                if broken[place] == rule["times"]:
                    found.append((*place, at))
    return sorted(found)


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with a plain loop."""
    del folder
    cluster.topic("measurements", partitions)
    cluster.topic("rules")
    alerts = cluster.topic("rule-alerts")
    cluster.run(HERE / "make_measurements.py", ["--count", str(COUNT)])
    cluster.run(HERE / "rule_alerts.py", ["--bounded"])
    assert sorted((a["machine"], a["rule"], a["at"]) for a in alerts.records()) == expected() != []


def test_alerts_equal_those_of_a_loop(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_alerts_are_the_same_with_crashes_and_partitions(tmp_path: Path) -> None:
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, tmp_path, partitions=2)


def test_rule_counts_from_its_change_on(tailrace_cluster: MiniCluster) -> None:
    measurements, rules = tailrace_cluster.topic("measurements"), tailrace_cluster.topic("rules")
    alerts = tailrace_cluster.topic("rule-alerts")
    tailrace_cluster.run(HERE / "rule_alerts.py")

    def measure(at: int, value: float) -> list[str]:
        # A later measurement lets event time pass.
        for metric, time in ("celsius", at), ("other", at + 1):
            measurements.write([{"machine": "m", "metric": metric, "value": value, "at": time}], key="m")
        tailrace_cluster.advance(seconds=2)
        return [alert["rule"] for alert in alerts.records()]

    def change(at: int, most: float, times: int = 1) -> None:
        rules.write([{"name": "hot", "metric": "celsius", "most": most, "times": times, "at": at}])

    assert measure(10, 200.0) == []
    change(20, 80.0)
    assert measure(30, 90.0) == ["hot"]
    tailrace_cluster.fail()
    change(40, 95.0)
    assert measure(50, 90.0) == ["hot"]
    assert measure(60, 96.0) == ["hot", "hot"]
    change(70, 0.0, times=0)
    assert measure(80, 200.0) == ["hot", "hot"]
