"""A checkpoint from trigger to end: which tasks it expects, what completes it, what aborts it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, job_master, task_executor
from tailrace.schemas.types import CheckpointFailureReason, ExecutionState, JobStatus, SnapshotType
from tailrace.services.core.role import IllegalEvent
from tailrace.services.job_master.instructions import DiscardCheckpoint, WriteMetadata

from ...graphs import edge, job_graph, source, vertex
from .checkpointed import GRAPH, ON_REQUEST, PERIODIC, Checkpointed, running
from .driver import JOB, bodies, submissions

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED


# How it begins.


def test_checkpoint_is_due_interval_after_all_tasks_run_and_after_last_one() -> None:
    job = Checkpointed(GRAPH, PERIODIC)
    job.assemble()
    first, *others = job.executions()
    for other in others:
        job.report(other, RUNNING)
    job.send()
    assert job.tick(60) == []
    job.report(first, RUNNING)
    job.send()
    assert job.role.deadline(job.state) == job.now + 10_000_000
    assert job.tick(9.9) == []
    (began,) = bodies(job.tick(0.1), job_master.CheckpointTriggered)
    assert began.checkpoint_id == 1
    job.acknowledged_by_all()
    job.written()
    assert bodies(job.tick(9.9), job_master.CheckpointTriggered) == []
    (began,) = bodies(job.tick(0.1), job_master.CheckpointTriggered)
    assert began.checkpoint_id == 2


def test_without_interval_only_requested_checkpoints_are_triggered() -> None:
    job = running(ON_REQUEST)
    assert job.tick(3600) == []
    job.ask()
    (began,) = bodies(job.send(), job_master.CheckpointTriggered)
    assert began.options.full


def test_cluster_without_checkpoint_directory_takes_none_and_says_so() -> None:
    job = running({"execution.checkpointing.interval": "10 s"})
    assert job.tick(3600) == []
    job.ask()
    (refusal,) = bodies(job.send(), client.CheckpointFailed)
    assert "state.checkpoints.dir" in refusal.reason


def test_checkpoint_expects_all_running_tasks_and_triggers_sources() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    events = job.tick(10)
    (began,) = bodies(events, job_master.CheckpointTriggered)
    assert set(began.to_acknowledge) == set(job.state.current_attempts.values())
    sources = {job.execution("source", index).execution_attempt_id for index in range(2)}
    assert set(began.to_trigger) == sources
    reports = bodies(events, task_executor.TriggerCheckpoint)
    assert {id_ for one in reports for id_ in one.execution_attempt_ids} == sources
    assert len(reports) == len({job.execution("source", index).resource_id for index in range(2)})
    assert {event.timestamp for event in reports} == {job.pending.triggered}
    assert began.options.directory == "file:///c/j/chk-1"
    assert began.options.shared == "file:///c/j/shared"
    assert not began.options.full


def test_task_with_finished_inputs_is_triggered() -> None:
    graph = job_graph(
        source(parallelism=2),
        vertex("middle", parallelism=2),
        vertex("sink", parallelism=2),
        edge("source", "middle"),
        edge("middle", "sink"),
    )
    job = running(graph=graph)
    job.report(job.execution("source", 0), FINISHED)
    job.send()
    job.report(job.execution("source", 1), FINISHED)
    job.send()
    (began,) = bodies(job.tick(10), job_master.CheckpointTriggered)
    assert set(began.to_trigger) == {
        job.execution("middle", index).execution_attempt_id for index in range(2)
    }
    assert len(began.finished) == 2
    assert len(began.to_acknowledge) == 4
    assert set(job.pending.finished) == {("source", 0), ("source", 1)}


def test_concurrent_checkpoints_and_pause_are_limited() -> None:
    job = running(
        {
            **PERIODIC,
            "execution.checkpointing.max-concurrent-checkpoints": "2",
            "execution.checkpointing.min-pause": "15 s",
        }
    )
    job.tick(10)
    job.tick(10)
    assert sorted(job.checkpoints.pending) == [1, 2]
    assert bodies(job.tick(60), job_master.CheckpointTriggered) == []
    for execution in job.executions():
        job.acknowledge(execution, 1)
    job.written()
    assert bodies(job.tick(14.9), job_master.CheckpointTriggered) == []
    assert len(bodies(job.tick(0.1), job_master.CheckpointTriggered)) == 1


def test_pending_older_checkpoint_is_aborted_when_newer_one_completes() -> None:
    job = running({**PERIODIC, "execution.checkpointing.max-concurrent-checkpoints": "3"})
    for _ in range(3):
        job.tick(10)
    for number in (1, 2):
        for execution in job.executions()[number == 1 :]:
            job.acknowledge(execution, number)
    events = job.written()
    (aborted,) = bodies(events, job_master.CheckpointAborted)
    assert (aborted.checkpoint_id, aborted.failure) == (1, CheckpointFailureReason.CHECKPOINT_SUBSUMED)
    assert list(job.checkpoints.pending) == [3]
    assert job.state.status is JobStatus.RUNNING


def test_checkpoint_is_not_triggered_while_task_restarts() -> None:
    job = running()
    job.checkpoint()
    job.report(job.execution("sink"), FAILED, "broken")
    assert bodies(job.tick(60), job_master.CheckpointTriggered) == []
    job.runs()
    assert len(bodies(job.send(), job_master.CheckpointTriggered)) == 1, "it was due long ago"


def test_checkpoint_decided_before_task_failure_is_aborted_at_once() -> None:
    job = running()
    job.now += 10_000_000
    owed = job.owed()
    job.report(job.execution("sink"), FAILED, "broken")
    events = job.send(owed)
    (aborted,) = bodies(events, job_master.CheckpointAborted)
    assert aborted.failure is CheckpointFailureReason.TASKS_NOT_RUNNING
    assert not bodies(events, task_executor.TriggerCheckpoint)
    job.tick(2)
    job.runs()
    assert job.tick(10)
    assert job.pending.checkpoint_id == 2, "no id is given twice"


# How it is completed.


def test_last_acknowledgement_writes_metadata_and_that_completes_checkpoint() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    job.tick(10)
    *first, last = job.executions()
    for execution in first:
        job.acknowledge(execution)
    assert job.demands(WriteMetadata) == []
    assert list(job.pending.awaited) == [last.execution_attempt_id]
    job.acknowledge(last)
    assert job.send() == []
    parts = job.demanded(WriteMetadata).pending.subtasks()
    assert [(part.vertex_id, part.subtask_index, part.state.changelog_offset) for part in parts] == [
        ("sink", 0, 0),
        ("sink", 1, 1),
        ("source", 0, 0),
        ("source", 1, 1),
    ]
    confirmed = bodies(job.written(), task_executor.ConfirmCheckpoint)
    reports = [id_ for one in confirmed for id_ in one.execution_attempt_ids]
    assert sorted(reports) == sorted(job.state.current_attempts.values())
    assert {event.restore for event in confirmed} == {job.checkpoints.latest}
    assert [checkpoint.size for checkpoint in job.checkpoints.completed] == [28]
    assert not job.role.instructions(job.state)


def test_late_foreign_and_duplicate_acknowledgements_change_nothing() -> None:
    job = running()
    job.tick(10)
    execution = job.execution("sink")
    job.acknowledge(execution)
    changes: tuple[Callable[[], object], ...] = (
        lambda: job.acknowledge(execution, size=99),
        lambda: job.acknowledge(job.execution("source"), number=2),
        lambda: job.acknowledge(job.execution("source"), number=0),
        lambda: job.acknowledge(replace(job.execution("source"), resource_id="te-9")),
    )
    for change in changes:
        before = job.state
        change()
        assert job.state is before
    before = job.state
    stranger = job.executions()[0].__class__("x", "sink", 0, 9, RUNNING, 0, resource_id="te-1")
    job.acknowledge(stranger)
    assert job.state is before
    job.acknowledged_by_all()
    job.written()
    before = job.state
    job.acknowledge(execution, 1)
    assert job.state is before


def test_any_order_of_acknowledgements_gives_same_checkpoint() -> None:
    results = []
    for seed in range(5):
        job = running()
        job.tick(10)
        order = job.executions()
        random.Random(seed).shuffle(order)
        for execution in order:
            job.acknowledge(execution)
        results.append(job.demanded(WriteMetadata).pending.subtasks())
    assert all(snapshots == results[0] for snapshots in results)


def test_task_that_finishes_before_acknowledgement_counts_as_finished() -> None:
    job = running()
    job.tick(10)
    job.report(job.execution("source"), FINISHED)
    job.acknowledged_by_all()
    parts = job.demanded(WriteMetadata).pending.subtasks()
    assert {(part.vertex_id, part.subtask_index) for part in parts if part.finished} == {("source", 0)}
    assert len(parts) == 4


def test_task_that_finishes_after_acknowledgement_keeps_acknowledged_state() -> None:
    job = running()
    job.tick(10)
    job.acknowledge(job.execution("source"))
    job.report(job.execution("source"), FINISHED)
    job.acknowledged_by_all()
    assert not any(subtask.finished for subtask in job.demanded(WriteMetadata).pending.subtasks())
    confirmed = bodies(job.written(), task_executor.ConfirmCheckpoint)
    assert sum(len(event.execution_attempt_ids) for event in confirmed) == 3, "who has ended is not told"


def test_checkpoint_completes_once_although_reported_twice() -> None:
    job = running()
    checkpoint = job.checkpoint()
    before = job.state
    job.receive(JOB, job_master.CheckpointCompleted(job_id="j", checkpoint=checkpoint))
    assert job.state is before


def test_duplicate_trigger_is_illegal() -> None:
    job = running()
    (began,) = bodies(job.tick(10), job_master.CheckpointTriggered)
    with pytest.raises(IllegalEvent, match="not the next after 1"):
        job.receive(JOB, began)


# What ends it before that.


def gives_up(job: Checkpointed) -> job_master.CheckpointAborted:
    events = job.send()
    (aborted,) = bodies(events, job_master.CheckpointAborted)
    assert not job.checkpoints.pending
    assert bodies(events, task_executor.AbortCheckpoint)
    discard = job.demanded(DiscardCheckpoint)
    assert (discard.directory, discard.completed) == ("file:///c/j/chk-1", False)
    job.discarded()
    assert not job.role.instructions(job.state)
    return aborted


def test_decline_aborts_checkpoint_with_its_reason() -> None:
    job = running()
    job.tick(10)
    job.decline(job.execution("sink"))
    aborted = gives_up(job)
    assert aborted.failure is CheckpointFailureReason.CHECKPOINT_DECLINED
    assert aborted.reason == "sink (1) on te-1 declined: no space left"


def test_timeout_aborts_checkpoint_and_names_late_tasks() -> None:
    slow = {"execution.checkpointing.timeout": "30 s", "execution.checkpointing.min-pause": "1 s"}
    job = running({**PERIODIC, **slow})
    job.tick(10)
    job.acknowledge(job.execution("source"))
    assert job.role.deadline(job.state) == job.now + 30_000_000
    assert job.tick(29.9) == []
    job.now += 100_000
    aborted = gives_up(job)
    assert aborted.failure is CheckpointFailureReason.CHECKPOINT_EXPIRED
    assert "not acknowledged within 30 s by source (2) on te-1, sink (1) on te-1" in aborted.reason


def test_checkpoint_acknowledged_by_all_does_not_expire() -> None:
    job = running({**PERIODIC, "execution.checkpointing.timeout": "30 s"})
    job.tick(10)
    job.acknowledged_by_all()
    assert bodies(job.tick(3600), job_master.CheckpointAborted) == []


@pytest.mark.parametrize("how", ["fails", "is lost", "starts again", "is missing"])
def test_loss_of_expected_task_aborts_checkpoint(how: str) -> None:
    job = running(resource_ids=("te-1", "te-2"))
    job.tick(10)
    execution = job.execution("sink")
    match how:
        case "fails":
            job.report(execution, FAILED, "broken")
        case "is lost":
            job.lose(execution.resource_id or "")
        case "starts again":
            job.report(execution, ExecutionState.INITIALIZING)
        case _:
            body = job_master.TasksContradicted(
                resource_id=execution.resource_id or "",
                execution_attempt_ids=(execution.execution_attempt_id,),
                reason="it is not there",
            )
            job.receive(JOB, body)
    assert gives_up(job).failure is CheckpointFailureReason.TASK_FAILURE


def test_loss_of_acknowledged_task_does_not_abort_checkpoint() -> None:
    job = running()
    job.tick(10)
    job.acknowledge(job.execution("sink"))
    job.report(job.execution("sink"), FAILED, "broken")
    assert bodies(job.send(), job_master.CheckpointAborted) == []
    job.acknowledged_by_all()
    job.written()
    assert [checkpoint.checkpoint_id for checkpoint in job.checkpoints.completed] == [1]


def test_later_execution_is_notified_of_abort() -> None:
    job = running({**PERIODIC, "restart-strategy.type": "fixed-delay"})
    job.tick(10)
    job.report(job.execution("sink"), FAILED, "broken")
    (again,) = submissions([*job.send(), *job.tick(60)])
    assert (again.checkpoints_over, again.restore) == (1, None)


def test_failed_write_of_metadata_aborts_checkpoint() -> None:
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    events = job.not_written()
    assert bodies(events, task_executor.AbortCheckpoint)
    assert job.checkpoints.completed == ()
    assert job.checkpoints.last_failure == "checkpoint 1: FINALIZE_CHECKPOINT_FAILURE: disk full"


def test_end_of_job_aborts_checkpoint() -> None:
    job = running()
    job.tick(10)
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    (aborted,) = bodies(job.send(), job_master.CheckpointAborted)
    assert aborted.failure is CheckpointFailureReason.JOB_ENDED


def test_more_consecutive_failures_than_tolerable_fail_job() -> None:
    job = running({**PERIODIC, "execution.checkpointing.tolerable-failed-checkpoints": "1"})
    for _ in range(2):
        job.tick(10)
        job.decline(job.execution("sink"))
        job.send()
        assert job.state.status is JobStatus.RUNNING
        job.checkpoint()
        job.tick(10)
        job.decline(job.execution("sink"))
        job.send()
        job.checkpoint()
    for status in (JobStatus.RUNNING, JobStatus.FAILING):
        job.tick(10)
        job.decline(job.execution("sink"))
        job.send()
        assert job.state.status is status
    assert "2 checkpoints failed one after another, 1 are tolerable" in (job.state.reason or "")


def test_failures_of_tasks_and_savepoints_do_not_count_as_checkpoint_failures() -> None:
    job = running({**PERIODIC, "execution.checkpointing.tolerable-failed-checkpoints": "0"})
    job.tick(10)
    job.report(job.execution("sink"), ExecutionState.INITIALIZING)
    job.send()
    job.report(job.execution("sink"), RUNNING)
    job.ask(SnapshotType.SAVEPOINT)
    job.send()
    job.decline(job.execution("sink"))
    job.send()
    assert job.state.status is JobStatus.RUNNING


def test_no_trigger_is_sent_to_lost_task_executor() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    job.now += 10_000_000
    began = [event for event in job.owed() if isinstance(event.body, job_master.CheckpointTriggered)]
    job.receive(JOB, began[0].body)
    job.lose("te-1")
    assert "task_executor/te-1" not in {event.recipient for event in job.send()}
