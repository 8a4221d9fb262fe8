"""The sessions equal those of a loop over the clicks of each user."""

from collections import defaultdict
from pathlib import Path

from click_sessions import GAPS_MS, Click
from make_clicks import click

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 1_000


def expected() -> list[tuple[str, int, int, int]]:
    """Returns user, first and last click, and number of clicks of each session."""
    by_user: dict[str, list[Click]] = defaultdict(list)
    for each in (Click(*click(number)) for number in range(COUNT)):
        by_user[each.user].append(each)
    found = []
    for user, clicks in by_user.items():
        clicks.sort(key=lambda of: of.at)
        session = [clicks[0]]
        for each in clicks[1:]:
            if each.at > session[-1].at + GAPS_MS[each.device]:
                found.append((user, session[0].at, session[-1].at, len(session)))
                session = []
            session.append(each)
        found.append((user, session[0].at, session[-1].at, len(session)))
    return sorted(found)


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with a plain loop."""
    del folder
    cluster.topic("clicks", partitions)
    sessions = cluster.topic("sessions")
    cluster.run(HERE / "make_clicks.py", ["--count", str(COUNT)])
    cluster.run(HERE / "click_sessions.py", ["--bounded"])
    found = sorted((s["user"], s["begin"], s["end"], s["clicks"]) for s in sessions.records())
    assert found == expected()
    assert len(found) > 100


def test_sessions_equal_those_of_a_loop(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_sessions_are_the_same_with_crashes_and_partitions(tmp_path: Path) -> None:
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, tmp_path, partitions=2)
