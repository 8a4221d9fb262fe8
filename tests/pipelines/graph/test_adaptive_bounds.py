"""The bounds of the parallelism of a job with the adaptive scheduler, and in reactive mode."""

from __future__ import annotations

import pytest
from graphs import edge, job_graph, operator, vertex

from tailrace.pipelines.graph.adaptive_bounds import adaptive_bounds
from tailrace.pipelines.graph.operators import OperatorKind

DIRECTORY = {"state.checkpoints.dir": "file:///c"}
ADAPTIVE = {**DIRECTORY, "jobmanager.scheduler": "adaptive"}
REACTIVE = {**DIRECTORY, "scheduler-mode": "reactive"}
GRAPH = job_graph(
    vertex("socket", operator("socket-operator", OperatorKind.SOCKET_TEXT_STREAM)),
    vertex("map", parallelism=4, max_parallelism=64),
    vertex("sink", parallelism=2, max_parallelism=8),
    edge("socket", "map"),
    edge("map", "sink"),
)


def bounds(configuration: dict[str, str], *, may_take_all: bool = True) -> dict[str, tuple[int, int]]:
    found = adaptive_bounds(GRAPH, configuration, may_take_all=may_take_all)
    return {key: (each.lower_bound, each.upper_bound) for key, each in found.items()}


def test_upper_bound_is_parallelism_of_program() -> None:
    assert bounds(ADAPTIVE) == {"map": (1, 4), "sink": (1, 2)}


def test_reactive_job_is_bounded_by_maximum_parallelism() -> None:
    assert bounds(REACTIVE) == {"map": (1, 64), "sink": (1, 2)}, "the program sets that of the sink"


def test_reactive_job_that_may_not_take_all_slots_is_adaptive() -> None:
    assert bounds(REACTIVE, may_take_all=False) == bounds(ADAPTIVE)


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        DIRECTORY,
        {"jobmanager.scheduler": "adaptive"},
        {**ADAPTIVE, "execution.schedule-mode": "LAZY_FROM_SOURCES"},
        {**ADAPTIVE, "execution.runtime-mode": "BATCH", "execution.bounded": "true"},
    ],
)
def test_other_jobs_have_default_scheduler(configuration: dict[str, str]) -> None:
    assert bounds(configuration) == {}
