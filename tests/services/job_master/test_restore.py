"""What a job begins with: nothing, a savepoint, its last checkpoint; and how it goes back to one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, job_master, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus, RestoredCheckpoint, SnapshotType
from tailrace.services.job_master.checkpoints.state import restored_state
from tailrace.services.job_master.instructions import CreateChannels, FindCheckpoint, WriteMetadata

from .checkpointed import GRAPH, PERIODIC, Checkpointed, running
from .driver import JOB, bodies

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED
SAVEPOINT = RestoredCheckpoint(checkpoint_id=7, uri="file:///s/savepoint-old", generation=-1)


def loses_progress(job: Checkpointed, vertex_id: str = "sink") -> None:
    job.report(job.execution(vertex_id), FAILED, "the changelog is gone", progress_lost=True)


def submitted(said: Sequence[object]) -> list[task_executor.SubmitTask]:
    return bodies(said, task_executor.SubmitTask)  # type: ignore[arg-type]


# Continuation.


def test_a_task_that_starts_again_begins_with_the_last_completed_checkpoint_in_the_same_generation() -> None:
    job = running()
    job.report(job.execution("sink"), FAILED, "broken")
    (first,) = submitted(job.tick(2))
    assert (first.generation, first.restore, first.finished) == (0, None, False)
    job.runs()
    job.say()
    for _ in range(2):
        checkpoint = job.checkpoint()
    job.report(job.execution("sink"), FAILED, "broken")
    (second,) = submitted(job.tick(2))
    assert (second.generation, second.restore) == (0, restored_state(checkpoint))
    assert job.state.status is JobStatus.RUNNING


def test_who_was_submitted_while_a_checkpoint_was_completed_is_told_of_it() -> None:
    job = running()
    first = job.checkpoint()
    job.tick(10)
    job.acknowledged_by_all()
    job.report(job.execution("sink"), FAILED, "broken")
    job.say()
    job.now += 2_000_000
    on_its_way = job.owed()
    assert [each.restore for each in submitted(on_its_way)] == [restored_state(first)]
    job.write()
    said = job.say(on_its_way)
    (confirmed,) = [
        each
        for each in bodies(said, task_executor.ConfirmCheckpoint)
        if job.execution("sink").execution_attempt_id in each.execution_attempt_ids
    ]
    assert confirmed.restore == job.checkpoints.latest
    assert not job.checkpoints.discarding, "it may be reading the older one"
    assert job.checkpoints.subsumed
    job.report(job.execution("sink"), RUNNING)
    assert list(job.checkpoints.discarding) == [1]


# Rollback.


def test_a_job_whose_progress_is_lost_goes_back_with_all_its_tasks() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    job.checkpoint()
    checkpoint = job.checkpoint()
    slots = set(job.state.slots.slots)
    loses_progress(job)
    said = job.say()
    assert [each.status for each in bodies(said, client.JobStatusChanged)] == [JobStatus.RESTARTING]
    assert len(bodies(said, task_executor.CancelTask)) == 3
    assert job.demands(FindCheckpoint) == [], "three still run"
    assert job.ends() == []
    instruction = job.demanded(FindCheckpoint)
    assert instruction.candidates == (restored_state(checkpoint),)
    assert job.tick(3600) == [], "nothing is submitted before it is found"
    said = job.restored(restored_state(checkpoint))
    tasks = submitted(said)
    assert len(tasks) == 4
    assert {(each.generation, each.restore, each.attempt_number) for each in tasks} == {
        (1, restored_state(checkpoint), 1)
    }
    assert {each.deployment_size for each in tasks} == {1}, "one of each vertex on each TaskExecutor"
    assert set(job.state.slots.slots) == slots, "slots are kept"
    job.runs()
    job.say()
    assert job.state.status is JobStatus.RUNNING
    assert job.state.failures.counted == 1
    assert job.checkpoint().generation == 1


def test_tasks_of_a_vertex_are_deployed_together_again() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.say()
    job.ends()
    tasks = submitted(job.restored(restored_state(checkpoint))) or submitted(job.tick(2))
    assert {each.deployment_size for each in tasks} == {2}
    assert len({each.deployment_id for each in tasks}) == 2


def test_the_restart_strategy_says_when_or_that_the_job_fails() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.say()
    job.ends()
    assert submitted(job.restored(restored_state(checkpoint))) == []
    assert job.role.deadline(job.state) == job.now + 2_000_000
    assert len(submitted(job.tick(2))) == 4
    job = running({**PERIODIC, "restart-strategy.type": "none"})
    job.checkpoint()
    loses_progress(job)
    assert job.state.status is JobStatus.FAILING


def test_without_a_checkpoint_the_job_fails_and_says_what_is_gone() -> None:
    job = running()
    loses_progress(job)
    assert job.state.status is JobStatus.FAILING
    assert "sink (1) on te-1: the changelog is gone; the job can't go on" in (job.state.reason or "")


def test_one_whose_metadata_is_being_written_is_waited_for() -> None:
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    loses_progress(job)
    job.say()
    job.ends()
    assert job.state.status is JobStatus.RESTARTING
    assert job.demands(FindCheckpoint) == []
    assert job.demands(WriteMetadata)
    job.written()
    assert [each.checkpoint_id for each in job.demanded(FindCheckpoint).candidates] == [1]
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    loses_progress(job)
    job.not_written()
    assert job.state.status is JobStatus.FAILING


def test_one_that_is_under_way_is_given_up() -> None:
    job = running()
    job.checkpoint()
    job.tick(10)
    loses_progress(job)
    assert len(bodies(job.say(), job_master.CheckpointAborted)) == 1
    assert not job.checkpoints.pending


def test_an_older_one_is_used_where_newer_ones_are_torn_and_those_go() -> None:
    job = running({**PERIODIC, "state.checkpoints.num-retained": "3"})
    one, two, three = (job.checkpoint() for _ in range(3))
    loses_progress(job)
    job.say()
    job.ends()
    assert job.demanded(FindCheckpoint).candidates == tuple(
        restored_state(each) for each in (three, two, one)
    )
    job.restored(restored_state(one), {three.uri: "torn", two.uri: "no _metadata"})
    assert job.checkpoints.completed == (one,)
    assert job.checkpoints.latest == restored_state(one)
    assert dict(job.checkpoints.passed_over) == {three.uri: "torn", two.uri: "no _metadata"}
    job.tick(2)
    job.runs()
    assert sorted(job.checkpoints.discarding) == [2, 3]


def test_none_that_can_be_read_fails_the_job_with_both_reasons() -> None:
    job = running()
    job.checkpoint()
    loses_progress(job)
    job.say()
    job.ends()
    job.answer_search(job_master.RestoreFailed(job_id="j", reason="chk-1 is torn"))
    assert job.state.status is JobStatus.FAILING
    assert "the changelog is gone; chk-1 is torn" in (job.state.reason or "")


def test_what_had_finished_runs_again_and_what_had_finished_in_the_checkpoint_only_says_so() -> None:
    job = running()
    job.report(job.execution("source", 0), FINISHED, accumulators={"n": 3.0})
    checkpoint = job.checkpoint()
    job.report(job.execution("source", 1), FINISHED, accumulators={"n": 5.0})
    loses_progress(job)
    job.say()
    job.ends()
    said = job.restored(restored_state(checkpoint), finished={"source": (0,)})
    tasks = {
        (each.vertex_id, each.subtask_index): each for each in [*submitted(said), *submitted(job.tick(2))]
    }
    assert {key: each.finished for key, each in tasks.items()} == {
        ("source", 0): True,
        ("source", 1): False,
        ("sink", 0): False,
        ("sink", 1): False,
    }
    assert {key: dict(each) for key, each in job.state.accumulators.items()} == {("source", 0): {"n": 3.0}}
    job.runs()
    job.report(job.execution("source", 0), FINISHED)
    assert job.state.counts.finished == 1


def test_what_had_finished_long_ago_and_lost_its_slot_gets_another_one() -> None:
    job = running()
    checkpoint = job.checkpoint()
    for vertex_id in ("source", "sink"):
        job.report(job.execution(vertex_id, 1), FINISHED)
    job.tick(60)
    assert len(job.state.slots.slots) == 1
    loses_progress(job)
    job.say()
    job.ends()
    job.restored(restored_state(job.checkpoints.completed[-1] if job.checkpoints.completed else checkpoint))
    job.tick(2)
    job.give("te-2")
    job.tick(2)
    job.runs()
    assert len([each for each in job.executions() if each.state is RUNNING]) == 4


@pytest.mark.parametrize("how", ["task executor", "slot", "failure"])
def test_what_is_lost_on_the_way_is_no_further_failure(how: str) -> None:
    job = running(resource_ids=("te-1", "te-2"))
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.say()
    other = next(each for each in job.executions() if each.state is ExecutionState.CANCELING)
    match how:
        case "task executor":
            job.lose(other.resource_id or "")
        case "slot":
            body = job_master.FailSlot(allocation_id=other.allocation_id or "", reason="broken")
            job.tell(f"task_executor/{other.resource_id}", body)
        case _:
            job.report(other, FAILED, "broken, too")
    job.say()
    job.ends()
    assert job.state.failures.counted == 1
    job.give("te-3")
    job.restored(restored_state(checkpoint))
    job.tick(2)
    job.give("te-3")
    job.runs()
    job.say()
    assert job.state.status is JobStatus.RUNNING
    assert job.state.generation == 1


def test_a_task_that_was_on_its_way_is_cancelled_and_waited_for() -> None:
    job = running(resource_ids=("te-1", "te-2"))
    checkpoint = job.checkpoint()
    job.report(job.execution("source"), FAILED, "broken")
    job.now += 2_000_000
    on_its_way = job.owed()
    assert submitted(on_its_way)
    loses_progress(job)
    said = job.say(on_its_way)
    assert len(bodies(said, task_executor.CancelTask)) == 3
    job.ends()
    assert job.demands(FindCheckpoint)
    job.restored(restored_state(checkpoint))
    assert len(submitted(job.tick(2))) == 4


def test_a_rollback_outlasts_a_suspension() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.say()
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.say()
    job.ends()
    assert job.state.status is JobStatus.SUSPENDED
    assert job.demands(FindCheckpoint) == []
    job.tell("dispatcher", job_master.ResumeJob(job_id="j"))
    job.say()
    job.tell(JOB, job_master.ChannelsCreated(job_id="j"))
    job.tell("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.say()
    assert submitted(job.give("te-2")) == []
    said = job.restored(restored_state(checkpoint))
    tasks = submitted(said) or submitted(job.tick(5))
    assert {each.generation for each in tasks} == {1}
    assert len(tasks) == 4


def test_a_savepoint_that_is_being_written_is_nothing_to_go_back_to() -> None:
    job = running()
    job.ask(SnapshotType.SAVEPOINT)
    job.say()
    job.acknowledged_by_all()
    loses_progress(job)
    assert job.state.status is JobStatus.FAILING


def test_what_was_to_be_gone_back_to_may_fail_during_a_suspension() -> None:
    job = running()
    job.tick(10)
    job.acknowledged_by_all()
    loses_progress(job)
    job.say()
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.not_written()
    job.ends()
    assert job.state.status is JobStatus.SUSPENDED
    job.tell("dispatcher", job_master.ResumeJob(job_id="j"))
    assert job.state.status is JobStatus.FAILING
    assert "the changelog is gone" in (job.state.reason or "")


def test_a_job_that_is_resumed_goes_on_in_its_generation_from_its_last_checkpoint() -> None:
    job = running()
    checkpoint = job.checkpoint()
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.say()
    job.ends()
    job.tell("dispatcher", job_master.ResumeJob(job_id="j"))
    job.say()
    tasks = submitted(job.assemble(("te-2",)))
    assert {(each.generation, each.restore) for each in tasks} == {(0, restored_state(checkpoint))}
    assert len(tasks) == 4


def test_a_second_rollback_is_another_generation() -> None:
    job = running()
    for generation in (1, 2):
        checkpoint = job.checkpoint()
        loses_progress(job)
        job.say()
        job.ends()
        job.restored(restored_state(checkpoint))
        job.tick(2)
        job.runs()
        job.say()
        assert job.state.generation == generation


def test_a_checkpoint_that_nobody_looks_for_changes_nothing() -> None:
    job = running()
    checkpoint = job.checkpoint()
    before = job.state
    job.restored(restored_state(checkpoint))
    job.answer_search(job_master.RestoreFailed(job_id="j", reason="torn"))
    assert job.state is before


def test_what_is_said_of_another_search_changes_nothing() -> None:
    job = running()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.say()
    job.ends()
    asked = job.demanded(FindCheckpoint)
    before = job.state
    stale = job_master.RestoreFailed(job_id="j", reason="it could not be reached")
    found = job_master.CheckpointRestored(job_id="j", checkpoint=restored_state(checkpoint))
    for cause in (None, 0, asked.cause - 1):
        job.tell(JOB, stale, cause=cause)
        job.tell(JOB, found, cause=cause)
    assert job.state is before
    job.tell("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.say()
    job.tell("dispatcher", job_master.ResumeJob(job_id="j"))
    job.say()
    before = job.state
    job.tell(JOB, stale, cause=asked.cause)
    assert job.state is before, "it was suspended meanwhile, and looks anew"
    assert job.demanded(FindCheckpoint).key != asked.key
    job.restored(restored_state(checkpoint))
    assert job.state.generation == 1


def test_channels_are_demanded_anew_in_each_generation() -> None:
    job = Checkpointed(GRAPH, PERIODIC)
    first = job.demanded(CreateChannels)
    job.assemble()
    job.runs()
    job.say()
    checkpoint = job.checkpoint()
    loses_progress(job)
    job.say()
    job.ends()
    found = job_master.CheckpointRestored(job_id="j", checkpoint=restored_state(checkpoint))
    job.answer_search(found)
    again = job.demanded(CreateChannels)
    assert (first.generation, again.generation) == (0, 1)
    assert replace(again, cause=first.cause).key != first.key


# A savepoint to begin with.


def test_a_job_that_is_submitted_with_a_savepoint_submits_nothing_before_it_is_found() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.say()
    (candidate,) = job.demanded(FindCheckpoint).candidates
    assert (candidate.uri, candidate.generation, candidate.checkpoint_id) == (SAVEPOINT.uri, -1, 0)
    assert submitted(job.assemble()) == []
    tasks = submitted(job.restored(SAVEPOINT, finished={"source": (1,)}))
    assert len(tasks) == 4
    assert {(each.generation, each.restore) for each in tasks} == {(0, SAVEPOINT)}
    assert [(each.vertex_id, each.subtask_index) for each in tasks if each.finished] == [("source", 1)]


def test_it_may_be_found_before_the_slots_are_there() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.say()
    assert submitted(job.restored(SAVEPOINT)) == []
    assert len(submitted(job.assemble())) == 4


def test_its_first_checkpoint_does_without_the_files_of_the_savepoint() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.say()
    job.restored(SAVEPOINT)
    job.assemble()
    job.runs()
    job.say()
    job.tick(10)
    assert (job.pending.checkpoint_id, job.pending.options.full) == (1, True)
    job.acknowledged_by_all()
    job.written()
    job.tick(10)
    assert not job.pending.options.full
    assert job.checkpoints.candidates()[-1] == SAVEPOINT, "the last to go back to"


def test_a_savepoint_that_does_not_fit_fails_the_job() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.say()
    job.answer_search(job_master.RestoreFailed(job_id="j", reason="it has state of operator x"))
    assert (job.state.status, job.state.reason) == (JobStatus.FAILING, "it has state of operator x")


def test_a_job_may_be_cancelled_while_it_looks_for_its_savepoint() -> None:
    job = Checkpointed(GRAPH, PERIODIC, savepoint_path=SAVEPOINT.uri)
    job.say()
    job.tell("dispatcher", job_master.CancelJob(job_id="j"))
    job.say()
    assert job.state.status is JobStatus.CANCELED
    assert job.demands(FindCheckpoint) == []
    before = job.state
    job.restored(replace(SAVEPOINT, checkpoint_id=7))
    assert job.state == before
