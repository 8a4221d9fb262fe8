"""Each reading counts once: in the mean of its minute, or among those that came too late."""

from collections import Counter, defaultdict
from pathlib import Path

from make_readings import reading

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 1_200
MINUTE_MS = 60_000


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> int:
    """Runs the project on a cluster, and compares what comes out with the readings. Returns how many came too late."""
    del folder
    cluster.topic("readings", partitions)
    means, late = cluster.topic("means"), cluster.topic("late-readings")
    cluster.run(HERE / "make_readings.py", ["--count", str(COUNT)])
    cluster.run(HERE / "iot_late_data.py", ["--bounded"])
    too_late = Counter((each["sensor"], each["celsius"], each["at"]) for each in late.records())
    in_time = Counter(map(reading, range(COUNT)))
    assert too_late <= in_time
    in_time.subtract(too_late)
    temperatures: dict[str, list[float]] = defaultdict(list)
    for (sensor, celsius, at), times in in_time.items():
        temperatures[f"{sensor} {at // MINUTE_MS * MINUTE_MS}"] += [celsius] * times
    found = {key: (round(mean["celsius"], 6), mean["readings"]) for key, mean in means.by_key().items()}
    assert found == {
        key: (round(sum(values) / len(values), 6), len(values))
        for key, values in temperatures.items()
        if values
    }
    return too_late.total()


def test_each_reading_is_in_a_mean_or_too_late(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_each_reading_counts_once_with_crashes_and_partitions(tmp_path: Path) -> None:
    too_late = 0
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            too_late += check_results(cluster, tmp_path, partitions=2)
    assert too_late
