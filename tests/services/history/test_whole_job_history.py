"""The graph of a job has every attempt and every failure that the states ever had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from tailrace.schemas.event import Record
from tailrace.services.history import HistoryProjection, execution_history
from tailrace.services.history.execution_history import ExecutionGraphView
from tailrace.services.job_master.exception_history import TaskException
from tailrace.services.job_master.state import StartedJob

from ..snapshots.simulated_logs import LONG, WALKS, history


def fold_all(
    records: Sequence[Record],
) -> tuple[dict[str, dict[str, int]], dict[str, list[TaskException]], HistoryProjection]:
    """Returns job id -> attempt -> its number, and job id -> failures, as the states have them after each event."""
    fold = HistoryProjection()
    attempts: dict[str, dict[str, int]] = defaultdict(dict)
    failures: dict[str, list[TaskException]] = defaultdict(list)
    for record in records:
        fold.apply(record)
        for address in fold.changed:
            state = fold.replica.states.get(address)
            if isinstance(state, StartedJob):
                attempts[state.job_id].update(
                    {key: each.attempt_number for key, each in state.executions.items()}
                )
                failures[state.job_id] += [
                    each for each in state.exceptions if each not in failures[state.job_id]
                ]
    return attempts, failures, fold


def graph_of(fold: HistoryProjection, job_id: str) -> ExecutionGraphView:
    graph = fold.executions.graph(job_id)
    assert graph is not None
    return graph


@pytest.mark.parametrize("seed", [*WALKS, LONG])
def test_graph_has_every_attempt_and_failure_that_states_had(seed: int) -> None:
    attempts, failures, fold = fold_all(history(seed))
    assert attempts
    for job_id, expected in attempts.items():
        graph = graph_of(fold, job_id)
        assert {each.execution_attempt_id: each.attempt_number for each in graph.attempts} == expected
        assert list(graph.exceptions) == failures[job_id]
        subtasks = [(each.vertex_id, each.subtask_index) for each in graph.attempts if each.is_current]
        assert len(subtasks) == len(set(subtasks))
        assert all(each.times for each in graph.attempts)


def test_attempts_and_failures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_history, "_MAX_EARLIER_ATTEMPTS", 3)
    monkeypatch.setattr(execution_history, "_MAX_EXCEPTIONS", 2)
    for seed in (*WALKS, LONG):
        attempts, failures, fold = fold_all(history(seed))
        for job_id, expected in attempts.items():
            graph = graph_of(fold, job_id)
            last_two = sum(1 for each in graph.attempts if each.is_current) * 2
            assert len(graph.attempts) <= min(len(expected), last_two + 3)
            assert list(graph.exceptions) == failures[job_id][-2:]


def test_some_history_has_more_attempts_than_its_last_state() -> None:
    """Otherwise the tests above show nothing."""
    assert any(
        max(numbers.values()) > 1
        for seed in (*WALKS, LONG)
        for numbers in fold_all(history(seed))[0].values()
    )
