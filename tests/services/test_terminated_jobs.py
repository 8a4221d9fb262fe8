"""State of terminated jobs is compacted: each keeps little memory and costs nothing until somebody asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
import pytest
from msgspec.structs import replace

from tailrace.schemas import client, everyone, job_master, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, JobStatus, SlotOffer
from tailrace.services.core.role import IllegalEvent
from tailrace.services.history import HistoryProjection
from tailrace.services.history.cluster_view import jobs
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.state import JobMasterState, TerminatedJob

from .job_master.driver import JOB, Job, running
from .job_master.states import GRAPH
from .simulated_cluster.cluster import PROFILE, Cluster, graph, start_cluster

JOBS = 1_000


def values(data: object) -> Iterator[object]:
    """Yields all values in a state, and the state itself."""
    yield data
    if isinstance(data, msgspec.Struct):
        for field in data.__struct_fields__:
            yield from values(getattr(data, field))
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from values(key)
            yield from values(value)
    elif isinstance(data, list | tuple | set | frozenset):
        for item in data:
            yield from values(item)


def ended() -> Job:
    """Returns a job that has finished and whose JobMaster has sent all its events."""
    job = running(GRAPH)
    for execution in job.executions():
        job.report(execution, ExecutionState.FINISHED)
    job.send()
    assert not job.role.is_quiescent(job.state)
    job.receive(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert job.role.is_quiescent(job.state)
    return job


def test_broadcast_costs_nothing_for_a_thousand_terminated_jobs() -> None:
    cluster = start_cluster("te-1", slots=2)
    parallel = graph(2)
    for number in range(JOBS):
        cluster.submit(f"job-{number}", parallel)
        cluster.settle()
        cluster.finish_all()
        cluster.settle()
    replica = cluster.replica
    masters = [state for state in replica.states if state.startswith("job_master/")]
    assert len(masters) == JOBS
    assert sorted(replica.active_addresses) == ["dispatcher", "resource_manager", "task_executor/te-1"]

    evolved = Counter[str]()
    summary = max(sum(1 for _ in values(replica.states[master])) for master in masters)
    assert summary < 2 * len(TerminatedJob.__struct_fields__)
    assert not any(replica.recent_events(item) for item in masters)

    original = JobMaster.evolve

    def counted(self: JobMaster, state: JobMasterState, record: Record) -> JobMasterState:
        evolved[state.job_id] += 1
        return original(self, state, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobMaster, "evolve", counted)
        cluster.lose("te-1", "it has died")
        cluster.start_master()
        cluster.settle()
        assert not evolved
    assert dict(replica.states[masters[0]].tasks) == {ExecutionState.FINISHED: 5}


def test_client_gets_same_answers_before_and_after_compaction() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", 2)
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    fold, views = HistoryProjection(), []
    for record in cluster.log:
        fold.apply(record)
        views += [job for job in jobs(fold) if job.status is JobStatus.FINISHED]
    state = fold.replica.states["job_master/j1"]
    assert isinstance(state, TerminatedJob)
    assert {view.required_slots for view in views} == {2}
    last = views[-1]
    assert all(replace(view, ended=last.ended, reason=last.reason) == last for view in views)


LATE: list[tuple[str, Body]] = [
    ("dispatcher", job_master.CancelJob(job_id="j")),
    ("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance")),
    ("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j")),
    ("resource_manager", job_master.SlotAllocationFailed(allocation_id="a", reason="none")),
    ("resource_manager", job_master.FailSlot(allocation_id="a", reason="none")),
    (JOB, job_master.ChannelsCreated(job_id="j")),
    (JOB, job_master.ChannelsDeleted(job_id="j")),
    (JOB, job_master.ChannelsFailed(job_id="j", reason="no room")),
    (JOB, job_master.HeartbeatTimedOut(resource_id="te-1", reason="silence")),
    (JOB, job_master.TasksContradicted(resource_id="te-1", execution_attempt_ids=("x",), reason="no")),
    ("task_executor/te-1", job_master.DisconnectTaskManager(job_id="j", resource_id="te-1", reason="bye")),
    ("task_executor/te-1", job_master.TaskAcknowledged(execution_attempt_id="x")),
    ("resource_manager", everyone.TaskExecutorLost(resource_id="te-1", reason="it has died")),
]


@pytest.mark.parametrize(("sender", "body"), LATE, ids=lambda item: type(item).__name__)
def test_late_event_without_answer_leaves_terminated_job_unchanged(sender: str, body: Body) -> None:
    job = ended()
    before = job.state
    job.receive(sender, body)
    assert job.state is before


@pytest.mark.parametrize("body", ["start", "resume", "report"])
def test_impossible_event_of_terminated_job_is_illegal(body: str) -> None:
    job = ended()
    bodies: dict[str, Body] = {
        "start": job_master.StartJob(job_id="j", job_graph=GRAPH, configuration={}),
        "resume": job_master.ResumeJob(job_id="j"),
        "report": job_master.UpdateTaskExecutionState(
            job_id="j", execution_attempt_id="x", execution_state=ExecutionState.RUNNING, failure=None
        ),
    }
    before = job.state
    with pytest.raises(IllegalEvent):
        job.receive("dispatcher", bodies[body])
    assert job.state is before


def test_late_task_executor_is_answered_and_job_is_quiescent_again() -> None:
    job = ended()
    before = job.state
    job.receive("task_executor/te-7", job_master.RegisterTaskManager(job_id="j", resource_id="te-7"))
    assert not job.role.is_quiescent(job.state)
    (event,) = job.send()
    assert isinstance(event.body, task_executor.DisconnectJobManager)
    assert event.body.reason == f"Stopping JobMaster for job {GRAPH.name}(j)."
    assert job.state == before

    offer = SlotOffer(allocation_id="a", slot_number=0, resource_profile=PROFILE)
    job.receive("task_executor/te-7", job_master.OfferSlots(job_id="j", resource_id="te-7", slots=(offer,)))
    (event,) = job.send()
    assert isinstance(event.body, task_executor.SlotsRejected)
    assert job.state == before


def test_suspended_job_is_not_compacted() -> None:
    job = running(GRAPH)
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    for execution in job.executions():
        job.report(execution, ExecutionState.CANCELED)
    events = [event.body for event in job.send()]
    assert client.JobStatusChanged not in map(type, events)
    job.receive(
        "task_executor/te-1", job_master.DisconnectTaskManager(job_id="j", resource_id="te-1", reason="-")
    )
    assert job.owed() == []
    assert job.state.graph is not None
    assert not job.role.is_quiescent(job.state)
