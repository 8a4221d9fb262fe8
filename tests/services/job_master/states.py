"""Jobs in intermediate states: one function per state, so that a test can create the same one again."""

from __future__ import annotations

from tailrace.schemas import job_master
from tailrace.schemas.types import ExecutionState

from ...graphs import edge, job_graph, source, vertex
from .driver import Job, running

GRAPH = job_graph(source(parallelism=2), vertex("sink", parallelism=2), edge("source", "sink"))
DELAY = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "9",
    "restart-strategy.fixed-delay.delay": "2 s",
    "slot.idle.timeout": "5 s",
}


def before_registration() -> Job:
    return Job(GRAPH, DELAY)


def about_to_request_slots() -> Job:
    job = Job(GRAPH, DELAY)
    job.receive("job_master/j", job_master.ChannelsCreated(job_id="j"))
    job.send()
    job.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    return job


def waiting_for_slots() -> Job:
    job = about_to_request_slots()
    job.send()
    return job


def about_to_be_deployed() -> Job:
    job = waiting_for_slots()
    job.receive("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.offer("te-1", *sorted(job.state.slots.requests))
    return job


def deployed() -> Job:
    job = Job(GRAPH, DELAY)
    job.assemble(("te-1", "te-2"))
    return job


def lazily_half_deployed() -> Job:
    job = Job(GRAPH, {**DELAY, "execution.schedule-mode": "LAZY_FROM_SOURCES"})
    job.assemble()
    job.report(job.execution("source"), ExecutionState.RUNNING)
    return job


def waiting_for_a_restart() -> Job:
    job = running(GRAPH, DELAY)
    job.report(job.execution("sink"), ExecutionState.FAILED, "broken")
    return job


def about_to_request_another_slot() -> Job:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    job.lose("te-1")
    return job


def waiting_for_another_slot() -> Job:
    job = about_to_request_another_slot()
    job.tick(2)
    return job


def about_to_free_an_idle_slot() -> Job:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    for vertex_id in ("source", "sink"):
        job.report(job.execution(vertex_id, 1), ExecutionState.FINISHED)
    return job


def about_to_be_cancelled() -> Job:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    job.receive("dispatcher", job_master.CancelJob(job_id="j"))
    return job


def about_to_cancel_its_tasks() -> Job:
    job = about_to_be_cancelled()
    job.change_status()
    return job


def about_to_part_from_a_silent_task_executor() -> Job:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    job.receive("job_master/j", job_master.HeartbeatTimedOut(resource_id="te-1", reason="no heartbeat"))
    return job


def about_to_finish() -> Job:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    for execution in job.executions():
        job.report(execution, ExecutionState.FINISHED)
    return job


def about_to_give_everything_back() -> Job:
    job = about_to_finish()
    job.change_status()
    return job


def about_to_be_suspended() -> Job:
    job = running(GRAPH, DELAY, ("te-1", "te-2"))
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    return job


def suspending() -> Job:
    job = about_to_be_suspended()
    job.change_status()
    return job


def about_to_be_resumed() -> Job:
    job = suspending()
    job.send()
    for execution in job.executions():
        job.report(execution, ExecutionState.CANCELED)
    job.send()
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    return job


MOMENTS = [
    before_registration,
    about_to_request_slots,
    waiting_for_slots,
    about_to_be_deployed,
    deployed,
    lazily_half_deployed,
    waiting_for_a_restart,
    about_to_request_another_slot,
    waiting_for_another_slot,
    about_to_free_an_idle_slot,
    about_to_be_cancelled,
    about_to_cancel_its_tasks,
    about_to_part_from_a_silent_task_executor,
    about_to_finish,
    about_to_give_everything_back,
    about_to_be_suspended,
    suspending,
    about_to_be_resumed,
]
