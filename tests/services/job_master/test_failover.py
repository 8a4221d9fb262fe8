"""Only affected tasks are restarted."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, job_master, resource_manager, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.job_master import deployment
from tailrace.services.job_master.restart_strategies import on_failure
from tailrace.services.job_master.slot_pool import SlotStep
from tailrace.services.job_master.state import ChannelsState

from ...graphs import edge, job_graph, source, vertex
from .driver import JOB, Job, bodies, running, submissions

GRAPH = job_graph(source(parallelism=2), vertex("sink", parallelism=2), edge("source", "sink"))
NONE = {"restart-strategy.type": "none"}
DELAY = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "2 s",
}
FAILED, FINISHED, RUNNING = ExecutionState.FAILED, ExecutionState.FINISHED, ExecutionState.RUNNING


def test_failed_task_restarts_after_delay_in_same_slot_and_peers_continue() -> None:
    job = running(GRAPH, DELAY)
    before = job.executions()
    broken = job.execution("sink", 1)
    job.report(broken, FAILED, "broken")
    (verdict,) = job.send()
    assert verdict.body == job_master.RestartScheduled(
        job_id="j", restart_at=job.now + 2_000_000, failure_count=1
    )
    assert job.role.deadline(job.state) == job.now + 2_000_000
    assert job.tick(1.9) == []
    (submitted,) = submissions(job.tick(0.1))
    assert (submitted.vertex_id, submitted.subtask_index, submitted.attempt_number) == ("sink", 1, 1)
    assert (submitted.allocation_id, submitted.deployment_size) == (broken.allocation_id, 1)
    assert job.state.status is JobStatus.RUNNING
    assert [execution for execution in job.executions() if execution in before] == [
        execution for execution in before if execution is not broken
    ]
    assert job.role.deadline(job.state) is None


def test_job_fails_after_last_attempt_with_task_location_and_reason() -> None:
    job = running(GRAPH, DELAY)
    for attempt in range(4):
        assert job.execution("source").attempt_number == attempt
        job.report(job.execution("source"), FAILED, "ZeroDivisionError at job.py:3\nand more")
        job.tick(2)
        job.runs()
    assert job.state.status is JobStatus.FAILING
    assert job.state.reason is not None
    assert job.state.reason.splitlines()[0] == "source (1) on te-1: ZeroDivisionError at job.py:3"


def test_first_failure_without_restarts_cancels_other_tasks_and_fails_job() -> None:
    job = running(GRAPH, NONE)
    job.report(job.execution("source"), FAILED, "broken")
    events = job.send()
    assert [body.status for body in bodies(events, client.JobStatusChanged)] == [JobStatus.FAILING]
    assert len(bodies(events, task_executor.CancelTask)) == 3
    for execution in job.executions():
        if execution.state is ExecutionState.CANCELING:
            assert job.state.status is JobStatus.FAILING
            job.report(execution, ExecutionState.CANCELED)
    job.send()
    assert job.state.status is JobStatus.FAILED


def test_tasks_of_lost_task_executor_restart_elsewhere_and_others_continue() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    here = [execution for execution in job.executions() if execution.resource_id == "te-1"]
    there = [execution for execution in job.executions() if execution.resource_id == "te-2"]
    assert (len(here), len(there)) == (2, 2)
    job.lose("te-1", "it has exited")
    assert "te-1" not in job.state.connections
    assert all(job.state.executions[execution.execution_attempt_id].state is FAILED for execution in here)
    (verdict,) = job.send()
    assert isinstance(verdict.body, job_master.RestartScheduled)
    assert job.state.failures.counted == 1
    (request,) = bodies(job.tick(2), resource_manager.RequestSlot)
    assert request.allocation_id not in {execution.allocation_id for execution in here}
    submitted = submissions(job.give("te-3"))
    assert {(task.vertex_id, task.subtask_index) for task in submitted} == {item.vertex for item in here}
    assert {(task.attempt_number, task.allocation_id) for task in submitted} == {(1, request.allocation_id)}
    assert [execution for execution in job.executions() if execution.resource_id == "te-2"] == there


def test_failures_before_verdict_join_and_restart_together() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    here = [execution for execution in job.executions() if execution.resource_id == "te-1"]
    (first, second) = [execution for execution in job.executions() if execution.resource_id == "te-2"]
    job.report(first, FAILED, "broken")
    late = job.owed()
    job.now += 1_000_000
    job.report(second, FAILED, "broken, too")
    job.lose("te-1")
    job.send(late)
    assert (job.state.failures.counted, job.owed()) == (1, [])
    events = job.tick(1)
    assert len(submissions(events)) == 2, "at the time that the verdict on the first says"
    assert len(bodies(events, resource_manager.RequestSlot)) == len({item.allocation_id for item in here})
    assert len(job.state.exceptions) == 3


def test_verdict_is_applied_once_and_only_to_its_failure() -> None:
    job = running(GRAPH, DELAY)
    job.report(job.execution("source"), FAILED, "broken")
    late = job.owed()
    job.send(late)
    known = job.state
    job.send(late)
    assert job.state == known
    job.tick(2)
    job.report(job.execution("source"), FAILED, "broken again")
    known = job.state
    job.receive(JOB, late[0].body, cause=late[0].cause)
    assert job.state == known


def test_verdicts_of_failure_rate_carry_its_history() -> None:
    """The state after each verdict is what the strategy returns."""
    rate = {
        "restart-strategy.type": "failure-rate",
        "restart-strategy.failure-rate.max-failures-per-interval": "3",
        "restart-strategy.failure-rate.failure-rate-interval": "10 s",
        "restart-strategy.failure-rate.delay": "1 s",
    }
    job, counted = running(GRAPH, rate), []
    for seconds in (2, 2, 8, 2, 2, 2, 2):
        history = job.state.failures
        job.report(job.execution("source"), FAILED, "broken")
        failure = job.state.pending_failure
        expected = on_failure(
            job.state.options.restart_strategy, history, failure.identity, failure.time, job.state.job_id
        )
        job.send()
        if job.state.status is not JobStatus.RUNNING:
            break
        assert job.state.failures == expected
        counted.append(len(expected.recent))
        job.tick(seconds)
        job.runs()
    assert counted == [1, 2, 3, 2, 2, 3]
    assert job.state.status is JobStatus.FAILING


def test_job_waits_for_slot_that_has_no_verdict_yet() -> None:
    job = Job(GRAPH, DELAY)
    job.assemble(())
    requests = sorted(job.state.slots.requests.values(), key=lambda request: request.slot)
    first, *others = (request.allocation_id for request in requests)
    job.receive("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.offer("te-1", first)
    job.receive("task_executor/te-1", job_master.FailSlot(allocation_id=first, reason="broken"))
    job.offer("te-1", *others)
    assert not job.state.slots.requests
    assert not job.state.has_had_all_slots
    assert submissions(job.send()) == []
    assert bodies(job.tick(2), resource_manager.RequestSlot)


def test_nothing_is_sent_to_lost_task_executor() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    job.offer("te-1", "an allocation that nobody knows")
    job.receive("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.lose("te-1")
    assert "task_executor/te-1" not in {event.recipient for event in job.send()}


@pytest.mark.parametrize("teller", ["resource_manager", "task_executor/te-1"])
def test_failed_slot_fails_its_tasks(teller: str) -> None:
    job = running(GRAPH, DELAY)
    lost = job.execution("sink")
    job.receive(teller, job_master.FailSlot(allocation_id=lost.allocation_id or "", reason="broken"))
    freed = bodies(job.send(), task_executor.FreeSlot)
    reports = [lost.allocation_id] if teller == "resource_manager" else []
    assert [event.allocation_id for event in freed] == reports, (
        "only a TaskExecutor knows that it has freed the slot"
    )
    states = {execution.vertex: execution.state for execution in job.executions()}
    assert states == {
        ("source", 0): ExecutionState.SCHEDULED,
        ("source", 1): RUNNING,
        ("sink", 0): ExecutionState.SCHEDULED,
        ("sink", 1): RUNNING,
    }


def test_silent_task_executor_is_disconnected_and_its_tasks_restart_elsewhere() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    reason = "no heartbeat for 50 s from TaskExecutor te-1"
    job.receive(JOB, job_master.HeartbeatTimedOut(resource_id="te-1", reason=reason))
    (goodbye,) = [event for event in job.send() if event.recipient == "task_executor/te-1"]
    assert goodbye.body == task_executor.DisconnectJobManager(job_id="j", reason=reason)
    assert "te-1" not in job.state.connections
    job.tick(2)
    assert len(submissions(job.give("te-2"))) == 2


def test_tasks_missing_on_their_task_executor_are_cancelled_there_and_restarted() -> None:
    job = running(GRAPH, DELAY)
    missing = job.execution("sink")
    ids = (missing.execution_attempt_id, "unknown")
    body = job_master.TasksContradicted(resource_id="te-1", execution_attempt_ids=ids, reason="not reported")
    job.receive(JOB, body)
    (cancel,) = bodies(job.send(), task_executor.CancelTask)
    assert cancel.execution_attempt_id == missing.execution_attempt_id
    (submitted,) = submissions(job.tick(2))
    assert (submitted.attempt_number, submitted.allocation_id) == (1, missing.allocation_id)


def test_task_cancelled_without_request_restarts() -> None:
    job = running(GRAPH, DELAY)
    job.report(job.execution("sink"), ExecutionState.CANCELED)
    assert len(submissions(job.tick(2))) == 1


def test_failure_of_first_slot_request_fails_job_with_reason_of_resource_manager() -> None:
    job = Job(GRAPH, DELAY)
    job.assemble(())
    request = min(job.state.slots.requests)
    body = job_master.SlotAllocationFailed(
        allocation_id=request, reason="the job wants 2, 1 is free, 1 registered"
    )
    job.receive("resource_manager", body)
    job.send()
    assert (job.state.status, job.state.reason) == (JobStatus.FAILED, body.reason)


def test_failure_of_later_slot_request_is_ordinary_failure() -> None:
    job = running(GRAPH, DELAY)
    job.lose("te-1")
    job.send()
    for counted in itertools.count(2):
        job.tick(2)
        requests = list(job.state.slots.requests)
        read = len(job.log) - 1
        for request in requests:
            body = job_master.SlotAllocationFailed(allocation_id=request, reason="none is free")
            job.receive("resource_manager", body)
            header = job.log[-1].header
            assert header.decided_at is not None
            assert header.decided_at >= read
        job.send()
        assert job.state.failures.counted >= counted
        assert not set(job.state.slots.requests) & set(requests), "another request has another AllocationID"
        if job.state.status is not JobStatus.RUNNING:
            break
    assert job.state.status is JobStatus.FAILED


@pytest.mark.parametrize("has_verdict", [False, True])
def test_concurrent_rejections_of_resource_manager_are_one_failure(has_verdict: bool) -> None:
    job = running(GRAPH, DELAY)
    job.lose("te-1")
    job.tick(2)
    decided_at = len(job.log) - 1
    for request in sorted(job.state.slots.requests):
        body = job_master.SlotAllocationFailed(allocation_id=request, reason="none is free")
        record = job.log[-1]
        header = replace(
            record.header, sender="resource_manager", recipient=JOB, decided_at=decided_at, time=job.now
        )
        job.fold(Record(len(job.log), header, body))
        if has_verdict:
            job.send()
    job.send()
    assert job.state.failures.counted == 2
    assert job.state.status is JobStatus.RUNNING


def test_slot_request_possibly_served_by_lost_task_executor_is_repeated() -> None:
    job = Job(GRAPH)
    job.assemble(())
    waiting = set(job.state.slots.requests)
    job.lose("te-9")
    again = bodies(job.send(), resource_manager.RequestSlot)
    assert {event.allocation_id for event in again} == waiting
    assert job.send() == []


def test_offer_of_task_executor_that_has_not_read_its_loss_is_ignored() -> None:
    job = Job(GRAPH)
    job.assemble(())
    allocation_id = min(job.state.slots.requests)
    job.lose("te-1")
    known = job.state
    offered = Job(GRAPH)
    offered.offer("te-1", allocation_id)
    late = offered.log[-1]
    header = replace(late.header, decided_at=len(job.log) - 2)
    job.fold(Record(len(job.log), header, late.body))
    assert job.state == known


# Slots that nobody uses


def test_slot_with_only_finished_tasks_is_freed_after_idle_timeout() -> None:
    job = running(GRAPH, {"slot.idle.timeout": "10 s"})
    for vertex_id in ("source", "sink"):
        assert all(slot.step is SlotStep.ALLOCATED for slot in job.state.slots.slots.values())
        job.report(job.execution(vertex_id, 1), FINISHED)
    (idle,) = [slot for slot in job.state.slots.slots.values() if slot.step is SlotStep.AVAILABLE]
    assert job.send() == []
    assert job.tick(9.9) == []
    (freed,) = bodies(job.tick(0.2), task_executor.FreeSlot)
    assert (freed.allocation_id, freed.reason) == (idle.allocation_id, "idle for 10 s in job j")
    assert idle.allocation_id not in job.state.slots.slots
    assert job.state.status is JobStatus.RUNNING


def test_idle_slot_is_used_again_when_another_is_lost() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    for vertex_id in ("source", "sink"):
        job.report(job.execution(vertex_id, 1), FINISHED)
    (idle,) = [slot for slot in job.state.slots.slots.values() if slot.step is SlotStep.AVAILABLE]
    lost = job.execution("sink", 0)
    assert lost.resource_id is not None
    job.lose(lost.resource_id)
    submitted = submissions(job.tick(2))
    assert {task.allocation_id for task in submitted} == {idle.allocation_id}
    assert len(submitted) == 2


def test_slot_used_again_while_being_freed_is_replaced() -> None:
    job = running(GRAPH, {**DELAY, "slot.idle.timeout": "10 s"}, ("te-1", "te-2"))
    for vertex_id in ("source", "sink"):
        job.report(job.execution(vertex_id, 1), FINISHED)
    job.now += 11_000_000
    (freeing,) = job.owed()
    lost = job.execution("sink", 0)
    assert lost.resource_id is not None
    job.lose(lost.resource_id)
    job.judge()
    events = job.send([freeing])
    assert submissions(events) == []
    assert len(bodies(job.tick(2), resource_manager.RequestSlot)) == 1
    assert len(submissions(job.give("te-3"))) == 2


def test_surplus_slot_is_freed() -> None:
    job = running(GRAPH)
    job.offer("te-1", "an allocation that nobody knows")
    (rejected,) = bodies(job.send(), task_executor.SlotsRejected)
    assert rejected.allocation_ids == ("an allocation that nobody knows",)
    assert rejected.reason == "job j does not want it"


def test_duplicate_or_missing_slots_in_offer_are_ignored() -> None:
    job = Job(GRAPH, DELAY)
    job.assemble(())
    request = min(job.state.slots.requests)
    job.offer("te-1", request, request)
    job.offer("te-1")
    (answer,) = bodies(job.send(), task_executor.SlotsAccepted)
    assert answer.allocation_ids == (request,)
    assert not job.state.outbox


def test_slot_that_is_held_and_offered_again_is_accepted_again() -> None:
    job = running(GRAPH)
    held = min(job.state.slots.slots)
    before = job.state
    job.offer("te-1", held)
    (accepted,) = bodies(job.send(), task_executor.SlotsAccepted)
    assert accepted.allocation_ids == (held,)
    assert job.state == before


# Deployments


def test_tasks_of_vertex_submitted_together_to_task_executor_are_one_deployment() -> None:
    job = Job(GRAPH)
    events = bodies(job.assemble(("te-1",)), task_executor.SubmitTask)
    assert [(event.vertex_id, len(event.subtasks)) for event in events] == [("source", 2), ("sink", 2)]
    assert len({event.deployment_id for event in events}) == 2


def test_deployment_keeps_id_when_leader_dies_during_it() -> None:
    job = Job(GRAPH)
    offer_all(job)
    whole = job.owed()
    half = len(whole) - 1
    for event in whole[:half]:
        job.receive(JOB, event.body, recipient=event.recipient, cause=event.cause)
    assert job.owed() == whole[half:]


def offer_all(job: Job) -> None:
    """te-1 offers all slots that the job requests."""
    job.assemble(())
    job.receive("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.offer("te-1", *sorted(job.state.slots.requests))


def test_task_whose_slot_is_lost_before_submission_is_left_out() -> None:
    job = Job(job_graph(source(parallelism=3)), DELAY)
    offer_all(job)
    (*_, third) = submissions(job.owed())
    job.receive("task_executor/te-1", job_master.FailSlot(allocation_id=third.allocation_id, reason="broken"))
    assert [submission.subtask_index for submission in submissions(job.send())] == [0, 1]
    again = job.execution("source", 2)
    assert (again.attempt_number, again.state) == (0, ExecutionState.SCHEDULED)


def test_tasks_whose_slots_are_lost_during_submission_are_retried() -> None:
    job = Job(job_graph(source(parallelism=3)), DELAY)
    offer_all(job)
    late = [event for event in job.owed() if isinstance(event.body, task_executor.SubmitTask)]
    third = submissions(late)[2]
    job.receive("task_executor/te-1", job_master.FailSlot(allocation_id=third.allocation_id, reason="broken"))
    job.send(late)
    numbers = [
        (execution.subtask_index, execution.attempt_number, execution.state) for execution in job.executions()
    ]
    deploying, scheduled = ExecutionState.DEPLOYING, ExecutionState.SCHEDULED
    assert numbers == [(0, 0, deploying), (1, 0, deploying), (2, 1, scheduled)]


def test_deployment_too_large_for_one_event_is_split() -> None:
    count = deployment.MAX_SUBTASKS_PER_DEPLOYMENT
    job = Job(job_graph(source(parallelism=count + 1)))
    offer_all(job)
    events = [event for event in job.owed() if isinstance(event.body, task_executor.SubmitTask)]
    first, second = (event.body for event in events)
    assert [len(body.subtasks) for body in (first, second)] == [count, 1]  # type: ignore[attr-defined]
    assert first.deployment_id != second.deployment_id  # type: ignore[attr-defined]
    job.receive(JOB, first, recipient=events[0].recipient, cause=events[0].cause)
    rest = bodies(job.owed(), task_executor.SubmitTask)
    assert rest == [second], "also where the leader changes between the two"


# Lazily


def test_lazy_scheduling_waits_for_some_running_subtasks_of_each_producer() -> None:
    graph = job_graph(
        source("left"),
        source("right", parallelism=2),
        vertex("sink", parallelism=2, slot_sharing_group="sinks"),
        edge("left", "sink"),
        edge("right", "sink"),
    )
    job = Job(graph, {"execution.schedule-mode": "LAZY_FROM_SOURCES"})
    submitted = submissions(job.assemble())
    assert {task.vertex_id for task in submitted} == {"left", "right"}
    assert job.execution("sink").state is ExecutionState.CREATED
    job.report(job.execution("left"), RUNNING)
    assert job.send() == []
    job.report(job.execution("right", 1), RUNNING)
    assert len(bodies(job.send(), resource_manager.RequestSlot)) == 2
    submitted = submissions(job.give("te-1"))
    assert [task.vertex_id for task in submitted] == ["sink", "sink"]


def test_lazily_scheduled_vertex_uses_shared_slots_of_its_producers() -> None:
    job = Job(GRAPH, {"execution.schedule-mode": "LAZY_FROM_SOURCES"})
    job.assemble()
    job.report(job.execution("source", 1), RUNNING)
    events = job.send()
    assert bodies(events, resource_manager.RequestSlot) == []
    submitted = submissions(events)
    assert {task.allocation_id for task in submitted} == {
        execution.allocation_id for execution in job.executions() if execution.vertex_id == "source"
    }
    assert job.state.has_had_all_slots
    assert job.state.channels is ChannelsState.CREATED
