"""What is shown at an offset is a function of the log up to there: however it was come to, and how often was looked."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tailrace.services.cli.top.job_lines import natural
from tailrace.services.cli.top.view_builder import ViewBuilder
from tailrace.services.history.checkpoint_history import CheckpointsSummary, CheckpointStatus, CheckpointsView
from tailrace.services.history.cluster_view import jobs, workers
from tailrace.services.history.projection import HistoryProjection
from tailrace.services.simulation.what_if.outcome_metrics import OutcomeMetrics

from ...snapshots.simulated_logs import HISTORIES, history
from .recorded_views import SEEDS, create_view_builder, read_views


@pytest.mark.parametrize("name", SEEDS)
def test_who_looks_behind_every_event_sees_what_who_looks_once_sees(name: int) -> None:
    last = history(name)[-1].offset
    for offset in range(0, last + 1, 23):
        assert read_views(name)[offset] == create_view_builder(name, offset).view()


@pytest.mark.parametrize("name", HISTORIES)
def test_a_view_says_of_jobs_and_slots_what_other_commands_say(name: str | int) -> None:
    fold = HistoryProjection()
    for record in history(name):
        fold.apply(record)
    view = create_view_builder(name).view()
    there = sorted(view.taskexecutors, key=lambda each: each.resource_id)
    assert {each.job.job_id: each.job for each in view.jobs} == {each.job_id: each for each in jobs(fold)}
    assert [(each.resource_id, each.slots, each.slots - each.used - each.pending) for each in there] == [
        (each.resource_id, each.slots, each.free_slots) for each in workers(fold.replica)
    ]


@pytest.mark.parametrize("name", HISTORIES)
def test_restarts_are_counted_as_what_if_counts_them(name: str | int) -> None:
    fold = HistoryProjection()
    measure = OutcomeMetrics(fold.replica, 0)
    for record in history(name):
        fold.apply(record)
        measure.on_event(record, fold.changed)
    measured = {each.job_id: each.restarts for each in measure.outcome(0).jobs}
    shown = {each.job.job_id: each.restarts for each in create_view_builder(name).view().jobs}
    assert shown == {job_id: count for job_id, count in measured.items() if job_id in shown}


def summary(view: CheckpointsView) -> CheckpointsSummary:
    """By a look at all of them."""
    complete = [each for each in view.checkpoints if each.status is CheckpointStatus.COMPLETED]
    return CheckpointsSummary(
        completed=view.completed,
        failed=view.failed,
        in_progress=sum(each.status is CheckpointStatus.IN_PROGRESS for each in view.checkpoints),
        last=replace(complete[-1], subtasks=()) if complete else None,
        restored=view.restored,
    )


@pytest.mark.parametrize("name", HISTORIES)
def test_checkpoints_in_short_are_those_at_length(name: str | int) -> None:
    fold = HistoryProjection()
    for record in history(name):
        fold.apply(record)
        if record.offset % 10 == 0 or record is history(name)[-1]:
            for job in jobs(fold):
                assert fold.checkpoints.summary(job.job_id) == summary(fold.checkpoints.for_job(job.job_id))


@pytest.mark.parametrize("name", SEEDS)
def test_a_watch_that_has_forgotten_the_story_goes_on_with_the_same_states(name: int) -> None:
    for at in range(0, history(name)[-1].offset, 61):
        first = create_view_builder(name, at)
        second = first.copy()
        assert second.view() == first.view()
        for record in history(name):
            if record.offset > at:
                second.apply(record)
        assert first.view() == read_views(name)[at]
        expected, found = create_view_builder(name).view(), second.view()
        assert msgspec.structs.replace(found, log=()) == msgspec.structs.replace(expected, log=())
        assert [each.offset for each in found.log] == [each.offset for each in expected.log]


def test_the_tail_of_the_log_is_told_in_words_and_failures_stand_out() -> None:
    view = create_view_builder("a_task_fails").view()
    began = [each for each in view.log if each.mark == "!!"]
    assert [(each.offset, each.who, each.text) for each in began] == [
        (39, "te-1 -> JobMaster j1", "Source: Socket Stream (1/1) FAILED: ZeroDivisionError at job.py:3")
    ]
    assert {each.root or each.cause for each in view.log if each.mark == "!"} == {39}


def test_the_job_that_is_looked_at_has_its_tasks() -> None:
    watch = create_view_builder("a_task_fails", 38)
    assert watch.view().detail is None
    detail = watch.view("j1").detail
    assert detail is not None
    assert [(each.vertex, each.subtask, each.state) for each in detail.tasks][:2] == [
        ("Source: Socket Stream", "1/1", "RUNNING"),
        ("Flat Map", "1/2", "RUNNING"),
    ]
    assert watch.view("another").detail is None


def test_a_taskexecutor_that_is_lost_is_shown_until_it_is_back() -> None:
    views = read_views("a_task_executor_is_lost_and_lives")
    lost = [offset for offset, view in views.items() if view.lost]
    assert lost
    for offset in lost:
        there = {each.resource_id for each in views[offset].taskexecutors}
        assert there.isdisjoint(each.resource_id for each in views[offset].lost)


def test_restarts_of_tasks_are_counted() -> None:
    (line,) = create_view_builder("one_task_fails_and_is_restarted_alone").view().jobs
    assert line.restarts == 1


def test_nothing_was_said_yet() -> None:
    view = ViewBuilder("sim").view()
    assert (view.offset, view.time, view.jobs, view.log) == (-1, None, (), ())


def test_names_sort_as_people_count() -> None:
    names = ["te-10", "te-9", "te", "10", "9", "te-9b", "", "a01", "a1"]
    assert sorted(names, key=natural) == ["", "9", "10", "a01", "a1", "te", "te-9", "te-9b", "te-10"]
