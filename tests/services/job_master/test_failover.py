"""What is affected starts again, and nothing else."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, job_master, resource_manager, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.job_master.slot_pool import SlotStep
from tailrace.services.job_master.state import Handshake

from ...graphs import edge, job_graph, source, vertex
from .driver import JOB, Job, bodies, running

GRAPH = job_graph(source(parallelism=2), vertex("sink", parallelism=2), edge("source", "sink"))
NONE = {"restart-strategy.type": "none"}
DELAY = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "2 s",
}
FAILED, FINISHED, RUNNING = ExecutionState.FAILED, ExecutionState.FINISHED, ExecutionState.RUNNING


def test_a_task_that_failed_starts_again_after_its_delay_in_its_slot_and_its_peers_run_on() -> None:
    job = running(GRAPH, DELAY)
    before = job.executions()
    broken = job.execution("sink", 1)
    job.report(broken, FAILED, "broken")
    assert job.say() == []
    assert job.role.deadline(job.state) == job.now + 2_000_000
    assert job.tick(1.9) == []
    (submitted,) = bodies(job.tick(0.1), task_executor.SubmitTask)
    assert (submitted.vertex_id, submitted.subtask_index, submitted.attempt_number) == ("sink", 1, 1)
    assert (submitted.allocation_id, submitted.deployment_size) == (broken.allocation_id, 1)
    assert job.state.status is JobStatus.RUNNING
    assert [each for each in job.executions() if each in before] == [
        each for each in before if each is not broken
    ]
    assert job.role.deadline(job.state) is None


def test_all_attempts_fail_and_the_job_does_with_the_name_of_the_task_and_where_and_why() -> None:
    job = running(GRAPH, DELAY)
    for attempt in range(4):
        assert job.execution("source").attempt_number == attempt
        job.report(job.execution("source"), FAILED, "ZeroDivisionError at job.py:3\nand more")
        job.tick(2)
        job.runs()
    assert job.state.status is JobStatus.FAILING
    assert job.state.reason is not None
    assert job.state.reason.splitlines()[0] == "source (1) on te-1: ZeroDivisionError at job.py:3"


def test_without_restarts_the_first_failure_cancels_the_others_and_fails_the_job_when_all_have_ended() -> (
    None
):
    job = running(GRAPH, NONE)
    job.report(job.execution("source"), FAILED, "broken")
    said = job.say()
    assert [each.status for each in bodies(said, client.JobStatusChanged)] == [JobStatus.FAILING]
    assert len(bodies(said, task_executor.CancelTask)) == 3
    for execution in job.executions():
        if execution.state is ExecutionState.CANCELING:
            assert job.state.status is JobStatus.FAILING
            job.report(execution, ExecutionState.CANCELED)
    assert job.state.status is JobStatus.FAILED


def test_what_ran_on_a_lost_task_executor_runs_again_elsewhere_and_the_rest_runs_on() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    here = [each for each in job.executions() if each.resource_id == "te-1"]
    there = [each for each in job.executions() if each.resource_id == "te-2"]
    assert (len(here), len(there)) == (2, 2)
    job.lose("te-1", "it has exited")
    assert "te-1" not in job.state.connections
    assert all(job.state.executions[each.execution_attempt_id].state is FAILED for each in here)
    assert job.state.failures.counted == 1
    assert job.say() == []
    (request,) = bodies(job.tick(2), resource_manager.RequestSlot)
    assert request.allocation_id not in {each.allocation_id for each in here}
    submitted = bodies(job.give("te-3"), task_executor.SubmitTask)
    assert {(each.vertex_id, each.subtask_index) for each in submitted} == {each.vertex for each in here}
    assert {(each.attempt_number, each.allocation_id) for each in submitted} == {(1, request.allocation_id)}
    assert [each for each in job.executions() if each.resource_id == "te-2"] == there


def test_nothing_is_said_to_a_task_executor_that_is_lost() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    job.tell("dispatcher", job_master.CancelJob(job_id="j"))
    job.offer("te-1", "an allocation that nobody knows")
    job.tell("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.lose("te-1")
    assert "task_executor/te-1" not in {each.recipient for each in job.say()}


@pytest.mark.parametrize("teller", ["resource_manager", "task_executor/te-1"])
def test_a_slot_that_fails_takes_down_what_is_in_it(teller: str) -> None:
    job = running(GRAPH, DELAY)
    lost = job.execution("sink")
    job.tell(teller, job_master.FailSlot(allocation_id=lost.allocation_id or "", reason="broken"))
    freed = bodies(job.say(), task_executor.FreeSlot)
    told = [lost.allocation_id] if teller == "resource_manager" else []
    assert [each.allocation_id for each in freed] == told, (
        "only a TaskExecutor knows that it has freed the slot"
    )
    states = {each.vertex: each.state for each in job.executions()}
    assert states == {
        ("source", 0): ExecutionState.SCHEDULED,
        ("source", 1): RUNNING,
        ("sink", 0): ExecutionState.SCHEDULED,
        ("sink", 1): RUNNING,
    }


def test_a_silent_task_executor_is_disconnected_and_its_tasks_run_elsewhere() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    reason = "no heartbeat for 50 s from TaskExecutor te-1"
    job.tell(JOB, job_master.HeartbeatTimedOut(resource_id="te-1", reason=reason))
    (goodbye,) = [each for each in job.say() if each.recipient == "task_executor/te-1"]
    assert goodbye.body == task_executor.DisconnectJobManager(job_id="j", reason=reason)
    assert "te-1" not in job.state.connections
    job.tick(2)
    assert len(bodies(job.give("te-2"), task_executor.SubmitTask)) == 2


def test_tasks_that_do_not_run_where_they_should_are_cancelled_there_and_start_again() -> None:
    job = running(GRAPH, DELAY)
    missing = job.execution("sink")
    ids = (missing.execution_attempt_id, "unknown")
    body = job_master.TasksContradicted(resource_id="te-1", execution_attempt_ids=ids, reason="not reported")
    job.tell(JOB, body)
    (cancel,) = bodies(job.say(), task_executor.CancelTask)
    assert cancel.execution_attempt_id == missing.execution_attempt_id
    (submitted,) = bodies(job.tick(2), task_executor.SubmitTask)
    assert (submitted.attempt_number, submitted.allocation_id) == (1, missing.allocation_id)


def test_a_task_that_was_cancelled_by_nobody_starts_again() -> None:
    job = running(GRAPH, DELAY)
    job.report(job.execution("sink"), ExecutionState.CANCELED)
    assert len(bodies(job.tick(2), task_executor.SubmitTask)) == 1


def test_a_first_request_that_fails_fails_the_job_with_the_words_of_the_resource_manager() -> None:
    job = Job(GRAPH, DELAY)
    job.assemble(())
    request = min(job.state.slots.requests)
    body = job_master.SlotAllocationFailed(
        allocation_id=request, reason="the job wants 2, 1 is free, 1 registered"
    )
    job.tell("resource_manager", body)
    job.say()
    assert (job.state.status, job.state.reason) == (JobStatus.FAILED, body.reason)


def test_a_later_request_that_fails_is_a_failure_as_any_other() -> None:
    job = running(GRAPH, DELAY)
    job.lose("te-1")
    for counted in itertools.count(2):
        job.tick(2)
        requests = list(job.state.slots.requests)
        read = len(job.log) - 1
        for each in requests:
            body = job_master.SlotAllocationFailed(allocation_id=each, reason="none is free")
            job.tell("resource_manager", body)
            header = job.log[-1].header
            assert header.decided_at is not None
            assert header.decided_at >= read
        assert job.state.failures.counted >= counted
        assert not set(job.state.slots.requests) & set(requests), "another request has another AllocationID"
        if job.state.status is not JobStatus.RUNNING:
            break
    assert job.state.status is JobStatus.FAILING


def test_what_the_resource_manager_decides_at_once_is_one_failure() -> None:
    job = running(GRAPH, DELAY)
    job.lose("te-1")
    job.tick(2)
    decided_at = len(job.log) - 1
    for each in sorted(job.state.slots.requests):
        body = job_master.SlotAllocationFailed(allocation_id=each, reason="none is free")
        record = job.log[-1]
        header = replace(
            record.header, sender="resource_manager", recipient=JOB, decided_at=decided_at, time=job.now
        )
        job.fold(Record(len(job.log), header, body))
    assert job.state.failures.counted == 2
    assert job.state.status is JobStatus.RUNNING


def test_a_request_for_a_slot_that_a_lost_task_executor_may_have_had_is_made_again() -> None:
    job = Job(GRAPH)
    job.assemble(())
    waiting = set(job.state.slots.requests)
    job.lose("te-9")
    again = bodies(job.say(), resource_manager.RequestSlot)
    assert {each.allocation_id for each in again} == waiting
    assert job.say() == []


def test_what_a_task_executor_offers_without_having_read_of_its_loss_is_not_heard() -> None:
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


def test_a_slot_in_which_all_has_finished_is_freed_after_a_while() -> None:
    job = running(GRAPH, {"slot.idle.timeout": "10 s"})
    for vertex_id in ("source", "sink"):
        assert all(each.step is SlotStep.ALLOCATED for each in job.state.slots.slots.values())
        job.report(job.execution(vertex_id, 1), FINISHED)
    (idle,) = [each for each in job.state.slots.slots.values() if each.step is SlotStep.AVAILABLE]
    assert job.say() == []
    assert job.tick(9.9) == []
    (freed,) = bodies(job.tick(0.2), task_executor.FreeSlot)
    assert (freed.allocation_id, freed.reason) == (idle.allocation_id, "idle for 10 s in job j")
    assert idle.allocation_id not in job.state.slots.slots
    assert job.state.status is JobStatus.RUNNING


def test_an_idle_slot_is_used_again_where_another_one_is_lost() -> None:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    for vertex_id in ("source", "sink"):
        job.report(job.execution(vertex_id, 1), FINISHED)
    (idle,) = [each for each in job.state.slots.slots.values() if each.step is SlotStep.AVAILABLE]
    lost = job.execution("sink", 0)
    assert lost.resource_id is not None
    job.lose(lost.resource_id)
    submitted = bodies(job.tick(2), task_executor.SubmitTask)
    assert {each.allocation_id for each in submitted} == {idle.allocation_id}
    assert len(submitted) == 2


def test_a_slot_that_is_used_again_while_it_is_being_freed_is_given_up_for_another() -> None:
    job = running(GRAPH, {**DELAY, "slot.idle.timeout": "10 s"}, ("te-1", "te-2"))
    for vertex_id in ("source", "sink"):
        job.report(job.execution(vertex_id, 1), FINISHED)
    job.now += 11_000_000
    (freeing,) = job.owed()
    lost = job.execution("sink", 0)
    assert lost.resource_id is not None
    job.lose(lost.resource_id)
    said = job.say([freeing])
    assert bodies(said, task_executor.SubmitTask) == []
    assert len(bodies(job.tick(2), resource_manager.RequestSlot)) == 1
    assert len(bodies(job.give("te-3"), task_executor.SubmitTask)) == 2


def test_a_surplus_slot_is_given_back() -> None:
    job = running(GRAPH)
    job.offer("te-1", "an allocation that nobody knows")
    (rejected,) = bodies(job.say(), task_executor.SlotsRejected)
    assert rejected.allocation_ids == ("an allocation that nobody knows",)
    assert rejected.reason == "job j does not want it"


def test_an_offer_that_names_a_slot_twice_or_none_is_answered_as_if_it_did_not() -> None:
    job = Job(GRAPH, DELAY)
    job.assemble(())
    request = min(job.state.slots.requests)
    job.offer("te-1", request, request)
    job.offer("te-1")
    (answer,) = bodies(job.say(), task_executor.SlotsAccepted)
    assert answer.allocation_ids == (request,)
    assert not job.state.answers


def test_a_slot_that_is_held_and_offered_again_is_taken_again() -> None:
    job = running(GRAPH)
    held = min(job.state.slots.slots)
    before = job.state
    job.offer("te-1", held)
    (accepted,) = bodies(job.say(), task_executor.SlotsAccepted)
    assert accepted.allocation_ids == (held,)
    assert job.state == before


# Deployments


def test_what_one_task_executor_gets_of_a_vertex_at_once_is_one_deployment() -> None:
    job = Job(GRAPH)
    said = bodies(job.assemble(("te-1",)), task_executor.SubmitTask)
    assert [each.deployment_size for each in said] == [2, 2, 2, 2]
    assert len({each.deployment_id for each in said}) == 2
    assert len({(each.deployment_id, each.vertex_id) for each in said}) == 2


def test_a_deployment_keeps_its_id_and_size_when_a_leader_dies_in_the_middle_of_it() -> None:
    job = Job(GRAPH)
    job.tell(JOB, job_master.ChannelsCreated(job_id="j"))
    job.say()
    job.tell("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.say()
    hello = job_master.RegisterTaskManager(job_id="j", resource_id="te-1")
    job.tell("task_executor/te-1", hello)
    job.offer("te-1", *job.state.slots.requests)
    whole = job.owed()
    half = len(whole) - 3
    for each in whole[:half]:
        job.tell(JOB, each.body, recipient=each.recipient, cause=each.cause)
    assert job.owed() == whole[half:]


def test_a_neighbour_that_lost_its_slot_is_submitted_for_nothing_so_that_the_others_do_not_wait() -> None:
    job = Job(job_graph(source(parallelism=3)), DELAY)
    job.assemble(())
    job.tell("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.offer("te-1", *sorted(job.state.slots.requests))
    (first, second, third) = [each for each in job.owed() if isinstance(each.body, task_executor.SubmitTask)]
    job.tell(JOB, first.body, recipient=first.recipient, cause=first.cause)
    lost = job_master.FailSlot(allocation_id=third.body.allocation_id, reason="broken")  # type: ignore[attr-defined]
    job.tell("task_executor/te-1", lost)
    said = bodies(job.owed(), task_executor.SubmitTask)
    assert said == [second.body, third.body]
    job.say()
    again = job.execution("source", third.body.subtask_index)  # type: ignore[attr-defined]
    assert (again.attempt_number, again.state) == (1, ExecutionState.SCHEDULED)


# Lazily


def test_lazily_a_vertex_is_scheduled_when_some_of_each_of_its_producers_run() -> None:
    graph = job_graph(
        source("left"),
        source("right", parallelism=2),
        vertex("sink", parallelism=2, slot_sharing_group="sinks"),
        edge("left", "sink"),
        edge("right", "sink"),
    )
    job = Job(graph, {"execution.schedule-mode": "LAZY_FROM_SOURCES"})
    submitted = bodies(job.assemble(), task_executor.SubmitTask)
    assert {each.vertex_id for each in submitted} == {"left", "right"}
    assert job.execution("sink").state is ExecutionState.CREATED
    job.report(job.execution("left"), RUNNING)
    assert job.say() == []
    job.report(job.execution("right", 1), RUNNING)
    assert len(bodies(job.say(), resource_manager.RequestSlot)) == 2
    submitted = bodies(job.give("te-1"), task_executor.SubmitTask)
    assert [each.vertex_id for each in submitted] == ["sink", "sink"]


def test_lazily_a_vertex_that_shares_slots_goes_into_those_of_its_producers() -> None:
    job = Job(GRAPH, {"execution.schedule-mode": "LAZY_FROM_SOURCES"})
    job.assemble()
    job.report(job.execution("source", 1), RUNNING)
    said = job.say()
    assert bodies(said, resource_manager.RequestSlot) == []
    submitted = bodies(said, task_executor.SubmitTask)
    assert {each.allocation_id for each in submitted} == {
        each.allocation_id for each in job.executions() if each.vertex_id == "source"
    }
    assert job.state.had_all_slots
    assert job.state.channels is Handshake.DONE
