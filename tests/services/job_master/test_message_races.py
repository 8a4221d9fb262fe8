"""Any event is harmless between a decision of the JobMaster and its place in the log, in any state.

For each of the MOMENTS: the required events are sent, and one event of another sender comes in between. It is folded or
illegal, every state keeps its invariants, the JobMaster becomes idle, and a job that is then cancelled ends with all
its tasks confirmed and no slot held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tailrace.schemas import everyone, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.states import EXECUTION_ENDS, JOB_ENDS
from tailrace.schemas.types import ExecutionState, SlotOffer
from tailrace.services.core.role import IllegalEvent
from tailrace.services.job_master.execution_states import DEPLOYED

from ..simulated_cluster.cluster import PROFILE
from .driver import JOB, Job
from .states import MOMENTS

WAIT_S = 6
"""Longer than every delay in `moments`."""
REPORTED = (ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)


def happenings(job: Job) -> Iterator[tuple[str, Body]]:
    """Yields (sender, event): what others may send about the job."""
    yield "dispatcher", job_master.CancelJob(job_id="j")
    yield "dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance")
    yield "dispatcher", job_master.ResumeJob(job_id="j")
    yield "dispatcher", job_master.ResetOffsets(job_id="j", offsets=())
    yield JOB, job_master.ChannelsCreated(job_id="j")
    yield JOB, job_master.ChannelsFailed(job_id="j", reason="no room")
    yield "resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j")
    for te in ("te-1", "te-2", "te-9"):
        address = f"task_executor/{te}"
        yield "resource_manager", everyone.TaskExecutorLost(resource_id=te, reason="it has exited")
        yield JOB, job_master.HeartbeatTimedOut(resource_id=te, reason="no heartbeat")
        yield address, job_master.RegisterTaskManager(job_id="j", resource_id=te)
        yield address, job_master.DisconnectTaskManager(job_id="j", resource_id=te, reason="no more slots")
        ids = tuple(job.state.executions)
        yield (
            JOB,
            job_master.TasksContradicted(resource_id=te, execution_attempt_ids=ids, reason="not reported"),
        )
    pool = job.state.slots
    for allocation_id in sorted((*pool.slots, *pool.requests))[:2]:
        held = pool.slots.get(allocation_id)
        address = f"task_executor/{held.resource_id if held else 'te-1'}"
        for sender in ("resource_manager", address):
            yield sender, job_master.FailSlot(allocation_id=allocation_id, reason="broken")
        yield (
            "resource_manager",
            job_master.SlotAllocationFailed(allocation_id=allocation_id, reason="none is free"),
        )
        offer = SlotOffer(allocation_id=allocation_id, slot_number=7, resource_profile=PROFILE)
        for te in ("te-1", "te-9"):
            yield f"task_executor/{te}", job_master.OfferSlots(job_id="j", resource_id=te, slots=(offer,))
    for execution in job.executions()[::3]:
        for state in REPORTED:
            report = job_master.UpdateTaskExecutionState(
                job_id="j", execution_attempt_id=execution.execution_attempt_id, execution_state=state
            )
            yield f"task_executor/{execution.resource_id}", report


def end_job(job: Job) -> None:
    """Cancels the job, confirms everything, and checks that it ends; also a suspended job."""
    job.tick(WAIT_S)
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    job.send()
    for execution in job.executions():
        if execution.state in DEPLOYED:
            job.report(execution, ExecutionState.CANCELED)
    job.send()
    state = job.state
    assert state.status in JOB_ENDS
    assert state.has_ended
    assert (state.counts.unfinished, state.requested) == (0, None)
    assert all(execution.state in EXECUTION_ENDS for execution in job.executions())
    assert not state.slots.slots
    assert not state.slots.requests
    assert not state.outbox
    assert job.role.deadline(state) is None


@pytest.mark.parametrize("moment", MOMENTS)
def test_interleaved_event_is_harmless(moment: Callable[[], Job]) -> None:
    for number in range(len(list(happenings(moment())))):
        length = None
        place = 0
        while length is None or place <= length:
            job = moment()
            job.now += WAIT_S * 1_000_000
            events = job.owed()
            length = len(events)
            sender, body = list(happenings(job))[number]
            recipient = "*" if isinstance(body, everyone.TaskExecutorLost) else JOB
            for event in events[:place]:
                job.receive(JOB, event.body, recipient=event.recipient, cause=event.cause)
            with contextlib.suppress(IllegalEvent):
                job.receive(sender, body, recipient=recipient)
            for event in events[place:]:
                job.receive(JOB, event.body, recipient=event.recipient, cause=event.cause)
            job.send()
            end_job(job)
            place += 1


@pytest.mark.parametrize("moment", MOMENTS)
def test_duplicate_event_of_other_sender_is_harmless(
    moment: Callable[[], Job],
) -> None:
    for number in range(len(moment().log)):
        job = moment()
        job.tick(WAIT_S)
        record = job.log[number]
        if record.header.sender == JOB and record.header.recipient != JOB:
            continue
        with contextlib.suppress(IllegalEvent):
            job.receive(record.header.sender, record.body, recipient=record.header.recipient)
        job.send()
        end_job(job)
