"""A view is a function of the log up to its offset, however that was reached and however often views were read."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tailrace.services.cli.top.view_builder import ViewBuilder, natural
from tailrace.services.history.checkpoint_history import CheckpointsSummary, CheckpointStatus, CheckpointsView
from tailrace.services.history.cluster_view import jobs, workers
from tailrace.services.history.projection import HistoryProjection
from tailrace.services.simulation.what_if.outcome_metrics import OutcomeMetrics

from ...snapshots.simulated_logs import HISTORIES, history
from .recorded_views import SEEDS, create_view_builder, read_views


@pytest.mark.parametrize("name", SEEDS)
def test_view_read_once_equals_view_read_after_every_event(name: int) -> None:
    last = history(name)[-1].offset
    for offset in range(0, last + 1, 23):
        assert read_views(name)[offset] == create_view_builder(name, offset).view()


@pytest.mark.parametrize("name", HISTORIES)
def test_view_agrees_with_other_commands_about_jobs_and_slots(name: str | int) -> None:
    fold = HistoryProjection()
    for record in history(name):
        fold.apply(record)
    view = create_view_builder(name).view()
    there = sorted(view.taskexecutors, key=lambda task_executor: task_executor.resource_id)
    assert {job.job.job_id: job.job for job in view.jobs} == {job.job_id: job for job in jobs(fold)}
    assert [
        (
            task_executor.resource_id,
            task_executor.slots,
            task_executor.slots - task_executor.used - task_executor.pending,
        )
        for task_executor in there
    ] == [(worker.resource_id, worker.slots, worker.free_slots) for worker in workers(fold.replica)]


@pytest.mark.parametrize("name", HISTORIES)
def test_restarts_are_counted_as_in_what_if(name: str | int) -> None:
    fold = HistoryProjection()
    measure = OutcomeMetrics(fold.replica, 0)
    for record in history(name):
        fold.apply(record)
        measure.on_event(record, fold.changed)
    measured = {job.job_id: job.restarts for job in measure.outcome(0).jobs}
    shown = {job.job.job_id: job.restarts for job in create_view_builder(name).view().jobs}
    assert shown == {job_id: count for job_id, count in measured.items() if job_id in shown}


def summary(view: CheckpointsView) -> CheckpointsSummary:
    """Returns the summary computed from all checkpoints."""
    complete = [
        checkpoint for checkpoint in view.checkpoints if checkpoint.status is CheckpointStatus.COMPLETED
    ]
    return CheckpointsSummary(
        completed=view.completed,
        failed=view.failed,
        in_progress=sum(checkpoint.status is CheckpointStatus.IN_PROGRESS for checkpoint in view.checkpoints),
        last=replace(complete[-1], subtasks=()) if complete else None,
        restored=view.restored,
    )


@pytest.mark.parametrize("name", HISTORIES)
def test_checkpoint_summary_agrees_with_details(name: str | int) -> None:
    fold = HistoryProjection()
    for record in history(name):
        fold.apply(record)
        if record.offset % 10 == 0 or record is history(name)[-1]:
            for job in jobs(fold):
                assert fold.checkpoints.summary(job.job_id) == summary(fold.checkpoints.for_job(job.job_id))


@pytest.mark.parametrize("name", SEEDS)
def test_builder_without_history_continues_with_same_states(name: int) -> None:
    for at in range(0, history(name)[-1].offset, 61):
        first = create_view_builder(name, at)
        second = first.copy()
        assert second.view() == first.view()
        for record in history(name):
            if record.offset > at:
                second.apply(record)
        assert first.view() == read_views(name)[at]
        expected, view = create_view_builder(name).view(), second.view()
        assert msgspec.structs.replace(view, log=()) == msgspec.structs.replace(expected, log=())
        assert [line.offset for line in view.log] == [line.offset for line in expected.log]


def test_last_events_are_described_and_failures_highlighted() -> None:
    view = create_view_builder("a_task_fails").view()
    began = [line for line in view.log if line.mark == "!!"]
    assert [(line.offset, line.who, line.text) for line in began] == [
        (
            37,
            "te-1 -> JobMaster j1",
            "UpdateTaskExecutionState FAILED Source: Socket Stream (1/1): ZeroDivisionError at job.py:3",
        )
    ]
    assert {log_line.root or log_line.cause for log_line in view.log if log_line.mark == "!"} == {37}


def test_selected_job_has_its_tasks() -> None:
    watch = create_view_builder("a_task_fails", 36)
    assert watch.view().detail is None
    detail = watch.view("j1").detail
    assert detail is not None
    assert [(task.vertex, task.subtask, task.parallelism, task.state) for task in detail.tasks][:2] == [
        ("Source: Socket Stream", 1, 1, "RUNNING"),
        ("Flat Map", 1, 2, "RUNNING"),
    ]
    assert watch.view("another").detail is None


def test_lost_taskexecutor_is_shown_until_it_returns() -> None:
    views = read_views("a_task_executor_is_lost_and_lives")
    lost = [offset for offset, view in views.items() if view.lost]
    assert lost
    for offset in lost:
        there = {taskexecutor.resource_id for taskexecutor in views[offset].taskexecutors}
        assert there.isdisjoint(view.resource_id for view in views[offset].lost)


def test_task_restarts_are_counted() -> None:
    (line,) = create_view_builder("one_task_fails_and_is_restarted_alone").view().jobs
    assert line.restarts == 1


def test_empty_log_has_empty_view() -> None:
    view = ViewBuilder("sim").view()
    assert (view.offset, view.time, view.jobs, view.log) == (-1, None, (), ())


def test_names_are_sorted_naturally() -> None:
    names = ["te-10", "te-9", "te", "10", "9", "te-9b", "", "a01", "a1"]
    assert sorted(names, key=natural) == ["", "9", "10", "a01", "a1", "te", "te-9", "te-9b", "te-10"]
