"""What a job starts from: nothing, a savepoint or its last checkpoint; and how it rolls back to a checkpoint."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, job_master, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus, RestoredCheckpoint, SnapshotType
from tailrace.services.job_master.checkpoints.state import restored_state
from tailrace.services.job_master.instructions import CreateChannels, FindCheckpoint, WriteMetadata

from .checkpointed import GRAPH, PERIODIC, Checkpointed, running
from .driver import JOB, bodies, submissions

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED
SAVEPOINT = RestoredCheckpoint(checkpoint_id=7, uri="file:///s/savepoint-old", generation=-1)


def loses_progress(job: Checkpointed, vertex_id: str = "sink") -> None:
    job.report(job.execution(vertex_id), FAILED, "the changelog is gone", progress_lost=True)


# Continuation.


def test_restarted_task_restores_last_complete_checkpoint_in_same_generation() -> None:
    job = running()
    job.report(job.execution("sink"), FAILED, "broken")
    (first,) = submissions(job.tick(2))
    assert (first.generation, first.restore, first.finished) == (0, None, False)
    job.runs()
    job.send()
    for _ in range(2):
        checkpoint = job.checkpoint()
    job.report(job.execution("sink"), FAILED, "broken")
    (second,) = submissions(job.tick(2))
    assert (second.generation, second.restore) == (0, restored_state(checkpoint))
    assert job.state.status is JobStatus.RUNNING


def test_task_submitted_during_completion_of_checkpoint_is_notified() -> None:
    job = running()
    first = job.checkpoint()
    job.tick(10)
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken")
    job.send()
    job.now += 2_000_000
    on_its_way = job.owed()
    assert [submission.restore for submission in submissions(on_its_way)] == [restored_state(first)]
    job.write()
    events = job.send(on_its_way)
    (confirmed,) = [
        body
        for body in bodies(events, task_executor.ConfirmCheckpoint)
        if job.execution("sink").execution_attempt_id in body.execution_attempt_ids
    ]
    assert confirmed.restore == job.checkpoints.latest
    assert not job.checkpoints.discarding, "it may be reading the older one"
    assert job.checkpoints.subsumed
    job.report(job.execution("sink"), RUNNING)
    assert list(job.checkpoints.discarding) == [1]


# Rollback.


def test_job_with_lost_progress_rolls_back_all_its_tasks() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    job.checkpoint()
    checkpoint = job.checkpoint()
    slots = set(job.state.slots.slots)
    loses_progress(job)
    events = job.send()
    assert [body.status for body in bodies(events, client.JobStatusChanged)] == [JobStatus.RESTARTING]
    assert len(bodies(events, task_executor.CancelTask)) == 3
    assert job.demands(FindCheckpoint) == [], "three still run"
    assert job.ends() == []
    instruction = job.demanded(FindCheckpoint)
    assert instruction.candidates == (restored_state(checkpoint),)
    assert job.tick(3600) == [], "nothing is submitted before it is found"
    events = job.restored(restored_state(checkpoint))
    tasks = submissions(events)
    assert len(tasks) == 4
    assert {(task.generation, task.restore, task.attempt_number) for task in tasks} == {
        (1, restored_state(checkpoint), 1)
    }
    assert {task.deployment_size for task in tasks} == {1}, "one of each vertex on each TaskExecutor"
    assert set(job.state.slots.slots) == slots, "slots are kept"
    job.runs()
    job.send()
    assert job.state.status is JobStatus.RUNNING
    assert job.state.failures.counted == 1
    assert job.checkpoint().generation == 1


def test_tasks_of_vertex_are_deployed_together_after_rollback() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.send()
    job.ends()
    tasks = submissions(job.restored(restored_state(checkpoint))) or submissions(job.tick(2))
    assert {task.deployment_size for task in tasks} == {2}
    assert len({task.deployment_id for task in tasks}) == 2


def test_restart_strategy_decides_time_of_rollback_or_failure_of_job() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.send()
    job.ends()
    assert submissions(job.restored(restored_state(checkpoint))) == []
    assert job.role.deadline(job.state) == job.now + 2_000_000
    assert len(submissions(job.tick(2))) == 4
    job = running({**PERIODIC, "restart-strategy.type": "none"})
    job.checkpoint()
    loses_progress(job)
    job.send()
    assert job.state.status is JobStatus.FAILING


def test_job_without_checkpoint_fails_with_lost_data() -> None:
    job = running()
    loses_progress(job)
    job.send()
    assert job.state.status is JobStatus.FAILING
    assert "sink (1) on te-1: the changelog is gone; the job can't go on" in (job.state.reason or "")


def test_rollback_waits_for_checkpoint_whose_metadata_is_being_written() -> None:
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    loses_progress(job)
    job.send()
    job.ends()
    assert job.state.status is JobStatus.RESTARTING
    assert job.demands(FindCheckpoint) == []
    assert job.demands(WriteMetadata)
    job.written()
    assert [candidate.checkpoint_id for candidate in job.demanded(FindCheckpoint).candidates] == [1]
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    loses_progress(job)
    job.not_written()
    assert job.state.status is JobStatus.FAILING


def test_rollback_aborts_pending_checkpoint() -> None:
    job = running()
    job.checkpoint()
    job.tick(10)
    loses_progress(job)
    assert len(bodies(job.send(), job_master.CheckpointAborted)) == 1
    assert not job.checkpoints.pending


def test_rollback_uses_older_checkpoint_and_discards_corrupt_newer_ones() -> None:
    job = running({**PERIODIC, "state.checkpoints.num-retained": "3"})
    one, two, three = (job.checkpoint() for _ in range(3))
    loses_progress(job)
    job.send()
    job.ends()
    assert job.demanded(FindCheckpoint).candidates == tuple(
        restored_state(checkpoint) for checkpoint in (three, two, one)
    )
    job.restored(restored_state(one), {three.uri: "torn", two.uri: "no _metadata"})
    assert job.checkpoints.completed == (one,)
    assert job.checkpoints.latest == restored_state(one)
    assert dict(job.checkpoints.passed_over) == {three.uri: "torn", two.uri: "no _metadata"}
    job.tick(2)
    job.runs()
    assert sorted(job.checkpoints.discarding) == [2, 3]


def test_job_without_readable_checkpoint_fails_with_both_reasons() -> None:
    job = running()
    job.checkpoint()
    loses_progress(job)
    job.send()
    job.ends()
    job.answer_search(job_master.RestoreFailed(job_id="j", reason="chk-1 is torn"))
    job.send()
    assert job.state.status is JobStatus.FAILED
    assert "the changelog is gone; chk-1 is torn" in (job.state.reason or "")


def test_finished_task_runs_again_unless_finished_in_checkpoint() -> None:
    job = running()
    job.report(job.execution("source", 0), FINISHED, accumulators={"n": 3.0})
    checkpoint = job.checkpoint()
    job.report(job.execution("source", 1), FINISHED, accumulators={"n": 5.0})
    loses_progress(job)
    job.send()
    job.ends()
    events = job.restored(restored_state(checkpoint), finished={"source": (0,)})
    tasks = {
        (task.vertex_id, task.subtask_index): task
        for task in [*submissions(events), *submissions(job.tick(2))]
    }
    assert {key: task.finished for key, task in tasks.items()} == {
        ("source", 0): True,
        ("source", 1): False,
        ("sink", 0): False,
        ("sink", 1): False,
    }
    assert {key: dict(item) for key, item in job.state.accumulators.items()} == {("source", 0): {"n": 3.0}}
    job.runs()
    job.report(job.execution("source", 0), FINISHED)
    assert job.state.counts.finished == 1


def test_finished_task_without_slot_gets_another_slot() -> None:
    job = running()
    checkpoint = job.checkpoint()
    for vertex_id in ("source", "sink"):
        job.report(job.execution(vertex_id, 1), FINISHED)
    job.tick(60)
    assert len(job.state.slots.slots) == 1
    loses_progress(job)
    job.send()
    job.ends()
    job.restored(restored_state(job.checkpoints.completed[-1] if job.checkpoints.completed else checkpoint))
    job.tick(2)
    job.give("te-2")
    job.tick(2)
    job.runs()
    assert len([execution for execution in job.executions() if execution.state is RUNNING]) == 4


@pytest.mark.parametrize("how", ["task executor", "slot", "failure"])
def test_loss_during_rollback_is_no_further_failure(how: str) -> None:
    job = running(resource_ids=("te-1", "te-2"))
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.send()
    other = next(execution for execution in job.executions() if execution.state is ExecutionState.CANCELING)
    match how:
        case "task executor":
            job.lose(other.resource_id or "")
        case "slot":
            body = job_master.FailSlot(allocation_id=other.allocation_id or "", reason="broken")
            job.receive(f"task_executor/{other.resource_id}", body)
        case _:
            job.report(other, FAILED, "broken, too")
    job.send()
    job.ends()
    assert job.state.failures.counted == 1
    job.give("te-3")
    job.restored(restored_state(checkpoint))
    job.tick(2)
    job.give("te-3")
    job.runs()
    job.send()
    assert job.state.status is JobStatus.RUNNING
    assert job.state.generation == 1


def test_rollback_cancels_task_in_deployment_and_waits_for_it() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    checkpoint = job.checkpoint()
    job.report(job.execution("source"), FAILED, "broken")
    job.send()
    job.now += 2_000_000
    on_its_way = job.owed()
    assert submissions(on_its_way)
    loses_progress(job)
    events = job.send(on_its_way)
    assert len(bodies(events, task_executor.CancelTask)) == 3
    job.ends()
    assert job.demands(FindCheckpoint)
    job.restored(restored_state(checkpoint))
    assert len(submissions(job.tick(2))) == 4


def test_rollback_survives_suspension() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.send()
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.ends()
    assert job.state.status is JobStatus.SUSPENDED
    assert job.demands(FindCheckpoint) == []
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    job.receive(JOB, job_master.ChannelsCreated(job_id="j"))
    job.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.send()
    assert submissions(job.give("te-2")) == []
    events = job.restored(restored_state(checkpoint))
    tasks = submissions(events) or submissions(job.tick(5))
    assert {task.generation for task in tasks} == {1}
    assert len(tasks) == 4


def test_pending_savepoint_is_no_restore_candidate() -> None:
    job = running()
    job.ask(SnapshotType.SAVEPOINT)
    job.send()
    job.acknowledged_by_all()
    loses_progress(job)
    job.send()
    assert job.state.status is JobStatus.FAILING


def test_restore_may_fail_during_suspension() -> None:
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    loses_progress(job)
    job.send()
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.not_written()
    job.ends()
    assert job.state.status is JobStatus.SUSPENDED
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    assert job.state.status is JobStatus.FAILED
    assert "the changelog is gone" in (job.state.reason or "")


def test_resumed_job_continues_in_its_generation_from_last_checkpoint() -> None:
    job = running()
    checkpoint = job.checkpoint()
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.ends()
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    tasks = submissions(job.assemble(("te-2",)))
    assert {(task.generation, task.restore) for task in tasks} == {(0, restored_state(checkpoint))}
    assert len(tasks) == 4


def test_second_rollback_is_new_generation() -> None:
    job = running()
    for generation in (1, 2):
        checkpoint = job.checkpoint()
        loses_progress(job)
        job.send()
        job.ends()
        job.restored(restored_state(checkpoint))
        job.tick(2)
        job.runs()
        job.send()
        assert job.state.generation == generation


def test_unrequested_restore_result_changes_nothing() -> None:
    job = running()
    checkpoint = job.checkpoint()
    before = job.state
    job.restored(restored_state(checkpoint))
    job.answer_search(job_master.RestoreFailed(job_id="j", reason="torn"))
    assert job.state is before


def test_result_of_other_search_changes_nothing() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.send()
    job.ends()
    instruction = job.demanded(FindCheckpoint)
    before = job.state
    stale = job_master.RestoreFailed(job_id="j", reason="it could not be reached")
    event = job_master.CheckpointRestored(job_id="j", checkpoint=restored_state(checkpoint))
    for cause in (None, 0, instruction.cause - 1):
        job.receive(JOB, stale, cause=cause)
        job.receive(JOB, event, cause=cause)
    assert job.state is before
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    before = job.state
    job.receive(JOB, stale, cause=instruction.cause)
    assert job.state is before, "it was suspended meanwhile, and looks anew"
    assert job.demanded(FindCheckpoint).key != instruction.key
    job.restored(restored_state(checkpoint))
    assert job.state.generation == 1


def test_channels_are_demanded_in_each_generation() -> None:
    job = Checkpointed(GRAPH, PERIODIC)
    first = job.demanded(CreateChannels)
    job.assemble()
    job.runs()
    job.send()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.send()
    job.ends()
    event = job_master.CheckpointRestored(job_id="j", checkpoint=restored_state(checkpoint))
    job.answer_search(event)
    again = job.demanded(CreateChannels)
    assert (first.generation, again.generation) == (0, 1)
    assert replace(again, cause=first.cause).key != first.key


# A savepoint to begin with.


def test_job_with_savepoint_submits_no_task_before_savepoint_is_found() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.send()
    (candidate,) = job.demanded(FindCheckpoint).candidates
    assert (candidate.uri, candidate.generation, candidate.checkpoint_id) == (SAVEPOINT.uri, -1, 0)
    assert submissions(job.assemble()) == []
    tasks = submissions(job.restored(SAVEPOINT, finished={"source": (1,)}))
    assert len(tasks) == 4
    assert {(task.generation, task.restore) for task in tasks} == {(0, SAVEPOINT)}
    assert [(task.vertex_id, task.subtask_index) for task in tasks if task.finished] == [("source", 1)]


def test_savepoint_may_be_found_before_slots_are_available() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.send()
    assert submissions(job.restored(SAVEPOINT)) == []
    assert len(submissions(job.assemble())) == 4


def test_first_checkpoint_uses_no_files_of_savepoint() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.send()
    job.restored(SAVEPOINT)
    job.assemble()
    job.runs()
    job.send()
    job.tick(10)
    assert (job.pending.checkpoint_id, job.pending.options.full) == (1, True)
    job.acknowledged_by_all()
    job.written()
    job.tick(10)
    assert not job.pending.options.full
    assert job.checkpoints.candidates()[-1] == SAVEPOINT, "the last to go back to"


def test_incompatible_savepoint_fails_job() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.send()
    job.answer_search(job_master.RestoreFailed(job_id="j", reason="it has state of operator x"))
    job.send()
    assert (job.state.status, job.state.reason) == (JobStatus.FAILED, "it has state of operator x")


def test_job_can_be_cancelled_during_search_for_savepoint() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.send()
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    job.send()
    assert job.state.status is JobStatus.CANCELED
    assert job.demands(FindCheckpoint) == []
    before = job.state
    job.restored(replace(SAVEPOINT, checkpoint_id=7))
    assert job.state == before
