"""The counts of the query equal those of a loop."""

from collections import Counter
from pathlib import Path

from make_lines import line, time_of
from sql_word_count import words

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 600
WINDOW_MS = 10_000


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with a plain loop."""
    del folder
    cluster.topic("lines", partitions)
    counts = cluster.topic("word-counts")
    cluster.run(HERE / "make_lines.py", ["--count", str(COUNT)])
    cluster.run(HERE / "sql_word_count.py", ["--bounded", "--least", "2"])
    expected = Counter(
        (word.word, time_of(number) // WINDOW_MS * WINDOW_MS)
        for number in range(COUNT)
        for word in words(line(number))
        if len(word.word) > 2
    )
    found = {(each["word"], each["begin"]): each["times"] for each in counts.records()}
    assert found == {key: times for key, times in expected.items() if times >= 2}
    assert len(found) == len(counts.records()) > 10


def test_counts_equal_those_of_a_loop(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_counts_are_the_same_with_crashes(tmp_path: Path) -> None:
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, tmp_path, partitions=2)
