"""Phases of a job: a new job and a terminated one do not change, whatever event they receive."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas import dispatcher, everyone, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import IllegalEvent
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.role import _STEPS
from tailrace.services.job_master.state import NewJob, TerminatedJob

from ...schemas.strategies import instances
from .driver import JOB, Job, running
from .states import GRAPH

KINDS = sorted(_STEPS.handlers, key=lambda kind: kind.AVRO_NAME)


def job_in(state: NewJob | TerminatedJob) -> Job:
    """Returns a job in this state."""
    job = Job(GRAPH)
    job.state = state
    return job


def terminated() -> TerminatedJob:
    """Returns the state of a job that has finished, and whose channels are deleted."""
    job = running(GRAPH)
    for execution in job.executions():
        job.report(execution, ExecutionState.FINISHED)
    job.send()
    job.receive(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert isinstance(job.state, TerminatedJob)
    return job.state


TERMINATED = terminated()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not job_master.StartJob])
@settings(max_examples=3)
@given(data=st.data())
def test_only_start_job_is_possible_for_new_job(kind: type[Body], data: st.DataObject) -> None:
    job = job_in(JobMaster().initial(JOB))
    body = data.draw(instances(kind))
    if kind.__module__ == everyone.__name__:
        job.receive("dispatcher", body, recipient="*")
    else:
        with pytest.raises(IllegalEvent, match="job j was not started"):
            job.receive("dispatcher", body)
    assert job.state == NewJob("j")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(data=st.data())
def test_terminated_job_is_the_same_once_its_answers_are_sent(kind: type[Body], data: st.DataObject) -> None:
    job = job_in(TERMINATED)
    body = data.draw(instances(kind))
    try:
        job.receive("dispatcher", body, cause=0)
    except IllegalEvent:
        assert job.state is TERMINATED
    job.send()
    is_forgotten = kind is dispatcher.JobsForgotten
    assert job.state == replace(TERMINATED, is_forgotten=is_forgotten)
    assert job.role.is_quiescent(job.state)
    assert job.role.is_over(job.state) is is_forgotten
