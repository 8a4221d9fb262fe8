"""The scores equal those of the formula, one record at a time."""

import json
import math
from pathlib import Path

import pytest
from make_features import payment
from ml_inference import FEATURES, MODEL

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 800


def expected() -> dict[int, float]:
    """Returns the probability of each payment that is likely a fraud."""
    model = json.loads(MODEL.read_text())
    found = {}
    for each in map(payment, range(COUNT)):
        x = sum(weight * each[name] for weight, name in zip(model["weights"], FEATURES, strict=True))
        probability = 1 / (1 + math.exp(-(x + model["bias"])))
        if probability >= 0.5:
            found[int(each["number"])] = probability
    return found


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with the formula."""
    del folder
    cluster.topic("scored-payments", partitions)
    scores = cluster.topic("scores")
    cluster.run(HERE / "make_features.py", ["--count", str(COUNT)])
    cluster.run(HERE / "ml_inference.py", ["--bounded"])
    found = [(score["number"], score["probability"]) for score in scores.records()]
    assert len(found) == len(dict(found)) > 20
    assert dict(found) == pytest.approx(expected())


def test_scores_equal_those_of_the_formula(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_scores_are_the_same_with_crashes_and_partitions(tmp_path: Path) -> None:
    for seed in range(3):
        with MiniCluster(seed=seed, crashes=3, parallelism=2) as cluster:
            check_results(cluster, tmp_path, partitions=2)
