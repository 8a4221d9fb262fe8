"""How a job ends: when all have confirmed, in the documents' order and words; and how a suspended one goes on."""

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
from tailrace.services.job_master.state import Handshake

from . import states
from .driver import JOB, Job, bodies, running
from .states import GRAPH

CANCEL = job_master.CancelJob(job_id="j")
SUSPEND = job_master.SuspendJob(job_id="j", reason="maintenance")
RESUME = job_master.ResumeJob(job_id="j")


def names(said: list[OutgoingEvent]) -> list[str]:
    """What is said, without the fields."""
    return [each.body.AVRO_NAME.partition(".")[2] for each in said]


def confirm(job: Job) -> list[OutgoingEvent]:
    """Every task that is being cancelled is."""
    for execution in job.executions():
        if execution.state is ExecutionState.CANCELING:
            job.report(execution, ExecutionState.CANCELED)
    return job.say()


def test_a_job_whose_tasks_have_all_finished_gives_back_what_it_holds_in_the_documents_order() -> None:
    job = running(GRAPH)
    for execution in job.executions():
        job.report(execution, ExecutionState.FINISHED)
    said = job.say()
    assert names(said) == [
        "client.JobStatusChanged",
        "task_executor.FreeSlot",
        "task_executor.FreeSlot",
        "task_executor.DisconnectJobManager",
        "dispatcher.JobReachedTerminalState",
        "resource_manager.DisconnectJobManager",
    ]
    words = job.state.graph.name if job.state.graph else ""
    reasons = {each.reason for each in bodies(said, task_executor.FreeSlot)}
    assert reasons == {f"Stopping JobMaster for job {words}(j)."}
    assert isinstance(job.role.instructions(job.state)[0], DeleteChannels)


def test_a_cancelled_job_ends_with_the_last_confirmation_and_not_before() -> None:
    job = running(GRAPH, resource_ids=("te-1", "te-2"))
    job.tell("dispatcher", CANCEL)
    said = job.say()
    assert names(said) == ["client.JobStatusChanged", *["task_executor.CancelTask"] * 4]
    *some, last = [each for each in job.executions() if each.state is ExecutionState.CANCELING]
    for execution in some:
        job.report(execution, ExecutionState.CANCELED)
        assert job.say() == []
    job.report(last, ExecutionState.FINISHED)
    said = job.say()
    assert bodies(said, client.JobStatusChanged)[0].status is JobStatus.CANCELED
    assert len(bodies(said, task_executor.FreeSlot)) == 2
    assert len(bodies(said, task_executor.DisconnectJobManager)) == 2
    assert bodies(said, dispatcher.JobReachedTerminalState)[0].status is JobStatus.CANCELED


MOMENTS = [
    states.before_registration,
    states.waiting_for_slots,
    states.about_to_be_deployed,
    states.deployed,
    states.waiting_for_a_restart,
    states.waiting_for_another_slot,
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_can_be_cancelled_at_any_time_and_leaves_nothing_behind(moment: Callable[[], Job]) -> None:
    job = moment()
    job.tell("dispatcher", CANCEL)
    job.say()
    confirm(job)
    assert job.state.status is JobStatus.CANCELED
    assert (job.state.terminal_notification, job.state.unfinished) == (Handshake.SAID, 0)
    assert not job.state.slots.slots
    assert not job.state.slots.returning
    ends = (ExecutionState.CANCELED, ExecutionState.FAILED, ExecutionState.FINISHED)
    assert all(each.state in ends for each in job.executions())
    assert job.role.deadline(job.state) is None
    known = job.state
    job.tell("dispatcher", CANCEL)
    assert job.state == known


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_is_on_its_way_when_the_job_is_cancelled_is_taken_back(moment: Callable[[], Job]) -> None:
    job = moment()
    job.now += 10_000_000
    late = job.owed()
    job.tell("dispatcher", CANCEL)
    said = job.say(late)
    submitted = {each.execution_attempt_id for each in bodies(said, task_executor.SubmitTask)}
    cancelled = {each.execution_attempt_id for each in bodies(said, task_executor.CancelTask)}
    assert submitted <= cancelled
    said += confirm(job)
    requested = {each.allocation_id for each in bodies(said, resource_manager.RequestSlot)}
    taken_back = {each.allocation_id for each in bodies(said, resource_manager.CancelSlotRequest)}
    assert requested <= taken_back
    assert job.state.status is JobStatus.CANCELED


def test_a_suspended_job_keeps_its_channels_and_goes_on_with_what_has_not_finished() -> None:
    job = running(GRAPH, resource_ids=("te-1", "te-2"))
    job.report(job.execution("source", 1), ExecutionState.FINISHED)
    allocations = set(job.state.slots.slots)
    job.tell("dispatcher", SUSPEND)
    job.say()
    assert (job.state.status, job.state.terminal_notification) == (JobStatus.SUSPENDED, None)
    said = confirm(job)
    (end,) = bodies(said, dispatcher.JobReachedTerminalState)
    assert (end.status, end.reason) == (JobStatus.SUSPENDED, "maintenance")
    assert len(bodies(said, task_executor.FreeSlot)) == 2
    assert len(bodies(said, task_executor.DisconnectJobManager)) == 2
    assert bodies(said, resource_manager.DisconnectJobManager)[0].status is JobStatus.SUSPENDED
    assert job.state.deletion is None
    assert job.role.instructions(job.state) == ()
    for resource_id in ("te-1", "te-2"):
        bye = job_master.DisconnectTaskManager(job_id="j", resource_id=resource_id, reason="no more")
        job.tell(f"task_executor/{resource_id}", bye)

    job.tell("dispatcher", RESUME)
    said = job.say()
    assert [each.status for each in bodies(said, client.JobStatusChanged)] == [JobStatus.CREATED]
    assert len(bodies(said, resource_manager.RegisterJobManager)) == 1
    job.tell("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.tell(JOB, job_master.ChannelsCreated(job_id="j"))
    requested = {each.allocation_id for each in bodies(job.say(), resource_manager.RequestSlot)}
    assert len(requested) == 2
    assert not requested & allocations
    submitted = bodies(job.give("te-3"), task_executor.SubmitTask)
    assert [(each.vertex_id, each.subtask_index, each.attempt_number) for each in submitted] == [
        ("source", 0, 1),
        ("sink", 0, 1),
        ("sink", 1, 1),
    ]
    assert job.state.status is JobStatus.RUNNING


def test_a_suspended_job_can_be_cancelled() -> None:
    job = running(GRAPH)
    job.tell("dispatcher", SUSPEND)
    job.say()
    confirm(job)
    job.tell("dispatcher", CANCEL)
    said = job.say()
    statuses = [each.status for each in bodies(said, client.JobStatusChanged)]
    assert statuses == [JobStatus.CANCELLING, JobStatus.CANCELED]
    assert [each.status for each in bodies(said, dispatcher.JobReachedTerminalState)] == [JobStatus.CANCELED]
    assert isinstance(job.role.instructions(job.state)[0], DeleteChannels)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_can_be_suspended_at_any_time_and_resumed(moment: Callable[[], Job]) -> None:
    job = moment()
    numbers = {each.vertex: each.attempt_number for each in job.executions() if each.allocation_id}
    job.tell("dispatcher", SUSPEND)
    job.say()
    confirm(job)
    job.tell("dispatcher", RESUME)
    job.assemble(("te-9",))
    assert job.state.status is JobStatus.RUNNING
    for execution in job.executions():
        assert execution.resource_id == "te-9"
        assert execution.attempt_number >= numbers.get(execution.vertex, -1)


def test_a_job_that_has_nothing_left_to_do_when_it_is_resumed_leaves_the_resource_manager() -> None:
    job = running(GRAPH)
    job.tell("dispatcher", SUSPEND)
    for execution in job.executions():
        job.report(execution, ExecutionState.FINISHED)
    job.say()
    job.tell("dispatcher", RESUME)
    said = job.say()
    assert [each.status for each in bodies(said, client.JobStatusChanged)][-1] is JobStatus.FINISHED
    assert len(bodies(said, resource_manager.RegisterJobManager)) == 1
    (goodbye,) = bodies(said, resource_manager.DisconnectJobManager)
    assert goodbye.status is JobStatus.FINISHED


def test_only_a_suspended_job_is_resumed() -> None:
    job = running(GRAPH)
    with pytest.raises(IllegalEvent, match="is not suspended"):
        job.tell("dispatcher", RESUME)


def test_channels_that_can_not_be_created_fail_the_job() -> None:
    job = Job(GRAPH)
    job.tell(JOB, job_master.ChannelsFailed(job_id="j", reason="Kafka has no room"))
    job.say()
    assert (job.state.status, job.state.reason) == (JobStatus.FAILED, "Kafka has no room")


def test_channels_that_could_not_be_created_for_a_suspended_job_are_demanded_again_when_it_is_resumed() -> (
    None
):
    job = Job(GRAPH)
    (first,) = job.role.instructions(job.state)
    job.tell("dispatcher", SUSPEND)
    job.say()
    job.tell(JOB, job_master.ChannelsFailed(job_id="j", reason="Kafka has no room"))
    job.say()
    assert job.state.status is JobStatus.SUSPENDED
    assert not job.role.instructions(job.state)
    job.tell("dispatcher", RESUME)
    job.say()
    (again,) = job.role.instructions(job.state)
    assert isinstance(again, CreateChannels)
    assert again.key != first.key
    job.tell("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.say()
    assert not bodies(job.give("te-1"), task_executor.SubmitTask)
    job.tell(JOB, job_master.ChannelsCreated(job_id="j"))
    assert len(bodies(job.say(), task_executor.SubmitTask)) == 4


@pytest.mark.parametrize(
    "answer",
    [job_master.ChannelsCreated(job_id="j"), job_master.ChannelsFailed(job_id="j", reason="no room")],
)
def test_a_late_answer_about_channels_that_an_earlier_start_demanded_changes_nothing(answer: Body) -> None:
    job = Job(GRAPH)
    causes = [job.state.started]
    for _ in range(3):
        job.tell("dispatcher", SUSPEND)
        job.say()
        job.tell("dispatcher", RESUME)
        job.say()
        before = job.state
        for late in (*causes, job.log[-1].offset):
            job.tell(JOB, answer, cause=late)
            assert job.state == before
        causes.append(before.started)
    job.tell(JOB, job_master.ChannelsCreated(job_id="j"))
    assert job.state.channels is Handshake.DONE
    before = job.state
    job.tell(JOB, answer)
    assert job.state == before, "it was answered before"


def test_who_leads_makes_no_difference_to_a_job() -> None:
    job = running(GRAPH)
    before = job.state
    body = LeaderElected(role=JOB, epoch=2, address="x", session="x")
    job.tell(JOB, body, recipient="*")
    assert job.state == before


# What heartbeats say


def heartbeat(job: Job, *attempts: str, position: int | None = None) -> job_master.HeartbeatFromTaskManager:
    """Of te-1."""
    snapshots = tuple(AccumulatorSnapshot(job_id="j", execution_attempt_id=each) for each in attempts)
    return job_master.HeartbeatFromTaskManager(
        job_id="j",
        resource_id="te-1",
        position=len(job.log) if position is None else position,
        accumulator_report=AccumulatorReport(accumulator_snapshots=snapshots),
    )


def test_tasks_that_should_run_and_are_not_reported_are_missing_unless_they_have_changed_since() -> None:
    job = running(GRAPH)
    ids = sorted(each.execution_attempt_id for each in job.executions())
    assert missing_tasks(job.state, heartbeat(job, *ids)) == ()
    assert missing_tasks(job.state, heartbeat(job, *ids[1:])) == (ids[0],)
    changed = job.state.executions[ids[0]].cause
    assert missing_tasks(job.state, heartbeat(job, *ids[1:], position=changed)) == (ids[0],)
    assert missing_tasks(job.state, heartbeat(job, *ids[1:], position=changed - 1)) == ()


def test_an_allocated_slot_report_has_the_slots_at_one_task_executor_by_number() -> None:
    job = running(GRAPH, resource_ids=("te-1", "te-2"))
    for resource_id in ("te-1", "te-2"):
        report = allocated_slot_report(job.state, resource_id)
        (info,) = report.allocated_slot_infos
        slot = job.state.slots.slots[info.allocation_id]
        assert (slot.resource_id, slot.slot_number) == (resource_id, info.slot_index)
    assert allocated_slot_report(job.state, "te-3").allocated_slot_infos == ()
