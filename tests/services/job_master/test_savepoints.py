"""Requested checkpoints and savepoints, and jobs that stop with a savepoint."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.schemas import client, dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus, SnapshotType
from tailrace.services.core.role import IllegalEvent
from tailrace.services.job_master.checkpoints.state import MOST_REQUESTS
from tailrace.services.job_master.checkpoints.stop_phase import StopPhase
from tailrace.services.job_master.instructions import DiscardCheckpoint, FindCheckpoint, WriteMetadata

from .checkpointed import GRAPH, ON_REQUEST, PERIODIC, Checkpointed, running
from .driver import JOB, bodies, submissions

SAVEPOINT = SnapshotType.SAVEPOINT
RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED


def answers(answered: Sequence[object]) -> list[object]:
    return [
        item.body  # type: ignore[attr-defined]
        for item in answered
        if item.recipient == "client/me"  # type: ignore[attr-defined]
    ]


def test_client_of_checkpoint_request_gets_its_location() -> None:
    job = running(ON_REQUEST)
    offset = job.ask()
    job.send()
    job.acknowledged_by_all()
    events = job.written()
    (answer,) = answers(events)
    assert answer == client.CheckpointSucceeded(job_id="j", checkpoint=job.checkpoints.completed[0])
    assert [event.cause for event in events if event.recipient == "client/me"] == [offset]


def test_requests_before_trigger_share_one_checkpoint() -> None:
    job = running(ON_REQUEST)
    for _ in range(3):
        job.ask()
    assert len(bodies(job.send(), job_master.CheckpointTriggered)) == 1
    job.ask()
    job.send()
    job.acknowledged_by_all()
    events = job.written()
    assert len(answers(events)) == 3
    assert len(bodies(events, job_master.CheckpointTriggered)) == 1, "the fourth asked for a later one"


@pytest.mark.parametrize("stops", [False, True])
def test_repeated_request_for_savepoint_is_answered_with_the_same_one(stops: bool) -> None:
    job = running()
    asked = [job.ask(SAVEPOINT, stops=stops) for _ in range(3)]
    events = job.send()
    asked.append(job.ask(SAVEPOINT, stops=stops))
    events += job.send()
    job.acknowledged_by_all()
    events += job.written()
    assert len(bodies(events, job_master.CheckpointTriggered)) == 1
    assert [event.cause for event in events if event.recipient == "client/me"] == asked
    (taken,) = job.checkpoints.savepoints
    assert answers(events) == [client.CheckpointSucceeded(job_id="j", checkpoint=taken)] * len(asked)


@pytest.mark.parametrize("stops", [False, True])
def test_request_with_same_id_is_answered_with_the_same_savepoint_after_its_end(stops: bool) -> None:
    job = running()
    job.ask(SAVEPOINT, stops=stops, trigger_id="a")
    events = job.send()
    job.acknowledged_by_all()
    events += job.written()
    job.ask(SAVEPOINT, directory="file:///late", stops=stops, trigger_id="a")
    events += job.send()
    assert len(bodies(events, job_master.CheckpointTriggered)) == 1
    (taken,) = job.checkpoints.savepoints
    assert answers(events) == [client.CheckpointSucceeded(job_id="j", checkpoint=taken)] * 2


def test_request_repeated_behind_a_stop_shares_the_savepoint_and_is_not_refused() -> None:
    job = running()
    asked = [job.ask(SAVEPOINT), job.ask(SAVEPOINT, stops=True), job.ask(SAVEPOINT)]
    events = job.send()
    job.acknowledged_by_all()
    events = [*events, *job.written()]
    answered = [event.cause for event in events if event.recipient == "client/me"]
    assert answered == [asked[0], asked[2]]
    assert not bodies(events, client.CheckpointFailed)


def test_savepoint_is_known_by_its_id_as_long_as_it_is_kept() -> None:
    job = running()
    for number in range(20):
        job.ask(SAVEPOINT, trigger_id=str(number))
        job.send()
        job.acknowledged_by_all()
        job.written()
    known = job.checkpoints.trigger_ids
    assert sorted(known.values()) == [each.checkpoint_id for each in job.checkpoints.savepoints]
    assert job.checkpoints.find_savepoint("19") == job.checkpoints.savepoints[-1]
    for forgotten in ("0", None):
        assert job.checkpoints.find_savepoint(forgotten) is None


def test_other_savepoint_of_the_same_client_is_another_one() -> None:
    job = running()
    for directory in ("file:///a", "file:///b"):
        job.ask(SAVEPOINT, directory=directory)
    job.send()
    for _ in range(2):
        job.acknowledged_by_all()
        job.written()
    assert [each.uri[:10] for each in job.checkpoints.savepoints] == ["file:///a/", "file:///b/"]


def test_requests_that_are_repeated_too_often_are_answered_once_each() -> None:
    job = running()
    asked = [job.ask(SAVEPOINT) for _ in range(MOST_REQUESTS + 3)]
    events = job.send()
    job.acknowledged_by_all()
    events += job.written()
    assert sorted(event.cause for event in events if event.recipient == "client/me") == asked  # type: ignore[type-var]


def test_savepoint_has_own_directory_and_full_state() -> None:
    job = running()
    job.ask(SAVEPOINT)
    (began,) = bodies(job.send(), job_master.CheckpointTriggered)
    options = began.options
    assert options.full
    assert options.directory == options.shared
    assert options.directory.startswith("file:///s/savepoint-j-")
    assert len(options.directory.rpartition("-")[2]) == 12
    job.acknowledged_by_all()
    job.written()
    job.ask(SAVEPOINT, directory="s3://elsewhere/")
    (began,) = bodies(job.send(), job_master.CheckpointTriggered)
    assert began.options.directory.startswith("s3://elsewhere/savepoint-j-")
    assert began.options.directory.rpartition("-")[2] != options.directory.rpartition("-")[2]


def test_savepoint_subsumes_nothing_is_never_discarded_and_never_restored_by_rollback() -> None:
    job = running()
    first = job.checkpoint()
    job.ask(SAVEPOINT)
    job.send()
    job.acknowledged_by_all()
    events = job.written()
    assert {body.restore for body in bodies(events, task_executor.ConfirmCheckpoint)} == {None}
    assert job.checkpoints.completed == (first,)
    assert [savepoint.checkpoint_id for savepoint in job.checkpoints.savepoints] == [2]
    for _ in range(3):
        job.checkpoint()
    assert [savepoint.checkpoint_id for savepoint in job.checkpoints.savepoints] == [2]
    assert [candidate.checkpoint_id for candidate in job.checkpoints.candidates()] == [5]


def test_savepoint_waits_for_pending_checkpoint_and_blocks_others() -> None:
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


def test_failed_savepoint_is_deleted_and_reported_with_reason() -> None:
    job = running()
    job.ask(SAVEPOINT)
    job.send()
    directory = job.pending.options.directory
    job.decline(job.execution("sink"), "no space left")
    (answer,) = answers(job.send())
    assert isinstance(answer, client.CheckpointFailed)
    assert "no space left" in answer.reason
    assert job.demanded(DiscardCheckpoint).directory == directory


def test_request_waits_until_all_tasks_run_with_timeout() -> None:
    job = running({**ON_REQUEST, "execution.checkpointing.timeout": "30 s"})
    job.report(job.execution("sink"), FAILED, "broken")
    job.send()
    job.ask()
    job.tick(2)
    assert not job.checkpoints.pending
    job.runs()
    assert len(bodies(job.send(), job_master.CheckpointTriggered)) == 1
    job.report(job.execution("sink"), FAILED, "broken")
    job.send()
    job.ask()
    assert answers(job.tick(29)) == []
    (answer,) = answers(job.tick(1))
    assert "TASKS_NOT_RUNNING" in answer.reason  # type: ignore[attr-defined]
    assert job.checkpoints.requests == ()


@pytest.mark.parametrize(
    "end", [job_master.CancelJob(job_id="j"), job_master.SuspendJob(job_id="j", reason="")]
)
def test_end_of_job_answers_all_waiting_requests(end: job_master.CancelJob | job_master.SuspendJob) -> None:
    job = running(ON_REQUEST)
    job.ask()
    job.send()
    job.ask(SAVEPOINT)
    job.receive("dispatcher", end)
    assert len(answers(job.send())) == 2
    job.ask()
    (answer,) = answers(job.send())
    assert "only a job that runs" in answer.reason  # type: ignore[attr-defined]


def test_request_to_ended_job_is_answered_and_job_stays_quiescent() -> None:
    job = running(ON_REQUEST)
    for execution in job.executions():
        job.report(execution, FINISHED)
    job.send()
    job.receive("job_master/j", job_master.ChannelsDeleted(job_id="j"))
    job.send()
    assert job.role.is_quiescent(job.state)
    rest = job.state
    job.ask()
    assert not job.role.is_quiescent(job.state)
    assert len(answers(job.send())) == 1
    assert job.state == rest


def test_request_to_unknown_job_is_illegal() -> None:
    job = Checkpointed(GRAPH, ON_REQUEST)
    job.state = job.role.initial("job_master/j")
    with pytest.raises(IllegalEvent, match="was not started"):
        job.ask()


def test_too_many_requests_are_rejected() -> None:
    job = running(ON_REQUEST)
    job.report(job.execution("sink"), FAILED, "broken")
    job.send()
    for _ in range(MOST_REQUESTS):
        job.ask()
    assert job.send() == []
    job.ask()
    (answer,) = answers(job.send())
    assert "TOO_MANY_CHECKPOINT_REQUESTS" in answer.reason  # type: ignore[attr-defined]


# Stop with a savepoint.


def stopping(*, drains: bool = False) -> Checkpointed:
    """Returns a job that has triggered the savepoint it stops with."""
    job = running()
    job.checkpoint()
    job.ask(SAVEPOINT, stops=True, drains=drains)
    job.send()
    assert (job.pending.options.stops, job.pending.options.drains) == (True, drains)
    return job


@pytest.mark.parametrize("first", ["savepoint", "tasks"])
def test_job_stops_when_savepoint_is_complete_and_tasks_have_finished(first: str) -> None:
    job = stopping(drains=True)
    job.acknowledged_by_all()
    if first == "savepoint":
        assert len(answers(job.written())) == 1
        assert job.tick(3600) == [], "no checkpoint begins any more"
    for execution in job.executions():
        assert job.state.status is JobStatus.RUNNING
        job.report(execution, FINISHED)
    if first == "tasks":
        assert job.state.status is JobStatus.RUNNING
        assert bodies(job.written(), client.CheckpointSucceeded)
    job.send()
    assert job.state.status is JobStatus.FINISHED


def test_job_continues_if_savepoint_fails() -> None:
    job = stopping()
    job.decline(job.execution("sink"))
    events = job.send()
    assert len(answers(events)) == 1
    assert bodies(events, task_executor.AbortCheckpoint)
    assert job.state.status is JobStatus.RUNNING
    job.discarded()
    assert job.checkpoint().checkpoint_id == 3


def test_tasks_ended_after_barrier_of_failed_savepoint_restart_from_checkpoint() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.report(job.execution("source"), FINISHED)
    events = job.not_written()
    assert len(answers(events)) == 1
    assert job.state.status is JobStatus.RESTARTING
    job.ends()
    assert [candidate.checkpoint_id for candidate in job.demanded(FindCheckpoint).candidates] == [1]
    job.restored(job.checkpoints.candidates()[0])
    job.runs()
    assert job.state.status is JobStatus.RUNNING
    assert job.state.generation == 1


def end_other_tasks(job: Checkpointed) -> None:
    """All running tasks have been told to stop."""
    for execution in job.executions():
        if execution.state is RUNNING:
            assert job.state.status is JobStatus.RUNNING
            job.report(execution, FINISHED)
    events = job.send()
    assert job.state.status is JobStatus.FINISHED
    assert not submissions(events)
    assert [body.status for body in bodies(events, dispatcher.JobReachedTerminalState)] == [
        JobStatus.FINISHED
    ]


LOSSES = ["fails", "executor", "missing"]


def lose(job: Checkpointed, how: str) -> None:
    """Loses the first subtask of the sink before its end."""
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
            job.receive(JOB, body)


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("written", ["before", "after"])
def test_job_with_complete_savepoint_finishes_despite_lost_tasks(how: str, written: str) -> None:
    job = stopping()
    job.acknowledged_by_all()
    events = job.written() if written == "before" else []
    lose(job, how)
    events += job.tick(2)
    if written == "after":
        assert not submissions(events), "its outcome is not known yet"
        events += job.written()
    events += job.send()
    assert not submissions(events)
    assert len(bodies(events, client.CheckpointSucceeded)) == 1
    if how != "executor":
        end_other_tasks(job)
    assert job.state.status is JobStatus.FINISHED
    assert not job.state.outbox


def test_restarted_task_may_have_run_past_savepoint() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.written()
    job.report(job.execution("sink"), ExecutionState.INITIALIZING)
    job.send()
    assert job.state.status is JobStatus.CANCELLING


def test_accumulators_acknowledged_by_lost_task_are_in_result() -> None:
    job = stopping()
    for number, execution in enumerate(job.executions()):
        job.acknowledge(execution, accumulators={"n": 10.0**number})
    job.written()
    job.lose("te-1")
    (end,) = bodies(job.send(), dispatcher.JobReachedTerminalState)
    assert end.accumulators == {"n": 1_111.0}


def test_all_task_executors_may_be_lost_after_savepoint() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.lose("te-1")
    assert job.tick(2) == [], "there is no verdict before the outcome of the savepoint"
    assert bodies(job.written(), client.CheckpointSucceeded)
    assert job.state.status is JobStatus.FINISHED


def test_tasks_lost_after_savepoint_restart_if_it_fails() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.lose("te-1")
    job.tick(2)
    events = job.not_written()
    assert bodies(events, job_master.RestartScheduled)
    assert bodies([*events, *job.tick(2)], resource_manager.RequestSlot)


def test_job_does_not_fail_while_its_final_savepoint_is_written() -> None:
    job = running({**PERIODIC, "restart-strategy.type": "none"})
    job.checkpoint()
    job.ask(SAVEPOINT, stops=True)
    job.send()
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken", progress_lost=True)
    job.send()
    assert job.state.status is JobStatus.RUNNING
    assert bodies(job.written(), client.CheckpointSucceeded)
    end_other_tasks(job)


@pytest.mark.parametrize("acknowledged", ["by one", "by all"])
def test_restart_of_task_executor_during_stop_costs_no_restart_of_job(acknowledged: str) -> None:
    """It does not run the acknowledged tasks: they would run past the savepoint."""
    job = running({**PERIODIC, "restart-strategy.type": "none"})
    job.ask(SAVEPOINT, stops=True)
    job.send()
    sink = job.execution("sink")
    if acknowledged == "by all":
        job.acknowledged_by_all()
    else:
        job.acknowledge(sink)
    job.report(sink, ExecutionState.CANCELED)
    events = job.send()
    assert job.state.status is JobStatus.RUNNING
    if acknowledged == "by one":
        assert bodies(events, client.CheckpointFailed)
        assert len(submissions(events)) == 1
    else:
        assert not submissions(events)
        job.written()
        end_other_tasks(job)


def test_stopping_job_cannot_be_suspended() -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.written()
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    end_other_tasks(job)


def test_job_suspended_during_write_of_savepoint_is_finished_when_resumed() -> None:
    job = stopping()
    for execution in job.executions():
        job.acknowledge(execution, accumulators={"records": 2})
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.ends()
    assert bodies(job.written(), client.CheckpointSucceeded)
    assert job.state.status is JobStatus.SUSPENDED
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    events = job.send()
    assert not bodies(events, resource_manager.RequestSlot)
    (end,) = bodies(events, dispatcher.JobReachedTerminalState)
    assert end.status is JobStatus.FINISHED
    assert end.accumulators == {"records": 2 * len(job.executions())}


def test_job_cancelled_after_savepoint_is_cancelled() -> None:
    job = stopping()
    job.acknowledged_by_all()
    assert bodies(job.written(), client.CheckpointSucceeded)
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    job.send()
    job.ends()
    assert job.state.status is JobStatus.CANCELED


def test_savepoint_is_aborted_when_task_frozen_after_its_part_fails() -> None:
    job = stopping()
    job.acknowledge(job.execution("sink"))
    job.report(job.execution("sink"), FAILED, "broken")
    events = job.send()
    assert bodies(events, job_master.CheckpointAborted)
    assert bodies(events, task_executor.AbortCheckpoint)
    assert job.checkpoints.stop is StopPhase.NONE


@pytest.mark.parametrize("outcome", ["complete", "failed"])
def test_task_failed_during_write_of_savepoint_waits_for_result(outcome: str) -> None:
    job = stopping()
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken")
    assert not submissions(job.tick(60))
    if outcome == "complete":
        events = job.written()
        assert bodies(events, client.CheckpointSucceeded)
        assert not submissions(events)
        end_other_tasks(job)
    else:
        assert len(submissions(job.not_written())) == 1
        assert job.state.status is JobStatus.RUNNING


@pytest.mark.parametrize("outcome", ["complete", "failed"])
def test_task_in_new_process_does_not_know_savepoint_in_progress(
    outcome: str,
) -> None:
    job = stopping()
    job.acknowledged_by_all()
    sink = job.execution("sink")
    job.report(sink, ExecutionState.INITIALIZING)
    job.report(sink, RUNNING)
    job.send()
    if outcome == "complete":
        assert bodies(job.written(), client.CheckpointSucceeded)
        assert job.state.status is JobStatus.CANCELLING, "it may have gone on behind the savepoint"
    else:
        job.not_written()
        assert job.state.status is JobStatus.RUNNING


@pytest.mark.parametrize("how", [FAILED, ExecutionState.INITIALIZING])
def test_no_task_continues_from_commits_of_lost_drained_task(how: ExecutionState) -> None:
    job = stopping(drains=True)
    job.report(job.execution("source"), how, "broken" if how is FAILED else None)
    events = job.send()
    assert bodies(events, client.CheckpointFailed)
    assert job.state.status is JobStatus.RESTARTING


def test_job_suspended_during_drain_restarts_from_checkpoint() -> None:
    job = stopping(drains=True)
    job.acknowledge(job.execution("source"))
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.ends()
    job.discarded()
    job.send()
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    assert [candidate.checkpoint_id for candidate in job.demanded(FindCheckpoint).candidates] == [1]


def test_job_whose_tasks_end_during_abort_of_savepoint_is_not_finished() -> None:
    job = stopping()
    job.acknowledge(job.execution("source", 0))
    job.report(job.execution("source", 0), FINISHED)
    job.decline(job.execution("sink"))
    for execution in job.executions():
        if execution.state is RUNNING:
            job.report(execution, FINISHED)
    assert job.state.status is JobStatus.RUNNING
    job.send()
    assert job.state.status is JobStatus.RESTARTING


def test_savepoint_in_checkpoint_directory_of_job_is_rejected() -> None:
    job = running()
    job.ask(SAVEPOINT, directory="file:///c/j")
    (answer,) = answers(job.send())
    assert "would be deleted with the job's checkpoints" in answer.reason  # type: ignore[attr-defined]
    job.ask(SAVEPOINT, directory="file:///c/j2")
    assert bodies(job.send(), job_master.CheckpointTriggered)


def test_no_other_checkpoint_is_triggered_while_job_stops() -> None:
    job = stopping()
    job.ask()
    (answer,) = answers(job.send())
    assert "is being stopped" in answer.reason  # type: ignore[attr-defined]
    assert job.demands(WriteMetadata) == []
