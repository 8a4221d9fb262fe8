"""Another parallelism for a job that runs: slots first, then a cut, then the tasks at the new parallelism."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas import client, job_master, resource_manager, task_executor
from tailrace.schemas.types import (
    CheckpointFailureReason,
    ExecutionState,
    JobStatus,
    ParallelismBounds,
    Partitioner,
    RestoredCheckpoint,
    SnapshotType,
)
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.checkpoints.stop_phase import StopPhase
from tailrace.services.job_master.instructions import CreateChannels, FindCheckpoint
from tailrace.services.job_master.rescale.state import RescalePhase

from ...graphs import edge, job_graph, operator, vertex
from .checkpointed import ON_REQUEST, Checkpointed, bodies, running
from .driver import JOB, submissions

ME = "client/me"
SOURCE = vertex("source", operator("source-operator", OperatorKind.KAFKA_SOURCE), parallelism=2)
GRAPH = job_graph(
    SOURCE,
    vertex("sink", parallelism=2, max_parallelism=8),
    edge("source", "sink"),
)


def job_of(
    configuration: Mapping[str, str] = ON_REQUEST, resource_ids: tuple[str, ...] = ("te-1",)
) -> Checkpointed:
    """Returns a job with two subtasks of two vertices, which all run."""
    return running(configuration, GRAPH, resource_ids)


def ask(job: Checkpointed, parallelism: int | None = None, **bounds: int) -> list[OutgoingEvent]:
    """Sends a request; returns the events in response."""
    wanted = {name: ParallelismBounds(lower_bound=1, upper_bound=count) for name, count in bounds.items()}
    body = job_master.RescaleJob(job_id="j", parallelism=parallelism, bounds=wanted, requester=ME)
    job.receive("dispatcher", body)
    return job.send()


def phase_of(job: Checkpointed) -> RescalePhase | None:
    current = job.state.rescaling.current
    return None if current is None else current.phase


def failure_of(events: list[OutgoingEvent]) -> str:
    (body,) = bodies(events, client.RescaleFailed)
    return body.reason


def parallelism_of(job: Checkpointed) -> dict[str, int]:
    return {each.vertex_id: each.parallelism for each in job.state.topology.in_order}


def cut(job: Checkpointed) -> list[OutgoingEvent]:
    """All tasks acknowledge the cut, and it is written; returns the events that follow."""
    assert (job.pending.options.stops, job.pending.options.snapshot_type) == (True, SnapshotType.CHECKPOINT)
    job.acknowledged_by_all()
    return job.written()


def restarted(job: Checkpointed) -> list[OutgoingEvent]:
    """The tasks end behind the cut, and are submitted anew from it."""
    job.ends()
    checkpoint = job.checkpoints.candidates()[0]
    return job.restored(checkpoint)


def rescaled(job: Checkpointed, parallelism: int) -> list[OutgoingEvent]:
    """The job gets another parallelism; returns the last events."""
    ask(job, parallelism)
    job.give("te-1")
    cut(job)
    restarted(job)
    job.runs()
    return job.send()


def test_job_runs_on_until_its_slots_are_there() -> None:
    job = job_of()
    events = ask(job, 4)
    assert bodies(events, job_master.RescaleStarted)[0].parallelism == {"source": 4, "sink": 4}
    assert len(bodies(events, resource_manager.RequestSlot)) == 2
    assert not bodies(events, job_master.CheckpointTriggered)
    assert job.state.status is JobStatus.RUNNING
    events = job.give("te-1")
    (triggered,) = bodies(events, job_master.CheckpointTriggered)
    assert triggered.options.stops
    assert phase_of(job) is RescalePhase.TAKING


def test_fewer_subtasks_need_no_slot() -> None:
    events = ask(job_of(), 1)
    assert bodies(events, job_master.CheckpointTriggered)
    assert not bodies(events, resource_manager.RequestSlot)


@pytest.mark.parametrize("parallelism", [1, 3, 4])
def test_tasks_restart_from_cut_at_new_parallelism(parallelism: int) -> None:
    job = job_of()
    ask(job, parallelism)
    job.give("te-1")
    events = cut(job)
    assert len(bodies(events, task_executor.CancelTask)) == 4
    assert not bodies(events, task_executor.ConfirmCheckpoint), (
        "the tasks stand still until they are cancelled"
    )
    assert job.state.status is JobStatus.RESTARTING
    assert job.ends() == []
    search = job.demanded(FindCheckpoint)
    assert [each.parallelism for each in search.job_graph.vertices] == [parallelism, parallelism]
    events = job.restored(job.checkpoints.candidates()[0])
    assert len(submissions(events)) == 2 * parallelism
    assert {body.generation for body in bodies(events, task_executor.SubmitTask)} == {1}
    (graph,) = bodies(events, task_executor.JobManagerRegistrationSuccess)
    assert graph.job_graph == job.state.graph
    assert phase_of(job) is RescalePhase.DEPLOYING
    job.runs()
    (answer,) = bodies(job.send(), client.JobRescaled)
    assert answer.parallelism == {"source": parallelism, "sink": parallelism}
    assert answer.checkpoint_id == 1
    assert (job.state.status, job.state.rescaling.current) == (JobStatus.RUNNING, None)


def test_subtasks_that_come_back_have_higher_attempt_numbers() -> None:
    job = job_of()
    seen: set[str] = {each.execution_attempt_id for each in job.executions()}
    numbers: dict[tuple[str, int], int] = {each.vertex: each.attempt_number for each in job.executions()}
    for parallelism in (4, 2, 4, 1, 3):
        rescaled(job, parallelism)
        assert parallelism_of(job) == {"source": parallelism, "sink": parallelism}
        for execution in job.executions():
            assert execution.execution_attempt_id not in seen
            assert execution.attempt_number > numbers.get(execution.vertex, -1)
            seen.add(execution.execution_attempt_id)
            numbers[execution.vertex] = execution.attempt_number


def test_slots_that_are_not_needed_are_freed_when_idle() -> None:
    job = job_of()
    rescaled(job, 1)
    assert len(bodies(job.tick(3600), task_executor.FreeSlot)) == 1


def test_first_checkpoint_after_rescale_is_full() -> None:
    job = job_of()
    rescaled(job, 4)
    job.ask()
    job.send()
    assert job.pending.options.full
    assert len(job.pending.awaited) == 8


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"parallelism": 9}, "above its maximum parallelism 8"),
        ({"parallelism": 0}, "can't run with 1 to 0 subtasks"),
        ({}, "names no parallelism"),
        ({"other": 2}, "has no vertex 'other'"),
    ],
)
def test_impossible_parallelism_is_refused(wanted: dict[str, int], reason: str) -> None:
    job = job_of()
    assert reason in failure_of(ask(job, **wanted))
    assert phase_of(job) is None


def test_job_without_checkpoint_directory_is_not_rescaled() -> None:
    job = running({"restart-strategy.type": "none"}, GRAPH)
    assert "state.checkpoints.dir" in failure_of(ask(job, 4))


def test_second_request_is_refused_while_first_is_in_progress() -> None:
    job = job_of()
    ask(job, 4)
    assert "is being rescaled already" in failure_of(ask(job, 3))
    assert phase_of(job) is RescalePhase.WAITING


def test_present_parallelism_is_confirmed_at_once() -> None:
    events = ask(job_of(), 2)
    (answer,) = bodies(events, client.JobRescaled)
    assert (answer.parallelism, answer.checkpoint_id) == ({}, 0)


def test_vertices_with_own_parallelism_keep_it() -> None:
    graph = job_graph(
        SOURCE,
        vertex("sink", parallelism=1, max_parallelism=8),
        edge("source", "sink"),
    )
    job = running(ON_REQUEST, graph)
    for parallelism in (1, 4):
        rescaled(job, parallelism)
        assert parallelism_of(job) == {"source": parallelism, "sink": 1}


def test_single_vertex_is_rescaled_by_name() -> None:
    job = job_of()
    ask(job, sink=3)
    job.give("te-1")
    cut(job)
    restarted(job)
    assert parallelism_of(job) == {"source": 2, "sink": 3}


def test_denied_slot_leaves_job_as_it_is() -> None:
    job = job_of()
    ask(job, 4)
    first, _ = sorted(job.state.slots.requests)
    denied = job_master.SlotAllocationFailed(allocation_id=first, reason="there are no more")
    job.receive("resource_manager", denied)
    events = job.send()
    assert failure_of(events) == "there are no more"
    assert len(bodies(events, resource_manager.CancelSlotRequest)) == 1
    assert (job.state.status, phase_of(job)) == (JobStatus.RUNNING, None)
    assert parallelism_of(job) == {"source": 2, "sink": 2}


def test_slot_lost_while_others_are_awaited_is_requested_again() -> None:
    job = job_of()
    ask(job, 4)
    job.give("te-2")
    assert phase_of(job) is RescalePhase.TAKING
    job = job_of()
    ask(job, 4)
    request = sorted(job.state.slots.requests.values(), key=lambda each: each.slot)[0]
    hello = job_master.RegisterTaskManager(job_id="j", resource_id="te-2")
    job.receive("task_executor/te-2", hello)
    job.offer("te-2", request.allocation_id)
    job.send()
    assert len(job.state.slots.requests) == 1
    job.lose("te-2")
    job.send()
    assert len(job.state.slots.requests) == 2
    job.give("te-1")
    assert phase_of(job) is RescalePhase.TAKING


def test_rescale_fails_if_it_waits_too_long() -> None:
    job = job_of()
    ask(job, 4)
    assert "slots are missing" in failure_of(job.tick(601))
    assert phase_of(job) is None


def test_cut_that_times_out_ends_rescale_and_tasks_continue() -> None:
    job = job_of()
    ask(job, 1)
    events = job.tick(600)
    assert "not all of its tasks were running" in failure_of(events)
    assert not bodies(events, job_master.CheckpointTriggered), "another cut would stop the tasks for nothing"
    assert bodies(events, task_executor.AbortCheckpoint)


def test_tasks_continue_behind_cut_whose_rescale_is_over() -> None:
    """The leader decided that before the cut was triggered."""
    job = job_of()
    ask(job, 1)
    current = job.state.rescaling.current
    assert current is not None
    failed = client.RescaleFailed(job_id="j", reason="it took too long")
    job.receive(JOB, failed, cause=current.request.offset)
    events = cut(job)
    (aborted,) = bodies(events, task_executor.AbortCheckpoint)
    assert set(aborted.execution_attempt_ids) == {each.execution_attempt_id for each in job.executions()}
    assert not bodies(events, task_executor.CancelTask)
    assert (job.state.status, job.checkpoints.stop) == (JobStatus.RUNNING, StopPhase.NONE)


def test_failed_task_before_cut_restarts_as_usual_and_cut_is_taken_later() -> None:
    job = job_of()
    ask(job, 1)
    job.acknowledge(job.execution("source"))
    job.report(job.execution("sink"), ExecutionState.FAILED, "broken")
    events = job.send()
    (aborted,) = bodies(events, job_master.CheckpointAborted)
    assert aborted.failure is CheckpointFailureReason.TASK_FAILURE
    assert bodies(events, task_executor.AbortCheckpoint), "tasks that stand still go on"
    assert phase_of(job) is RescalePhase.WAITING
    job.tick(3)
    job.runs()
    assert bodies(job.send(), job_master.CheckpointTriggered)
    cut(job)
    restarted(job)
    assert parallelism_of(job) == {"source": 1, "sink": 1}


def test_rescale_fails_after_three_aborted_cuts() -> None:
    job = job_of()
    ask(job, 1)
    for _ in range(2):
        job.decline(job.execution("sink"))
        assert not bodies(job.send(), client.RescaleFailed)
        job.discarded()
    job.decline(job.execution("sink"))
    assert "declined" in failure_of(job.send())
    assert (job.state.status, phase_of(job), len(job.checkpoints.pending)) == (JobStatus.RUNNING, None, 0)


def test_task_lost_behind_its_part_does_not_restart_before_cut_is_written() -> None:
    job = job_of(resource_ids=("te-1", "te-2"))
    ask(job, 1)
    job.acknowledged_by_all()
    job.lose("te-2")
    assert not submissions(job.send())
    job.written()
    job.ends()
    assert len(submissions(job.restored(job.checkpoints.candidates()[0]))) == 2


def test_task_that_restarted_behind_its_part_makes_cut_void() -> None:
    job = job_of()
    ask(job, 1)
    job.acknowledged_by_all()
    job.report(job.execution("sink"), ExecutionState.INITIALIZING)
    job.report(job.execution("sink"), ExecutionState.RUNNING)
    events = job.written()
    assert bodies(events, task_executor.AbortCheckpoint)
    assert not job.checkpoints.completed
    assert [each.completed for each in job.checkpoints.discarding.values()] == [True]
    assert job.state.status is JobStatus.RUNNING
    assert bodies(events, job_master.CheckpointTriggered), "the cut is taken again"


def test_failure_after_cut_restarts_from_it_at_new_parallelism() -> None:
    job = job_of()
    rescaled(job, 3)
    job.report(job.execution("sink", 2), ExecutionState.FAILED, "gone", progress_lost=True)
    job.send()
    job.tick(3)
    job.ends()
    job.tick(3)
    assert [each.checkpoint_id for each in job.demanded(FindCheckpoint).candidates] == [1]
    events = job.restored(job.checkpoints.candidates()[0])
    events += job.tick(60)
    assert len(submissions(events)) == 6
    assert job.state.generation == 2


def test_job_cancelled_while_cut_is_taken_answers_request() -> None:
    job = job_of()
    ask(job, 1)
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    assert "CANCELLING" in failure_of(job.send())


def test_failed_job_master_answers_request_once() -> None:
    job = job_of()
    ask(job, 4)
    job.receive(JOB, job_master.JobMasterFailed(job_id="j", reason="a fault in its code"))
    events = job.send()
    assert failure_of(events) == "a fault in its code"
    assert job.send() == []


def test_suspended_job_continues_its_rescale_after_the_cut() -> None:
    job = job_of()
    ask(job, 3)
    job.give("te-1")
    cut(job)
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.ends()
    assert job.state.status is JobStatus.SUSPENDED
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    job.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.send()
    job.give("te-2")
    job.restored(RestoredCheckpoint(checkpoint_id=1, uri=job.checkpoints.completed[0].uri, generation=0))
    if job.demands(CreateChannels):
        job.receive(JOB, job_master.ChannelsCreated(job_id="j"))
    job.send()
    job.give("te-2")
    job.runs()
    assert bodies(job.send(), client.JobRescaled)
    assert parallelism_of(job) == {"source": 3, "sink": 3}


def test_finished_vertex_keeps_its_parallelism() -> None:
    job = job_of()
    job.report(job.execution("source", 1), ExecutionState.FINISHED)
    job.send()
    assert "have finished" in failure_of(ask(job, 4))


def test_subtask_that_finishes_during_cut_ends_rescale_at_old_parallelism() -> None:
    job = job_of()
    ask(job, 1)
    job.report(job.execution("source", 1), ExecutionState.FINISHED)
    events = cut(job)
    assert "have finished" in failure_of(events)
    job.ends()
    job.restored(job.checkpoints.candidates()[0], finished={"source": (1,)})
    job.runs()
    job.send()
    assert parallelism_of(job) == {"source": 2, "sink": 2}
    assert job.state.status is JobStatus.RUNNING


def test_request_to_ended_job_is_refused() -> None:
    job = job_of()
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    job.send()
    job.ends()
    assert "CANCELED" in failure_of(ask(job, 4))


def test_savepoint_requested_during_cut_is_taken_after_it() -> None:
    job = job_of()
    ask(job, 1)
    job.ask(SnapshotType.SAVEPOINT)
    assert not bodies(job.send(), client.CheckpointFailed)
    cut(job)
    restarted(job)
    job.runs()
    assert bodies(job.send(), job_master.CheckpointTriggered)


CHAIN = job_graph(
    vertex(
        "count",
        operator("read", OperatorKind.SOCKET_TEXT_STREAM),
        operator("split", OperatorKind.FLAT_MAP),
        operator("sum", OperatorKind.REDUCE),
    ),
    chained_edges=(
        edge("count", "split", source_operator_id="read"),
        edge("split", "sum", Partitioner.HASH, source_operator_id="split"),
    ),
)


def test_chain_across_partitioned_edges_is_divided() -> None:
    job = running(ON_REQUEST, CHAIN, ("te-1",))
    events = ask(job, 2)
    (started,) = bodies(events, job_master.RescaleStarted)
    assert started.parallelism == {"split": 2, "sum": 2}, "a socket is read from one place"
    job.give("te-1")
    cut(job)
    restarted(job)
    assert {each.data_set_id for each in job.state.graph.edges} == {"count-split", "split-sum"}
    job.runs()
    (answer,) = bodies(job.send(), client.JobRescaled)
    assert answer.parallelism == {"split": 2, "sum": 2}
    assert parallelism_of(job) == {"count": 1, "split": 2, "sum": 2}
    rescaled(job, 3)
    assert parallelism_of(job) == {"count": 1, "split": 3, "sum": 3}
    assert job.state.rescaling.default_vertices == {"split", "sum"}


def test_parts_of_divided_vertex_stay_when_it_gets_one_subtask_again() -> None:
    job = running(ON_REQUEST, CHAIN, ("te-1",))
    rescaled(job, 2)
    ask(job, sum=1)
    cut(job)
    restarted(job)
    job.runs()
    job.send()
    assert parallelism_of(job) == {"count": 1, "split": 2, "sum": 1}
    assert set(job.state.rescaling.bounds) == {"split", "sum"}
