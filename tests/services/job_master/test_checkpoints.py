"""A checkpoint from its beginning to its end: who is awaited, what completes it, what ends it before that."""

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
from .driver import JOB, bodies

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED


# How it begins.


def test_a_checkpoint_is_due_an_interval_after_all_tasks_have_begun_to_run_and_after_the_last() -> None:
    job = Checkpointed(GRAPH, PERIODIC)
    job.assemble()
    first, *others = job.executions()
    for each in others:
        job.report(each, RUNNING)
    job.say()
    assert job.tick(60) == []
    job.report(first, RUNNING)
    job.say()
    assert job.role.deadline(job.state) == job.now + 10_000_000
    assert job.tick(9.9) == []
    (began,) = bodies(job.tick(0.1), job_master.CheckpointTriggered)
    assert began.checkpoint_id == 1
    job.acknowledged_by_all()
    job.written()
    assert bodies(job.tick(9.9), job_master.CheckpointTriggered) == []
    (began,) = bodies(job.tick(0.1), job_master.CheckpointTriggered)
    assert began.checkpoint_id == 2


def test_without_an_interval_nothing_begins_that_is_not_asked_for() -> None:
    job = running(ON_REQUEST)
    assert job.tick(3600) == []
    job.ask()
    (began,) = bodies(job.say(), job_master.CheckpointTriggered)
    assert began.options.full


def test_a_cluster_that_names_no_directory_takes_no_checkpoints_and_says_so() -> None:
    job = running({"execution.checkpointing.interval": "10 s"})
    assert job.tick(3600) == []
    job.ask()
    (refusal,) = bodies(job.say(), client.CheckpointFailed)
    assert "state.checkpoints.dir" in refusal.reason


def test_it_awaits_all_that_run_and_tells_those_that_nobody_sends_to() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    said = job.tick(10)
    (began,) = bodies(said, job_master.CheckpointTriggered)
    assert set(began.to_acknowledge) == set(job.state.current.values())
    sources = {job.execution("source", index).execution_attempt_id for index in range(2)}
    assert set(began.to_trigger) == sources
    told = bodies(said, task_executor.TriggerCheckpoint)
    assert {each for one in told for each in one.execution_attempt_ids} == sources
    assert len(told) == len({job.execution("source", index).resource_id for index in range(2)})
    assert {each.timestamp for each in told} == {job.pending.triggered}
    assert began.options.directory == "file:///c/j/chk-1"
    assert began.options.shared == "file:///c/j/shared"
    assert not began.options.full


def test_a_task_whose_senders_have_all_ended_is_told_to_begin() -> None:
    graph = job_graph(
        source(parallelism=2),
        vertex("middle", parallelism=2),
        vertex("sink", parallelism=2),
        edge("source", "middle"),
        edge("middle", "sink"),
    )
    job = running(graph=graph)
    job.report(job.execution("source", 0), FINISHED)
    job.say()
    job.report(job.execution("source", 1), FINISHED)
    job.say()
    (began,) = bodies(job.tick(10), job_master.CheckpointTriggered)
    assert set(began.to_trigger) == {job.execution("middle", each).execution_attempt_id for each in range(2)}
    assert len(began.finished) == 2
    assert len(began.to_acknowledge) == 4
    assert set(job.pending.finished) == {("source", 0), ("source", 1)}


def test_no_more_are_under_way_than_may_be_and_a_pause_lies_between_them() -> None:
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
    for each in job.executions():
        job.acknowledge(each, 1)
    job.written()
    assert bodies(job.tick(14.9), job_master.CheckpointTriggered) == []
    assert len(bodies(job.tick(0.1), job_master.CheckpointTriggered)) == 1


def test_an_older_one_that_is_awaited_still_is_given_up_when_a_newer_one_is_complete() -> None:
    job = running({**PERIODIC, "execution.checkpointing.max-concurrent-checkpoints": "3"})
    for _ in range(3):
        job.tick(10)
    for number in (1, 2):
        for each in job.executions()[number == 1 :]:
            job.acknowledge(each, number)
    said = job.written()
    (aborted,) = bodies(said, job_master.CheckpointAborted)
    assert (aborted.checkpoint_id, aborted.failure) == (1, CheckpointFailureReason.CHECKPOINT_SUBSUMED)
    assert list(job.checkpoints.pending) == [3]
    assert job.checkpoints.failures == 0


def test_it_does_not_begin_while_a_task_starts_again() -> None:
    job = running()
    job.checkpoint()
    job.report(job.execution("sink"), FAILED, "broken")
    assert bodies(job.tick(60), job_master.CheckpointTriggered) == []
    job.runs()
    assert len(bodies(job.say(), job_master.CheckpointTriggered)) == 1, "it was due long ago"


def test_one_that_was_decided_before_a_task_failed_is_given_up_at_once() -> None:
    job = running()
    job.now += 10_000_000
    owed = job.owed()
    job.report(job.execution("sink"), FAILED, "broken")
    said = job.say(owed)
    (aborted,) = bodies(said, job_master.CheckpointAborted)
    assert aborted.failure is CheckpointFailureReason.TASKS_NOT_RUNNING
    assert not bodies(said, task_executor.TriggerCheckpoint)
    job.tick(2)
    job.runs()
    assert job.tick(10)
    assert job.pending.checkpoint_id == 2, "no id is given twice"


# How it is completed.


def test_the_last_acknowledgement_has_the_metadata_written_and_that_completes_it() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    job.tick(10)
    *first, last = job.executions()
    for each in first:
        job.acknowledge(each)
    assert job.demands(WriteMetadata) == []
    assert list(job.pending.awaited) == [last.execution_attempt_id]
    job.acknowledge(last)
    assert job.say() == []
    parts = job.demanded(WriteMetadata).pending.subtasks()
    assert [(each.vertex_id, each.subtask_index, each.state.changelog_offset) for each in parts] == [
        ("sink", 0, 0),
        ("sink", 1, 1),
        ("source", 0, 0),
        ("source", 1, 1),
    ]
    confirmed = bodies(job.written(), task_executor.ConfirmCheckpoint)
    told = [each for one in confirmed for each in one.execution_attempt_ids]
    assert sorted(told) == sorted(job.state.current.values())
    assert {each.restore for each in confirmed} == {job.checkpoints.latest}
    assert [each.size for each in job.checkpoints.completed] == [28]
    assert not job.role.instructions(job.state)


def test_late_foreign_and_repeated_acknowledgements_change_nothing() -> None:
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


def test_any_order_of_acknowledgements_gives_the_same_checkpoint() -> None:
    found = []
    for seed in range(5):
        job = running()
        job.tick(10)
        order = job.executions()
        random.Random(seed).shuffle(order)
        for each in order:
            job.acknowledge(each)
        found.append(job.demanded(WriteMetadata).pending.subtasks())
    assert all(each == found[0] for each in found)


def test_a_task_that_finishes_before_it_has_acknowledged_counts_as_finished() -> None:
    job = running()
    job.tick(10)
    job.report(job.execution("source"), FINISHED)
    job.acknowledged_by_all()
    parts = job.demanded(WriteMetadata).pending.subtasks()
    assert {(each.vertex_id, each.subtask_index) for each in parts if each.finished} == {("source", 0)}
    assert len(parts) == 4


def test_a_task_that_finishes_afterwards_has_the_state_that_it_acknowledged() -> None:
    job = running()
    job.tick(10)
    job.acknowledge(job.execution("source"))
    job.report(job.execution("source"), FINISHED)
    job.acknowledged_by_all()
    assert not any(each.finished for each in job.demanded(WriteMetadata).pending.subtasks())
    confirmed = bodies(job.written(), task_executor.ConfirmCheckpoint)
    assert sum(len(each.execution_attempt_ids) for each in confirmed) == 3, "who has ended is not told"


def test_what_is_complete_twice_is_complete_once() -> None:
    job = running()
    checkpoint = job.checkpoint()
    before = job.state
    job.tell(JOB, job_master.CheckpointCompleted(job_id="j", checkpoint=checkpoint))
    assert job.state is before


def test_a_checkpoint_that_has_begun_before_is_illegal() -> None:
    job = running()
    (began,) = bodies(job.tick(10), job_master.CheckpointTriggered)
    with pytest.raises(IllegalEvent, match="not the next after 1"):
        job.tell(JOB, began)


# What ends it before that.


def gives_up(job: Checkpointed) -> job_master.CheckpointAborted:
    said = job.say()
    (aborted,) = bodies(said, job_master.CheckpointAborted)
    assert not job.checkpoints.pending
    assert bodies(said, task_executor.AbortCheckpoint)
    discard = job.demanded(DiscardCheckpoint)
    assert (discard.directory, discard.completed) == ("file:///c/j/chk-1", False)
    job.discarded()
    assert not job.role.instructions(job.state)
    return aborted


def test_a_task_that_declines_ends_it_with_its_reason() -> None:
    job = running()
    job.tick(10)
    job.decline(job.execution("sink"))
    aborted = gives_up(job)
    assert aborted.failure is CheckpointFailureReason.CHECKPOINT_DECLINED
    assert aborted.reason == "sink (1) on te-1 declined: no space left"


def test_time_ends_it_and_says_who_is_late() -> None:
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


def test_one_that_all_have_acknowledged_is_not_ended_by_time() -> None:
    job = running({**PERIODIC, "execution.checkpointing.timeout": "30 s"})
    job.tick(10)
    job.acknowledged_by_all()
    assert bodies(job.tick(3600), job_master.CheckpointAborted) == []


@pytest.mark.parametrize("how", ["fails", "is lost", "starts again", "is missing"])
def test_the_loss_of_one_that_is_awaited_ends_it(how: str) -> None:
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
            job.tell(JOB, body)
    assert gives_up(job).failure is CheckpointFailureReason.TASK_FAILURE


def test_the_loss_of_one_that_has_acknowledged_does_not() -> None:
    job = running()
    job.tick(10)
    job.acknowledge(job.execution("sink"))
    job.report(job.execution("sink"), FAILED, "broken")
    assert bodies(job.say(), job_master.CheckpointAborted) == []
    job.acknowledged_by_all()
    job.written()
    assert [each.checkpoint_id for each in job.checkpoints.completed] == [1]


def test_an_execution_that_begins_afterwards_is_told_that_it_is_over() -> None:
    job = running({**PERIODIC, "restart-strategy.type": "fixed-delay"})
    job.tick(10)
    job.report(job.execution("sink"), FAILED, "broken")
    (again,) = bodies([*job.say(), *job.tick(60)], task_executor.SubmitTask)
    assert (again.checkpoints_over, again.restore) == (1, None)


def test_metadata_that_can_not_be_written_ends_it() -> None:
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    said = job.not_written()
    assert bodies(said, task_executor.AbortCheckpoint)
    assert job.checkpoints.completed == ()
    assert job.checkpoints.last_failure == "checkpoint 1: FINALIZE_CHECKPOINT_FAILURE: disk full"


def test_the_end_of_the_job_ends_it() -> None:
    job = running()
    job.tick(10)
    job.tell("dispatcher", job_master.CancelJob(job_id="j"))
    (aborted,) = bodies(job.say(), job_master.CheckpointAborted)
    assert aborted.failure is CheckpointFailureReason.JOB_ENDED


def test_more_failures_than_are_tolerable_one_after_another_fail_the_job() -> None:
    job = running({**PERIODIC, "execution.checkpointing.tolerable-failed-checkpoints": "1"})
    for _ in range(2):
        job.tick(10)
        job.decline(job.execution("sink"))
        job.say()
        assert job.state.status is JobStatus.RUNNING
        job.checkpoint()
        job.tick(10)
        job.decline(job.execution("sink"))
        job.say()
        job.checkpoint()
    for status in (JobStatus.RUNNING, JobStatus.FAILING):
        job.tick(10)
        job.decline(job.execution("sink"))
        job.say()
        assert job.state.status is status
    assert "2 checkpoints failed one after another, 1 are tolerable" in (job.state.reason or "")


def test_failures_of_tasks_and_savepoints_are_not_counted_as_failures_of_checkpoints() -> None:
    job = running({**PERIODIC, "execution.checkpointing.tolerable-failed-checkpoints": "0"})
    job.tick(10)
    job.report(job.execution("sink"), ExecutionState.INITIALIZING)
    job.say()
    job.report(job.execution("sink"), RUNNING)
    job.ask(SnapshotType.SAVEPOINT)
    job.say()
    job.decline(job.execution("sink"))
    job.say()
    assert job.state.status is JobStatus.RUNNING
    assert job.checkpoints.failures == 0


def test_who_is_told_to_begin_on_a_task_executor_that_is_lost_is_not_told() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    job.now += 10_000_000
    began = [each for each in job.owed() if isinstance(each.body, job_master.CheckpointTriggered)]
    job.tell(JOB, began[0].body)
    job.lose("te-1")
    assert "task_executor/te-1" not in {each.recipient for each in job.say()}
