"""A client's totals of a running job: the latest values of heartbeats and ended attempts."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.task_executor import SubmitTask
from tailrace.schemas.types import (
    AccumulatorReport,
    AccumulatorSnapshot,
    ExecutionState,
    TaskDeploymentDescriptor,
)
from tailrace.services.client import AccumulatorTotals

from ..simulated_cluster.cluster import header


def receive(counts: AccumulatorTotals, body: Body) -> None:
    counts.on_event([Record(0, header("a", "b"), body)])


def submitted(index: int, number: int, job_id: str = "j") -> SubmitTask:
    return SubmitTask(
        job_id=job_id,
        vertex_id="v",
        deployment_id="d",
        subtasks=(
            TaskDeploymentDescriptor(
                subtask_index=index,
                attempt_number=number,
                execution_attempt_id=f"{index}/{number}",
                allocation_id="a",
            ),
        ),
    )


def ended(index: int, number: int, values: dict[str, float]) -> UpdateTaskExecutionState:
    return UpdateTaskExecutionState(
        job_id="j",
        execution_attempt_id=f"{index}/{number}",
        execution_state=ExecutionState.FAILED,
        accumulators=values,
    )


def report(index: int, number: int, values: dict[str, float]) -> AccumulatorReport:
    snapshot = AccumulatorSnapshot(
        job_id="j", execution_attempt_id=f"{index}/{number}", user_accumulators=values
    )
    return AccumulatorReport(accumulator_snapshots=(snapshot,))


@given(st.randoms(use_true_random=False))
def test_late_heartbeats_change_nothing(draw: random.Random) -> None:
    """Two subtasks go through attempts; heartbeats come in order for each attempt, at any time after they were sent."""
    counts, truth = AccumulatorTotals("j"), Counter[int]()
    late: list[AccumulatorReport] = []
    for number in range(3):
        for index in range(2):
            receive(counts, submitted(index, number))
            for _ in range(draw.randint(0, 3)):
                truth[index] += 1
                late.append(report(index, number, {"n": float(truth[index])}))
            truth[index] += 1
            receive(counts, ended(index, number, {"n": float(truth[index])}))
            while late and draw.random() < 0.5:
                counts.on_report(late.pop(0))
    for accumulator_report in late:
        counts.on_report(accumulator_report)
    assert counts.total() == {"n": truth.total()}


def test_value_of_previous_attempt_counts_until_new_one_reports() -> None:
    counts = AccumulatorTotals("j")
    receive(counts, submitted(0, 0))
    counts.on_report(report(0, 0, {"n": 2.0}))
    assert counts.total() == {"n": 2.0}
    receive(counts, submitted(0, 1))
    counts.on_report(report(0, 1, {}))
    assert counts.total() == {"n": 2.0}
    counts.on_report(report(0, 1, {"n": 3.0, "m": 1.0}))
    counts.on_report(report(0, 0, {"n": 2.5}))
    assert counts.total() == {"m": 1.0, "n": 3.0}


def test_values_of_other_jobs_and_unknown_attempts_are_ignored() -> None:
    counts = AccumulatorTotals("j")
    receive(counts, submitted(0, 0, "k"))
    counts.on_report(report(0, 0, {"n": 2.0}))
    counts.on_report(report(7, 7, {"n": 2.0}))
    assert counts.total() == {}
