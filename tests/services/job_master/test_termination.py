"""The end of a job: all confirmations, in Flink's order and with its messages; and the resumption of a suspended
job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.schemas import client, dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import AccumulatorReport, AccumulatorSnapshot, ExecutionState, JobStatus
from tailrace.services.core.role import IllegalEvent, OutgoingEvent
from tailrace.services.job_master.heartbeat_reports import allocated_slot_report, missing_tasks
from tailrace.services.job_master.instructions import CreateChannels, DeleteChannels
from tailrace.services.job_master.state import ChannelsState

from . import states
from .driver import JOB, Job, bodies, running, submissions
from .states import GRAPH

CANCEL = job_master.CancelJob(job_id="j")
SUSPEND = job_master.SuspendJob(job_id="j", reason="maintenance")
RESUME = job_master.ResumeJob(job_id="j")


def names(events: list[OutgoingEvent]) -> list[str]:
    """Returns the names of the events."""
    return [event.body.AVRO_NAME.partition(".")[2] for event in events]


def confirm(job: Job) -> list[OutgoingEvent]:
    """Confirms the cancellation of every task."""
    for execution in job.executions():
        if execution.state is ExecutionState.CANCELING:
            job.report(execution, ExecutionState.CANCELED)
    return job.send()


def test_finished_job_frees_its_resources_in_order_of_flink() -> None:
    job = running(GRAPH)
    for execution in job.executions():
        job.report(execution, ExecutionState.FINISHED)
    events = job.send()
    assert names(events) == [
        "client.JobStatusChanged",
        "task_executor.FreeSlot",
        "task_executor.FreeSlot",
        "task_executor.DisconnectJobManager",
        "dispatcher.JobReachedTerminalState",
        "resource_manager.DisconnectJobManager",
    ]
    words = job.state.graph.name if job.state.graph else ""
    reasons = {body.reason for body in bodies(events, task_executor.FreeSlot)}
    assert reasons == {f"Stopping JobMaster for job {words}(j)."}
    assert isinstance(job.role.instructions(job.state)[0], DeleteChannels)


def test_cancelled_job_ends_with_last_confirmation() -> None:
    job = running(GRAPH, resource_ids=("te-1", "te-2"))
    job.receive("dispatcher", CANCEL)
    events = job.send()
    assert names(events) == ["client.JobStatusChanged", *["task_executor.CancelTask"] * 4]
    *some, last = [execution for execution in job.executions() if execution.state is ExecutionState.CANCELING]
    for execution in some:
        job.report(execution, ExecutionState.CANCELED)
        assert job.send() == []
    job.report(last, ExecutionState.FINISHED)
    events = job.send()
    assert bodies(events, client.JobStatusChanged)[0].status is JobStatus.CANCELED
    assert len(bodies(events, task_executor.FreeSlot)) == 2
    assert len(bodies(events, task_executor.DisconnectJobManager)) == 2
    assert bodies(events, dispatcher.JobReachedTerminalState)[0].status is JobStatus.CANCELED


MOMENTS = [
    states.before_registration,
    states.waiting_for_slots,
    states.about_to_be_deployed,
    states.deployed,
    states.waiting_for_a_restart,
    states.waiting_for_another_slot,
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_job_can_be_cancelled_at_any_time_and_leaves_nothing(moment: Callable[[], Job]) -> None:
    job = moment()
    job.receive("dispatcher", CANCEL)
    job.send()
    confirm(job)
    assert job.state.status is JobStatus.CANCELED
    assert (job.state.has_ended, job.state.counts.unfinished) == (True, 0)
    assert not job.state.slots.slots
    assert not job.state.outbox
    ends = (ExecutionState.CANCELED, ExecutionState.FAILED, ExecutionState.FINISHED)
    assert all(execution.state in ends for execution in job.executions())
    assert job.role.deadline(job.state) is None
    known = job.state
    job.receive("dispatcher", CANCEL)
    assert job.state == known


@pytest.mark.parametrize("moment", MOMENTS)
def test_requests_in_flight_at_cancellation_are_withdrawn(moment: Callable[[], Job]) -> None:
    job = moment()
    job.now += 10_000_000
    late = job.owed()
    job.receive("dispatcher", CANCEL)
    events = job.send(late)
    submitted = {submission.execution_attempt_id for submission in submissions(events)}
    cancelled = {body.execution_attempt_id for body in bodies(events, task_executor.CancelTask)}
    assert submitted <= cancelled
    events += confirm(job)
    requested = {body.allocation_id for body in bodies(events, resource_manager.RequestSlot)}
    taken_back = {body.allocation_id for body in bodies(events, resource_manager.CancelSlotRequest)}
    assert requested <= taken_back
    assert job.state.status is JobStatus.CANCELED


def test_suspended_job_keeps_channels_and_resumes_unfinished_tasks() -> None:
    job = running(GRAPH, resource_ids=("te-1", "te-2"))
    job.report(job.execution("source", 1), ExecutionState.FINISHED)
    allocations = set(job.state.slots.slots)
    job.receive("dispatcher", SUSPEND)
    job.send()
    assert (job.state.status, job.state.has_ended) == (JobStatus.SUSPENDED, False)
    events = confirm(job)
    (end,) = bodies(events, dispatcher.JobReachedTerminalState)
    assert (end.status, end.reason) == (JobStatus.SUSPENDED, "maintenance")
    assert len(bodies(events, task_executor.FreeSlot)) == 2
    assert len(bodies(events, task_executor.DisconnectJobManager)) == 2
    assert bodies(events, resource_manager.DisconnectJobManager)[0].status is JobStatus.SUSPENDED
    assert job.role.instructions(job.state) == ()
    for resource_id in ("te-1", "te-2"):
        bye = job_master.DisconnectTaskManager(job_id="j", resource_id=resource_id, reason="no more")
        job.receive(f"task_executor/{resource_id}", bye)

    job.receive("dispatcher", RESUME)
    events = job.send()
    assert [body.status for body in bodies(events, client.JobStatusChanged)] == [JobStatus.CREATED]
    assert len(bodies(events, resource_manager.RegisterJobManager)) == 1
    job.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.receive(JOB, job_master.ChannelsCreated(job_id="j"))
    requested = {body.allocation_id for body in bodies(job.send(), resource_manager.RequestSlot)}
    assert len(requested) == 2
    assert not requested & allocations
    submitted = submissions(job.give("te-3"))
    assert [(task.vertex_id, task.subtask_index, task.attempt_number) for task in submitted] == [
        ("source", 0, 1),
        ("sink", 0, 1),
        ("sink", 1, 1),
    ]
    assert job.state.status is JobStatus.RUNNING


def test_suspended_job_can_be_cancelled() -> None:
    job = running(GRAPH)
    job.receive("dispatcher", SUSPEND)
    job.send()
    confirm(job)
    job.receive("dispatcher", CANCEL)
    events = job.send()
    statuses = [body.status for body in bodies(events, client.JobStatusChanged)]
    assert statuses == [JobStatus.CANCELLING, JobStatus.CANCELED]
    assert [body.status for body in bodies(events, dispatcher.JobReachedTerminalState)] == [
        JobStatus.CANCELED
    ]
    assert isinstance(job.role.instructions(job.state)[0], DeleteChannels)


@pytest.mark.parametrize("moment", MOMENTS)
def test_job_can_be_suspended_at_any_time_and_resumed(moment: Callable[[], Job]) -> None:
    job = moment()
    numbers = {
        execution.vertex: execution.attempt_number
        for execution in job.executions()
        if execution.allocation_id
    }
    job.receive("dispatcher", SUSPEND)
    job.send()
    confirm(job)
    job.receive("dispatcher", RESUME)
    job.send()
    job.assemble(("te-9",))
    assert job.state.status is JobStatus.RUNNING
    for execution in job.executions():
        assert execution.resource_id == "te-9"
        assert execution.attempt_number >= numbers.get(execution.vertex, -1)


def test_resumed_job_without_remaining_work_disconnects_from_resource_manager() -> None:
    job = running(GRAPH)
    job.receive("dispatcher", SUSPEND)
    for execution in job.executions():
        job.report(execution, ExecutionState.FINISHED)
    job.send()
    job.receive("dispatcher", RESUME)
    events = job.send()
    assert [body.status for body in bodies(events, client.JobStatusChanged)][-1] is JobStatus.FINISHED
    assert len(bodies(events, resource_manager.RegisterJobManager)) == 1
    (goodbye,) = bodies(events, resource_manager.DisconnectJobManager)
    assert goodbye.status is JobStatus.FINISHED


def test_only_suspended_job_is_resumed() -> None:
    job = running(GRAPH)
    with pytest.raises(IllegalEvent, match="is not suspended"):
        job.receive("dispatcher", RESUME)


def test_failure_to_create_channels_fails_job() -> None:
    job = Job(GRAPH)
    job.receive(JOB, job_master.ChannelsFailed(job_id="j", reason="Kafka has no room"))
    job.send()
    assert (job.state.status, job.state.reason) == (JobStatus.FAILED, "Kafka has no room")


def test_channels_not_created_for_suspended_job_are_demanded_again_when_resumed() -> None:
    job = Job(GRAPH)
    (first,) = job.role.instructions(job.state)
    job.receive("dispatcher", SUSPEND)
    job.send()
    job.receive(JOB, job_master.ChannelsFailed(job_id="j", reason="Kafka has no room"))
    job.send()
    assert job.state.status is JobStatus.SUSPENDED
    assert not job.role.instructions(job.state)
    job.receive("dispatcher", RESUME)
    job.send()
    (again,) = job.role.instructions(job.state)
    assert isinstance(again, CreateChannels)
    assert again.key != first.key
    job.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.send()
    assert not submissions(job.give("te-1"))
    job.receive(JOB, job_master.ChannelsCreated(job_id="j"))
    assert len(submissions(job.send())) == 4


@pytest.mark.parametrize(
    "answer",
    [job_master.ChannelsCreated(job_id="j"), job_master.ChannelsFailed(job_id="j", reason="no room")],
)
def test_late_answer_about_channels_of_earlier_start_changes_nothing(answer: Body) -> None:
    job = Job(GRAPH)
    causes = [job.state.start_offset]
    for _ in range(3):
        job.receive("dispatcher", SUSPEND)
        job.send()
        job.receive("dispatcher", RESUME)
        job.send()
        before = job.state
        for late in (*causes, job.log[-1].offset):
            job.receive(JOB, answer, cause=late)
            assert job.state == before
        causes.append(before.start_offset)
    job.receive(JOB, job_master.ChannelsCreated(job_id="j"))
    assert job.state.channels is ChannelsState.CREATED
    before = job.state
    job.receive(JOB, answer)
    assert job.state == before, "it was answered before"


def test_change_of_leader_does_not_affect_job() -> None:
    job = running(GRAPH)
    before = job.state
    body = LeaderElected(role=JOB, epoch=2, address="x", session="x")
    job.receive(JOB, body, recipient="*")
    assert job.state == before


# What heartbeats say


def heartbeat(job: Job, *attempts: str, position: int | None = None) -> job_master.HeartbeatFromTaskManager:
    """Returns a heartbeat of te-1."""
    snapshots = tuple(AccumulatorSnapshot(job_id="j", execution_attempt_id=attempt) for attempt in attempts)
    return job_master.HeartbeatFromTaskManager(
        job_id="j",
        resource_id="te-1",
        position=len(job.log) if position is None else position,
        accumulator_report=AccumulatorReport(accumulator_snapshots=snapshots),
    )


def test_unreported_running_tasks_are_missing_unless_changed_since() -> None:
    job = running(GRAPH)
    ids = sorted(execution.execution_attempt_id for execution in job.executions())
    assert missing_tasks(job.state, heartbeat(job, *ids)) == ()
    assert missing_tasks(job.state, heartbeat(job, *ids[1:])) == (ids[0],)
    changed = job.state.executions[ids[0]].cause
    assert missing_tasks(job.state, heartbeat(job, *ids[1:], position=changed)) == (ids[0],)
    assert missing_tasks(job.state, heartbeat(job, *ids[1:], position=changed - 1)) == ()


def test_allocated_slot_report_has_slots_of_one_task_executor_by_number() -> None:
    job = running(GRAPH, resource_ids=("te-1", "te-2"))
    for resource_id in ("te-1", "te-2"):
        report = allocated_slot_report(job.state, resource_id)
        (info,) = report.allocated_slot_infos
        slot = job.state.slots.slots[info.allocation_id]
        assert (slot.resource_id, slot.slot_number) == (resource_id, info.slot_index)
    assert allocated_slot_report(job.state, "te-3").allocated_slot_infos == ()
