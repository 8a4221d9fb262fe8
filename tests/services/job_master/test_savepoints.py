"""Checkpoints and savepoints that are asked for, and jobs that end with one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.schemas import client, dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus, SnapshotType
from tailrace.services.core.role import IllegalEvent
from tailrace.services.job_master.checkpoints.state import MOST_REQUESTS
from tailrace.services.job_master.instructions import DiscardCheckpoint, FindCheckpoint, WriteMetadata

from .checkpointed import GRAPH, ON_REQUEST, PERIODIC, Checkpointed, running
from .driver import JOB, bodies

SAVEPOINT = SnapshotType.SAVEPOINT
RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED


def answers(said: Sequence[object]) -> list[object]:
    return [
        each.body  # type: ignore[attr-defined]
        for each in said
        if each.recipient == "client/me"  # type: ignore[attr-defined]
    ]


def test_who_asks_for_a_checkpoint_is_told_where_it_is() -> None:
    job = running(ON_REQUEST)
    offset = job.ask()
    job.say()
    job.acknowledged_by_all()
    said = job.written()
    (answer,) = answers(said)
    assert answer == client.CheckpointSucceeded(job_id="j", checkpoint=job.checkpoints.completed[0])
    assert [each.cause for each in said if each.recipient == "client/me"] == [offset]


def test_who_asks_before_it_begins_shares_it() -> None:
    job = running(ON_REQUEST)
    for _ in range(3):
        job.ask()
    assert len(bodies(job.say(), job_master.CheckpointTriggered)) == 1
    job.ask()
    job.say()
    job.acknowledged_by_all()
    said = job.written()
    assert len(answers(said)) == 3
    assert len(bodies(said, job_master.CheckpointTriggered)) == 1, "the fourth asked for a later one"


def test_a_savepoint_has_a_directory_of_its_own_and_all_state_in_it() -> None:
    job = running()
    job.ask(SAVEPOINT)
    (began,) = bodies(job.say(), job_master.CheckpointTriggered)
    options = began.options
    assert options.full
    assert options.directory == options.shared
    assert options.directory.startswith("file:///s/savepoint-j-")
    assert len(options.directory.rpartition("-")[2]) == 12
    job.acknowledged_by_all()
    job.written()
    job.ask(SAVEPOINT, directory="s3://elsewhere/")
    (began,) = bodies(job.say(), job_master.CheckpointTriggered)
    assert began.options.directory.startswith("s3://elsewhere/savepoint-j-")
    assert began.options.directory.rpartition("-")[2] != options.directory.rpartition("-")[2]


def test_a_savepoint_subsumes_nothing_is_never_discarded_and_nobody_goes_back_to_it() -> None:
    job = running()
    first = job.checkpoint()
    job.ask(SAVEPOINT)
    job.say()
    job.acknowledged_by_all()
    said = job.written()
    assert {each.restore for each in bodies(said, task_executor.ConfirmCheckpoint)} == {None}
    assert job.checkpoints.completed == (first,)
    assert [each.checkpoint_id for each in job.checkpoints.savepoints] == [2]
    for _ in range(3):
        job.checkpoint()
    assert [each.checkpoint_id for each in job.checkpoints.savepoints] == [2]
    assert [each.checkpoint_id for each in job.checkpoints.candidates()] == [5]


def test_a_savepoint_waits_for_what_is_under_way_and_nothing_begins_beside_it() -> None:
    job = running({**PERIODIC, "execution.checkpointing.max-concurrent-checkpoints": "3"})
    job.tick(10)
    job.ask(SAVEPOINT)
    assert bodies(job.tick(10), job_master.CheckpointTriggered) == []
    job.acknowledged_by_all()
    (began,) = bodies(job.written(), job_master.CheckpointTriggered)
    assert began.options.snapshot_type is SAVEPOINT
    job.ask()
    assert bodies(job.tick(60), job_master.CheckpointTriggered) == []
    job.acknowledged_by_all()
    (began,) = bodies(job.written(), job_master.CheckpointTriggered)
    assert began.options.snapshot_type is SnapshotType.CHECKPOINT


def test_a_savepoint_that_fails_is_deleted_and_said_to_have_failed_with_its_reason() -> None:
    job = running()
    job.ask(SAVEPOINT)
    job.say()
    directory = job.pending.options.directory
    job.decline(job.execution("sink"), "no space left")
    (answer,) = answers(job.say())
    assert isinstance(answer, client.CheckpointFailed)
    assert "no space left" in answer.reason
    assert job.demanded(DiscardCheckpoint).directory == directory


def test_a_request_waits_until_all_tasks_run_but_not_for_ever() -> None:
    job = running({**ON_REQUEST, "execution.checkpointing.timeout": "30 s"})
    job.report(job.execution("sink"), FAILED, "broken")
    job.say()
    job.ask()
    job.tick(2)
    assert not job.checkpoints.pending
    job.runs()
    assert len(bodies(job.say(), job_master.CheckpointTriggered)) == 1
    job.report(job.execution("sink"), FAILED, "broken")
    job.say()
    job.ask()
    assert answers(job.tick(29)) == []
    (answer,) = answers(job.tick(1))
    assert "TASKS_NOT_RUNNING" in answer.reason  # type: ignore[attr-defined]
    assert job.checkpoints.requests == ()


@pytest.mark.parametrize(
    "end", [job_master.CancelJob(job_id="j"), job_master.SuspendJob(job_id="j", reason="")]
)
def test_the_end_of_the_job_answers_all_who_wait(end: job_master.CancelJob | job_master.SuspendJob) -> None:
    job = running(ON_REQUEST)
    job.ask()
    job.say()
    job.ask(SAVEPOINT)
    job.tell("dispatcher", end)
    assert len(answers(job.say())) == 2
    job.ask()
    (answer,) = answers(job.say())
    assert "only a job that runs" in answer.reason  # type: ignore[attr-defined]


def test_who_asks_a_job_that_is_over_is_answered_and_it_stays_at_rest() -> None:
    job = running(ON_REQUEST)
    for each in job.executions():
        job.report(each, FINISHED)
    job.say()
    job.tell("job_master/j", job_master.ChannelsDeleted(job_id="j"))
    job.say()
    assert job.role.is_quiescent(job.state)
    rest = job.state
    job.ask()
    assert not job.role.is_quiescent(job.state)
    assert len(answers(job.say())) == 1
    assert job.state == rest


def test_who_asks_a_job_that_never_was_is_illegal() -> None:
    job = Checkpointed(GRAPH, ON_REQUEST)
    job.state = job.role.initial("job_master/j")
    with pytest.raises(IllegalEvent, match="was not started"):
        job.ask()


def test_too_many_requests_are_refused() -> None:
    job = running(ON_REQUEST)
    job.report(job.execution("sink"), FAILED, "broken")
    job.say()
    for _ in range(MOST_REQUESTS):
        job.ask()
    assert job.say() == []
    job.ask()
    (answer,) = answers(job.say())
    assert "TOO_MANY_CHECKPOINT_REQUESTS" in answer.reason  # type: ignore[attr-defined]


# Stop with a savepoint.


def stopping(*, drains: bool = False) -> Checkpointed:
    """A savepoint that the job is to end with has begun."""
    job = running()
    job.checkpoint()
    job.ask(SAVEPOINT, stops=True, drains=drains)
    job.say()
    assert (job.pending.options.stops, job.pending.options.drains) == (True, drains)
    return job


@pytest.mark.parametrize("first", ["savepoint", "tasks"])
def test_a_job_stops_when_its_savepoint_is_complete_and_its_tasks_have_finished(first: str) -> None:
    job = stopping(drains=True)
    job.acknowledged_by_all()
    if first == "savepoint":
        assert len(answers(job.written())) == 1
        assert job.tick(3600) == [], "no checkpoint begins any more"
    for each in job.executions():
        assert job.state.status is JobStatus.RUNNING
        job.report(each, FINISHED)
    if first == "tasks":
        assert job.state.status is JobStatus.RUNNING
        assert bodies(job.written(), client.CheckpointSucceeded)
    assert job.state.status is JobStatus.FINISHED


def test_a_job_whose_savepoint_fails_goes_on() -> None:
    job = stopping()
    job.decline(job.execution("sink"))
    said = job.say()
    assert len(answers(said)) == 1
    assert bodies(said, task_executor.AbortCheckpoint)
    assert job.state.status is JobStatus.RUNNING
    job.discarded()
    assert job.checkpoint().checkpoint_id == 3


def test_tasks_that_had_ended_behind_the_barrier_of_a_savepoint_that_fails_run_again_from_a_checkpoint() -> (
    None
):
    job = stopping()
    job.acknowledged_by_all()
    job.report(job.execution("source"), FINISHED)
    said = job.not_written()
    assert len(answers(said)) == 1
    assert job.state.status is JobStatus.RESTARTING
    job.ends()
    assert [each.checkpoint_id for each in job.demanded(FindCheckpoint).candidates] == [1]
    job.restored(job.checkpoints.candidates()[0])
    job.runs()
    assert job.state.status is JobStatus.RUNNING
    assert job.state.generation == 1


def the_others_end(job: Checkpointed) -> None:
    """Whoever runs has been told to stop."""
    for each in job.executions():
        if each.state is RUNNING:
            assert job.state.status is JobStatus.RUNNING
            job.report(each, FINISHED)
    assert job.state.status is JobStatus.FINISHED
    said = job.say()
    assert not bodies(said, task_executor.SubmitTask)
    assert [each.status for each in bodies(said, dispatcher.JobReachedTerminalState)] == [JobStatus.FINISHED]


LOSSES = ["fails", "executor", "missing"]


def lose(job: Checkpointed, how: str) -> None:
    """The first subtask of the sink does not come to its end by itself."""
    sink = job.execution("sink")
    match how:
        case "fails":
            job.report(sink, FAILED, "broken")
        case "executor":
            job.lose("te-1")
        case "missing":
            attempts = (sink.execution_attempt_id,)
            body = job_master.TasksContradicted(
                resource_id="te-1", execution_attempt_ids=attempts, reason="does not run"
            )
            job.tell(JOB, body)


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("written", ["before", "after"])
def test_a_job_whose_savepoint_is_complete_finishes_whoever_is_lost_behind_it(how: str, written: str) -> None:
    job = stopping()
    job.acknowledged_by_all()
    said = job.written() if written == "before" else []
    lose(job, how)
    said += job.tick(2)
    if written == "after":
        assert not bodies(said, task_executor.SubmitTask), "its outcome is not known yet"
        said += job.written()
    said += job.say()
    assert not bodies(said, task_executor.SubmitTask)
    assert len(bodies(said, client.CheckpointSucceeded)) == 1
    if how != "executor":
        the_others_end(job)
    assert job.state.status is JobStatus.FINISHED
    assert job.state.terminated is None or not job.state.slots.returning


def test_a_task_in_a_new_process_may_have_gone_on_behind_the_savepoint() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.written()
    job.report(job.execution("sink"), ExecutionState.INITIALIZING)
    job.say()
    assert job.state.status is JobStatus.CANCELLING


def test_what_a_lost_task_had_counted_when_it_acknowledged_is_in_the_result() -> None:
    job = stopping()
    for number, each in enumerate(job.executions()):
        job.acknowledge(each, accumulators={"n": 10.0**number})
    job.written()
    job.lose("te-1")
    (end,) = bodies(job.say(), dispatcher.JobReachedTerminalState)
    assert end.accumulators == {"n": 1_111.0}


def test_all_task_executors_may_be_lost_behind_the_savepoint() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.lose("te-1")
    assert bodies(job.tick(2), resource_manager.RequestSlot), "the savepoint may fail yet"
    said = job.written()
    assert bodies(said, client.CheckpointSucceeded)
    assert bodies(said, resource_manager.CancelSlotRequest)
    assert job.state.status is JobStatus.FINISHED


def test_a_job_does_not_fail_for_what_happens_while_the_savepoint_that_it_ends_with_is_written() -> None:
    job = running({**PERIODIC, "restart-strategy.type": "none"})
    job.checkpoint()
    job.ask(SAVEPOINT, stops=True)
    job.say()
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken", progress_lost=True)
    job.say()
    assert job.state.status is JobStatus.RUNNING
    assert bodies(job.written(), client.CheckpointSucceeded)
    the_others_end(job)


@pytest.mark.parametrize("acknowledged", ["by one", "by all"])
def test_a_task_executor_that_begins_anew_during_a_stop_costs_the_job_no_restart(acknowledged: str) -> None:
    """It does not run what had acknowledged: that would go on behind the savepoint."""
    job = running({**PERIODIC, "restart-strategy.type": "none"})
    job.ask(SAVEPOINT, stops=True)
    job.say()
    sink = job.execution("sink")
    if acknowledged == "by all":
        job.acknowledged_by_all()
    else:
        job.acknowledge(sink)
    job.report(sink, ExecutionState.CANCELED)
    said = job.say()
    assert job.state.status is JobStatus.RUNNING
    if acknowledged == "by one":
        assert bodies(said, client.CheckpointFailed)
        assert len(bodies(said, task_executor.SubmitTask)) == 1
    else:
        assert not bodies(said, task_executor.SubmitTask)
        job.written()
        the_others_end(job)


def test_a_job_that_is_stopped_can_not_be_suspended_any_more() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.written()
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.say()
    the_others_end(job)


def test_a_job_that_paused_while_its_savepoint_was_written_has_finished_when_it_is_resumed() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.say()
    job.ends()
    assert bodies(job.written(), client.CheckpointSucceeded)
    assert job.state.status is JobStatus.SUSPENDED
    job.tell("dispatcher", job_master.ResumeJob(job_id="j"))
    said = job.say()
    assert not bodies(said, resource_manager.RequestSlot)
    assert [each.status for each in bodies(said, dispatcher.JobReachedTerminalState)] == [JobStatus.FINISHED]


def test_a_job_that_is_cancelled_behind_its_savepoint_is_cancelled() -> None:
    job = stopping()
    job.acknowledged_by_all()
    assert bodies(job.written(), client.CheckpointSucceeded)
    job.tell("dispatcher", job_master.CancelJob(job_id="j"))
    job.say()
    job.ends()
    assert job.state.status is JobStatus.CANCELED


def test_a_savepoint_is_given_up_when_a_task_that_stands_still_behind_its_part_fails() -> None:
    job = stopping()
    job.acknowledge(job.execution("sink"))
    job.report(job.execution("sink"), FAILED, "broken")
    said = job.say()
    assert bodies(said, job_master.CheckpointAborted)
    assert bodies(said, task_executor.AbortCheckpoint)
    assert not job.checkpoints.stopping


@pytest.mark.parametrize("outcome", ["complete", "failed"])
def test_a_task_that_fails_while_the_savepoint_is_written_waits_for_its_outcome(outcome: str) -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken")
    assert not bodies(job.tick(60), task_executor.SubmitTask)
    if outcome == "complete":
        said = job.written()
        assert bodies(said, client.CheckpointSucceeded)
        assert not bodies(said, task_executor.SubmitTask)
        the_others_end(job)
    else:
        assert len(bodies(job.not_written(), task_executor.SubmitTask)) == 1
        assert job.state.status is JobStatus.RUNNING


@pytest.mark.parametrize("outcome", ["complete", "failed"])
def test_a_task_in_a_new_process_knows_nothing_of_the_savepoint_that_is_written_meanwhile(
    outcome: str,
) -> None:
    job = stopping()
    job.acknowledged_by_all()
    sink = job.execution("sink")
    job.report(sink, ExecutionState.INITIALIZING)
    job.report(sink, RUNNING)
    job.say()
    if outcome == "complete":
        assert bodies(job.written(), client.CheckpointSucceeded)
        assert job.state.status is JobStatus.CANCELLING, "it may have gone on behind the savepoint"
    else:
        job.not_written()
        assert job.state.status is JobStatus.RUNNING


@pytest.mark.parametrize("how", [FAILED, ExecutionState.INITIALIZING])
def test_nobody_goes_on_from_what_a_lost_task_has_committed_when_it_was_drained(how: ExecutionState) -> None:
    job = stopping(drains=True)
    job.report(job.execution("source"), how, "broken" if how is FAILED else None)
    said = job.say()
    assert bodies(said, client.CheckpointFailed)
    assert job.state.status is JobStatus.RESTARTING


def test_a_job_that_is_suspended_while_it_is_drained_begins_with_a_checkpoint() -> None:
    job = stopping(drains=True)
    job.acknowledge(job.execution("source"))
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.say()
    job.ends()
    job.discarded()
    job.say()
    job.tell("dispatcher", job_master.ResumeJob(job_id="j"))
    job.say()
    assert [each.checkpoint_id for each in job.demanded(FindCheckpoint).candidates] == [1]


def test_a_job_all_of_whose_tasks_end_while_its_savepoint_is_given_up_has_not_finished() -> None:
    job = stopping()
    job.acknowledge(job.execution("source", 0))
    job.report(job.execution("source", 0), FINISHED)
    job.decline(job.execution("sink"))
    for each in job.executions():
        if each.state is RUNNING:
            job.report(each, FINISHED)
    assert job.state.status is JobStatus.RUNNING
    job.say()
    assert job.state.status is JobStatus.RESTARTING


def test_a_savepoint_among_the_checkpoints_of_its_job_would_go_with_them() -> None:
    job = running()
    job.ask(SAVEPOINT, directory="file:///c/j")
    (answer,) = answers(job.say())
    assert "would be deleted with the job's checkpoints" in answer.reason  # type: ignore[attr-defined]
    job.ask(SAVEPOINT, directory="file:///c/j2")
    assert bodies(job.say(), job_master.CheckpointTriggered)


def test_nothing_else_is_taken_while_a_job_stops() -> None:
    job = stopping()
    job.ask()
    (answer,) = answers(job.say())
    assert "is being stopped" in answer.reason  # type: ignore[attr-defined]
    assert job.demands(WriteMetadata) == []
