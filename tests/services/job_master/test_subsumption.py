"""Retention of complete checkpoints, while the job runs and after its end."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.job_master.instructions import DiscardCheckpoint, RemoveCheckpoints

from .checkpointed import PERIODIC, Checkpointed, running
from .driver import JOB, bodies, submissions

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED
RETENTION = "execution.checkpointing.externalized-checkpoint-retention"


@pytest.mark.parametrize("retained", [1, 3])
def test_newest_checkpoints_are_retained_and_older_discarded(retained: int) -> None:
    job = running({**PERIODIC, "state.checkpoints.num-retained": str(retained)})
    gone = []
    for _ in range(retained + 3):
        job.tick(10)
        job.acknowledged_by_all()
        job.written()
        for demand in job.demands(DiscardCheckpoint):
            gone.append(demand.checkpoint_id)
            assert demand.completed
            assert demand.kept == tuple(sorted(one.uri for one in job.checkpoints.completed))
        job.discarded()
    assert gone == [1, 2, 3]
    assert [checkpoint.checkpoint_id for checkpoint in job.checkpoints.completed] == list(
        range(4, retained + 4)
    )
    assert job.checkpoints.latest is not None
    assert job.checkpoints.latest.checkpoint_id == retained + 3


def test_checkpoint_is_kept_while_task_may_restore_it() -> None:
    job = running()
    job.checkpoint()
    job.tick(10)
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken")
    job.tick(2)
    job.written()
    assert job.execution("sink").state is ExecutionState.DEPLOYING
    assert job.demands(DiscardCheckpoint) == []
    job.report(job.execution("sink"), RUNNING)
    assert job.demanded(DiscardCheckpoint).checkpoint_id == 1


def test_checkpoint_is_kept_until_restarting_tasks_know_newer_one() -> None:
    job = running()
    job.checkpoint()
    job.tick(10)
    job.acknowledged_by_all()
    job.write()
    assert job.demands(DiscardCheckpoint) == []
    job.send()
    assert job.demands(DiscardCheckpoint)


def test_replacement_of_acknowledged_task_restores_same_checkpoint() -> None:
    job = running()
    job.checkpoint()
    job.tick(10)
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken")
    (submitted,) = submissions(job.tick(2))
    job.runs()
    assert submitted.restore is not None
    assert submitted.restore.checkpoint_id == 1
    confirmed = bodies(job.written(), task_executor.ConfirmCheckpoint)
    assert submitted.execution_attempt_id in {id_ for one in confirmed for id_ in one.execution_attempt_ids}
    assert job.demanded(DiscardCheckpoint).checkpoint_id == 1


def ended(job: Checkpointed, status: JobStatus) -> None:
    """Ends all tasks and the job."""
    match status:
        case JobStatus.FINISHED:
            for execution in job.executions():
                job.report(execution, FINISHED)
        case JobStatus.CANCELED:
            job.receive("dispatcher", job_master.CancelJob(job_id="j"))
        case _:
            job.report(job.execution("sink"), FAILED, "broken")
    job.send()
    job.ends()
    assert job.state.status is status


@pytest.mark.parametrize(
    ("retention", "kept_by"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", set()),
        ("DELETE_ON_CANCELLATION", {JobStatus.FAILED}),
        ("RETAIN_ON_CANCELLATION", {JobStatus.FAILED, JobStatus.CANCELED}),
    ],
)
@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED])
def test_ended_job_retains_configured_checkpoints_and_removes_the_rest(
    retention: str, kept_by: set[JobStatus], status: JobStatus
) -> None:
    job = running({**PERIODIC, "restart-strategy.type": "none", RETENTION: retention})
    job.checkpoint()
    last = job.checkpoint()
    ended(job, status)
    instruction = job.demanded(RemoveCheckpoints)
    assert instruction.directory == "file:///c/j"
    kept = (last,) if status in kept_by else ()
    assert instruction.retained == kept
    job.receive(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert not job.role.is_quiescent(job.state), "its files are there still"
    job.receive(JOB, job_master.CheckpointsRemoved(job_id="j"))
    assert job.role.is_quiescent(job.state)
    assert job.state.retained_checkpoints == kept


def test_job_without_checkpoints_has_nothing_to_remove() -> None:
    job = running()
    ended(job, JobStatus.CANCELED)
    assert job.demands(RemoveCheckpoints) == []
    job.receive(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert job.role.is_quiescent(job.state)


def test_pending_checkpoint_is_completed_or_aborted_before_removal() -> None:
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    ended(job, JobStatus.CANCELED)
    assert job.demands(RemoveCheckpoints) == []
    job.written()
    assert job.demands(RemoveCheckpoints)
    job = running()
    job.tick(10)
    ended(job, JobStatus.CANCELED)
    assert job.demands(DiscardCheckpoint)
    assert job.demands(RemoveCheckpoints) == []
    job.discarded()
    assert job.demands(RemoveCheckpoints)


def test_suspended_job_retains_all_checkpoints() -> None:
    job = running()
    checkpoint = job.checkpoint()
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.ends()
    assert job.state.status is JobStatus.SUSPENDED
    assert not job.role.instructions(job.state)
    assert job.checkpoints.completed == (checkpoint,)
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    job.send()
    assert job.demands(RemoveCheckpoints)
