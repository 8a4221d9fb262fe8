"""Jobs in BATCH mode: stages, the slots that they need, and what happens to them after failures."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.execution_graph import required_slots, stages_of
from tailrace.schemas import job_master, resource_manager
from tailrace.schemas.types import ExecutionState, JobGraph, JobStatus
from tailrace.services.job_master.slot_pool import SlotStep
from tailrace.services.job_master.state import StartedJob
from tailrace.services.job_master.topology import VertexKey

from ...graphs import edge, job_graph, source, vertex
from .driver import Job, bodies, submissions
from .test_slot_sharing import job_graphs

BATCH = {"execution.runtime-mode": "BATCH", "execution.bounded": "true"}
RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100"}
NO_DELAY = {"restart-strategy.fixed-delay.delay": "0 s"}


def in_stages(graph: JobGraph) -> JobGraph:
    return replace(graph, configuration={**graph.configuration, **BATCH})


def line(parallelism: int = 4) -> JobGraph:
    """Returns a graph of three stages."""
    names = ("source", "middle", "sink")
    vertices = [vertex(name, parallelism=parallelism) for name in names]
    return in_stages(job_graph(*vertices, edge("source", "middle"), edge("middle", "sink")))


def staged(graph: JobGraph, *resource_ids: str) -> Job:
    """Returns a job with its first slots."""
    job = Job(graph, {**BATCH, **RESTARTS, **NO_DELAY})
    job.assemble(resource_ids or ("te-1",))
    return job


def finish(job: Job, executions: list[str] | None = None) -> None:
    """Lets tasks that were submitted run and finish."""
    for execution in job.executions():
        wanted = executions is None or execution.execution_attempt_id in executions
        if wanted and execution.state is ExecutionState.DEPLOYING:
            job.report(execution, ExecutionState.RUNNING)
            job.report(job.execution(*execution.vertex), ExecutionState.FINISHED)


def without_profiles(graph: JobGraph) -> JobGraph:
    return replace(graph, vertices=tuple(replace(each, resource_profile=None) for each in graph.vertices))


def registered(job: Job) -> Job:
    """Returns the job when it may request slots."""
    job.receive("job_master/j", job_master.ChannelsCreated(job_id="j"))
    job.send()
    job.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.send()
    return job


def send_some(job: Job, draw: random.Random) -> None:
    """Sends some of the required events: a leader fails before it sends the others."""
    owed = job.owed()
    for event in owed[: draw.randint(0, len(owed))]:
        job.receive("job_master/j", event.body, recipient=event.recipient, cause=event.cause)


def offer_some(job: Job, resource_id: str, slots: int) -> None:
    """Offers slots for open requests, as far as the TaskExecutor has so many."""
    pending = [each for each in job.state.slots.requests.values() if each.step is SlotStep.PENDING]
    free = slots - len(job.state.slots.slots)
    if free <= 0 or not pending:
        return
    if resource_id not in job.state.connections:
        hello = job_master.RegisterTaskManager(job_id="j", resource_id=resource_id)
        job.receive(f"task_executor/{resource_id}", hello)
    job.offer(resource_id, *(each.allocation_id for each in pending[:free]))


def producers_of(job: Job, vertex_id: str) -> set[VertexKey]:
    vertices = job.state.topology.vertices
    return {
        (name, index) for name in vertices[vertex_id].producers for index in range(vertices[name].parallelism)
    }


def states(job: Job) -> Counter[tuple[str, ExecutionState]]:
    return Counter((execution.vertex_id, execution.state) for execution in job.executions())


@settings(deadline=None)
@given(graph=job_graphs())
def test_stage_is_longest_way_from_source_and_job_needs_slots_of_largest_stage(graph: JobGraph) -> None:
    stages = stages_of(in_stages(graph))
    for name in stages:
        before = [stages[each.source_vertex_id] for each in graph.edges if each.target_vertex_id == name]
        assert stages[name] == max((stage + 1 for stage in before), default=0)
    needed = []
    for stage in range(1 + max(stages.values())):
        inside = tuple(each for each in graph.vertices if stages[each.vertex_id] == stage)
        needed.append(required_slots(replace(graph, vertices=inside, edges=())))
    assert required_slots(in_stages(graph)) == max(needed) <= required_slots(graph)
    assert set(stages_of(graph).values()) == {0}


@settings(deadline=None)
@given(graph=job_graphs(), slots=st.integers(1, 3), seed=st.integers(0, 1 << 32))
def test_each_subtask_finishes_once_after_its_producers_in_few_slots_whatever_fails(
    graph: JobGraph, slots: int, seed: int
) -> None:
    # Leaders fail between their events, and the TaskExecutor with all slots is lost now and then.
    graph, draw = in_stages(without_profiles(graph)), random.Random(seed)
    job = registered(Job(graph, {**BATCH, **RESTARTS, **NO_DELAY}))
    finished: list[VertexKey] = []
    most, generation = 0, 0
    while job.state.status is not JobStatus.FINISHED:
        send_some(job, draw)
        if draw.random() < 0.1 and generation < 3:
            job.lose(f"te-{generation}")
            generation += 1
        offer_some(job, f"te-{generation}", slots)
        most = max(most, len(job.state.slots.slots))
        for execution in job.executions():
            if execution.state is ExecutionState.DEPLOYING and draw.random() < 0.3:
                assert producers_of(job, execution.vertex_id) <= set(finished)
                job.report(execution, ExecutionState.RUNNING)
            elif execution.state is ExecutionState.RUNNING and draw.random() < 0.3:
                job.report(execution, ExecutionState.FINISHED)
                finished.append(execution.vertex)
    assert sorted(finished) == sorted(job.state.current_attempts)
    assert most <= min(slots, required_slots(graph))


def test_job_of_three_stages_of_four_tasks_finishes_with_four_slots() -> None:
    job = staged(line(4))
    for name in ("source", "middle", "sink"):
        assert states(job)[(name, ExecutionState.DEPLOYING)] == 4
        finish(job)
        job.send()
    assert sum(isinstance(record.body, resource_manager.RequestSlot) for record in job.log) == 4
    assert job.state.status is JobStatus.FINISHED


def test_next_stage_waits_for_last_task_of_stage() -> None:
    job = staged(line(2))
    first, second = job.execution("source", 0), job.execution("source", 1)
    finish(job, [first.execution_attempt_id])
    job.send()
    assert states(job)[("middle", ExecutionState.CREATED)] == 2
    finish(job, [second.execution_attempt_id])
    assert [task.vertex_id for task in submissions(job.send())] == ["middle", "middle"]


def test_loss_of_task_executor_restarts_its_tasks_of_this_stage_only() -> None:
    job = staged(line(2), "te-1", "te-2")
    finish(job)
    job.send()
    lost = [
        each.vertex for each in job.executions() if each.resource_id == "te-2" and each.vertex_id == "middle"
    ]
    job.runs()
    job.lose("te-2")
    job.send()
    again = submissions(job.give("te-1"))
    assert [(task.vertex_id, task.subtask_index, task.attempt_number) for task in again] == [(*lost[0], 1)]
    assert states(job)[("source", ExecutionState.FINISHED)] == 2
    assert states(job)[("middle", ExecutionState.RUNNING)] == 1


def test_suspended_job_continues_with_its_stage() -> None:
    job = staged(line(2))
    finish(job)
    job.send()
    job.runs()
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="pause"))
    job.send()
    for execution in job.executions():
        if execution.state is ExecutionState.CANCELING:
            job.report(execution, ExecutionState.CANCELED)
    job.send()
    assert job.state.status is JobStatus.SUSPENDED
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    tasks = submissions(job.assemble(("te-2",)))
    assert {(task.vertex_id, task.attempt_number) for task in tasks} == {("middle", 1)}
    finish(job)
    job.send()
    finish(job)
    job.send()
    assert job.state.status is JobStatus.FINISHED


def test_denied_slot_is_no_failure_while_other_tasks_of_job_have_slots() -> None:
    job = registered(Job(line(2), BATCH))
    job.receive("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    first, second = sorted(job.state.slots.requests.values(), key=lambda each: each.slot)
    job.offer("te-1", first.allocation_id)
    job.send()
    denied = job_master.SlotAllocationFailed(allocation_id=second.allocation_id, reason="too few slots")
    job.receive("resource_manager", denied)
    assert not bodies(job.send(), resource_manager.RequestSlot)
    assert len(bodies(job.tick(60), resource_manager.RequestSlot)) == 1
    finish(job)
    assert [task.subtask_index for task in submissions(job.send())] == [1]
    assert job.state.status is JobStatus.RUNNING


def test_request_that_no_slot_meets_fails_job() -> None:
    job = registered(Job(line(1), BATCH))
    (request,) = job.state.slots.requests.values()
    denied = job_master.SlotAllocationFailed(allocation_id=request.allocation_id, reason="too few slots")
    job.receive("resource_manager", denied)
    job.send()
    assert job.state.status is JobStatus.FAILED


def test_job_in_stages_takes_no_checkpoint_and_starts_from_none() -> None:
    job = staged(line(1))
    assert job.state.options.checkpointing.interval is None
    job = Job(line(1), BATCH, savepoint_path="file:/savepoint")
    job.send()
    assert job.state.status is JobStatus.FAILED
    assert "BATCH mode" in job.state.reason


def test_unbounded_job_does_not_run_in_stages() -> None:
    graph = job_graph(source(), vertex("sink"), edge("source", "sink"))
    job = Job(graph, {"execution.runtime-mode": "BATCH"})
    assert isinstance(job.state, StartedJob)
    assert set(job.state.scheduled_vertices) == {"source", "sink"}
