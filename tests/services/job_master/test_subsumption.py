"""What is kept of completed checkpoints: while the job runs, and when it has ended."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.job_master.instructions import DiscardCheckpoint, RemoveCheckpoints

from .checkpointed import PERIODIC, Checkpointed, running
from .driver import JOB, bodies

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED
RETENTION = "execution.checkpointing.externalized-checkpoint-retention"


@pytest.mark.parametrize("retained", [1, 3])
def test_the_newest_are_kept_and_older_ones_are_discarded(retained: int) -> None:
    job = running({**PERIODIC, "state.checkpoints.num-retained": str(retained)})
    gone = []
    for _ in range(retained + 3):
        job.tick(10)
        job.acknowledged_by_all()
        job.written()
        for each in job.demands(DiscardCheckpoint):
            gone.append(each.checkpoint_id)
            assert each.completed
            assert each.kept == tuple(sorted(one.uri for one in job.checkpoints.completed))
        job.discarded()
    assert gone == [1, 2, 3]
    assert [each.checkpoint_id for each in job.checkpoints.completed] == list(range(4, retained + 4))
    assert job.checkpoints.latest is not None
    assert job.checkpoints.latest.checkpoint_id == retained + 3


def test_none_is_discarded_while_a_task_may_be_beginning_with_it() -> None:
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


def test_none_is_discarded_before_all_who_may_start_again_have_been_told_of_a_newer_one() -> None:
    job = running()
    job.checkpoint()
    job.tick(10)
    job.acknowledged_by_all()
    job.write()
    assert job.demands(DiscardCheckpoint) == []
    job.say()
    assert job.demands(DiscardCheckpoint)


def test_who_took_the_place_of_one_that_had_acknowledged_begins_with_it_too() -> None:
    job = running()
    job.checkpoint()
    job.tick(10)
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken")
    (submitted,) = bodies(job.tick(2), task_executor.SubmitTask)
    job.runs()
    assert submitted.restore is not None
    assert submitted.restore.checkpoint_id == 1
    confirmed = bodies(job.written(), task_executor.ConfirmCheckpoint)
    assert submitted.execution_attempt_id in {each for one in confirmed for each in one.execution_attempt_ids}
    assert job.demanded(DiscardCheckpoint).checkpoint_id == 1


def ended(job: Checkpointed, status: JobStatus) -> None:
    """Its tasks have ended, and it is over."""
    match status:
        case JobStatus.FINISHED:
            for each in job.executions():
                job.report(each, FINISHED)
        case JobStatus.CANCELED:
            job.tell("dispatcher", job_master.CancelJob(job_id="j"))
        case _:
            job.report(job.execution("sink"), FAILED, "broken")
    job.say()
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
def test_what_an_ended_job_was_told_to_keep_is_kept_and_all_else_is_removed(
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
    job.tell(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert not job.role.is_quiescent(job.state), "its files are there still"
    job.tell(JOB, job_master.CheckpointsRemoved(job_id="j"))
    assert job.role.is_quiescent(job.state)
    assert job.state.terminated is not None
    assert job.state.terminated.checkpoints == kept


def test_a_job_that_never_took_one_has_nothing_to_remove() -> None:
    job = running()
    ended(job, JobStatus.CANCELED)
    assert job.demands(RemoveCheckpoints) == []
    job.tell(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert job.role.is_quiescent(job.state)


def test_what_is_under_way_is_settled_before_all_is_removed() -> None:
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


def test_a_job_that_is_suspended_keeps_all() -> None:
    job = running()
    checkpoint = job.checkpoint()
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.say()
    job.ends()
    assert job.state.status is JobStatus.SUSPENDED
    assert not job.role.instructions(job.state)
    assert job.checkpoints.completed == (checkpoint,)
    job.tell("dispatcher", job_master.CancelJob(job_id="j"))
    job.say()
    assert job.demands(RemoveCheckpoints)
