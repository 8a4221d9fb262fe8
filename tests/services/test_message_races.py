"""Messages that cross in the log: the sender had not read a change that came before."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from tailrace.schemas import dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, JobStatus, Origin, SlotOffer
from tailrace.services.configuration.role_options import ResourceManagerOptions
from tailrace.services.core.role import OutgoingEvent, with_headers

from ..submitted_tasks import submitted_tasks
from .job_master.driver import Job
from .resource_manager.manager import ACTIVE, Manager, events_of, requested_slots
from .simulated_cluster.cluster import HARDWARE, PROFILE, SECOND, Cluster, graph, start_cluster
from .simulated_cluster.jobs import in_single_slots, with_options
from .task_executor.log_builder import Driver


def running(parallelism: int = 1) -> Cluster:
    """Returns a cluster where j1 runs on te-1, and te-2 is idle."""
    cluster = start_cluster("te-1", slots=parallelism)
    cluster.submit("j1", graph(parallelism))
    cluster.settle()
    cluster.start_task_executor("te-2")
    cluster.settle()
    return cluster


def allocation(cluster: Cluster) -> str:
    """Returns the first AllocationID of j1."""
    pool = cluster.replica.states["job_master/j1"].slots
    first: str = min((*pool.slots, *pool.requests))
    return first


def test_slot_offered_again_by_other_task_executor_is_rejected() -> None:
    cluster = running()
    offer = SlotOffer(allocation_id=allocation(cluster), slot_number=0, resource_profile=PROFILE)
    body = job_master.OfferSlots(job_id="j1", resource_id="te-2", slots=(offer,))
    cluster.send("task_executor/te-2", "job_master/j1", body)
    cluster.settle()
    (rejection,) = cluster.events_of("SlotsRejected")
    assert rejection.header.recipient == "task_executor/te-2"
    job = cluster.replica.states["job_master/j1"]
    assert (job.status, len(job.slots.requests)) == (JobStatus.RUNNING, 0)
    assert job.slots.slots[allocation(cluster)].resource_id == "te-1"


def test_slot_offered_before_timeout_is_kept() -> None:
    cluster = running()
    body = job_master.SlotAllocationFailed(allocation_id=allocation(cluster), reason="too late")
    cluster.send("resource_manager", "job_master/j1", body)
    cluster.settle()
    assert cluster.replica.states["job_master/j1"].status is JobStatus.RUNNING


def test_task_submitted_into_lost_slot_does_not_block_end_of_job() -> None:
    cluster = start_cluster("te-1")
    cluster.submit("j1", with_options(graph(), {"restart-strategy.type": "none"}))
    while not cluster.events_of("ChannelsCreated"):
        assert cluster.step()
    job_master_state = cluster.replica.states["job_master/j1"]
    deployments = cluster.replica.role("job_master/j1").decide(job_master_state, cluster.now)
    assert [deployment.body.AVRO_NAME.rpartition(".")[2] for deployment in deployments] == [
        "SubmitTask",
        "SubmitTask",
    ]
    lost = job_master.FailSlot(allocation_id=allocation(cluster), reason="te-1 has left")
    cluster.send("resource_manager", "job_master/j1", lost)
    decisions = cluster.replica.role("job_master/j1").decide(
        cluster.replica.states["job_master/j1"], cluster.now
    )
    (verdict,) = [event for event in decisions if isinstance(event.body, job_master.RestartSuppressed)]
    for deployment in (verdict, *deployments):
        cluster.send("job_master/j1", deployment.recipient, deployment.body, cause=deployment.cause)
    assert cluster.replica.states["job_master/j1"].requested.status is JobStatus.FAILING
    cluster.starts_tasks = False
    cluster.settle()
    (finished,) = cluster.events_of("JobFinished")
    assert finished.body.status is JobStatus.FAILED  # type: ignore[attr-defined]
    assert finished.body.reason.endswith(" (1) and 1 more on te-1: te-1 has left")  # type: ignore[attr-defined]


def test_unanswered_slot_request_fails_job_and_names_task_executor() -> None:
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    while not cluster.events_of("task_executor.RequestSlot"):
        assert cluster.step()
    role, state = cluster.replica.role("resource_manager"), cluster.replica.states["resource_manager"]
    deadline = role.deadline(state)
    assert deadline == cluster.now + ResourceManagerOptions().slot_request_timeout
    assert role.decide(state, deadline - 1) == []
    (owed,) = role.decide(state, deadline)
    assert "TaskExecutor te-1 does not answer the request for its slot 0" in owed.body.reason  # type: ignore[attr-defined]


def test_task_executor_that_registers_during_shutdown_is_disconnected() -> None:
    cluster = running()
    cluster.send("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="asked to"))
    while not cluster.events_of("resource_manager.ShutDownCluster"):
        assert cluster.step()
    cluster.lead("task_executor/te-3")
    body = resource_manager.RegisterTaskExecutor(
        address="sim",
        resource_id="te-3",
        data_port=0,
        hardware=HARDWARE,
        number_of_slots=1,
        default_slot_profile=PROFILE,
    )
    cluster.send("task_executor/te-3", "resource_manager", body)
    cluster.settle()
    assert cluster.replica.states["task_executor/te-3"].left
    (terminated,) = cluster.events_of("ClusterTerminated")
    assert terminated.body.reason == "asked to"  # type: ignore[attr-defined]
    assert terminated.header.time < cluster.now + SECOND


def test_late_rejection_does_not_admit_older_submission() -> None:
    cluster = Cluster()
    cluster.start_master()
    event = with_headers(
        [OutgoingEvent("dispatcher", dispatcher.CancelJob(job_id="nobody"), None)],
        cluster="sim",
        sender="client/test",
        epoch=0,
        decided_at=0,
        now=cluster.now,
        numbers=itertools.count(),
    )[0]
    source = Origin(topic="sim.submissions", partition=0, offset=6)
    admitted = Record(len(cluster.log), replace(event.header, origin=source), event.body)
    cluster.log.append(admitted)
    cluster.replica.apply(admitted)
    refused = dispatcher.SubmissionRefused(source=replace(source, offset=5), reason="garbage")
    cluster.send("dispatcher", "dispatcher", refused)
    assert cluster.replica.states["dispatcher"].admitted[""].positions[0] == 7


def test_idle_slot_used_again_while_freed_is_replaced() -> None:
    job = Job(in_single_slots(2), {"slot.idle.timeout": "1 s"})
    job.assemble()
    job.runs()
    job.report(job.execution("source"), ExecutionState.FINISHED)
    job.now += 2 * SECOND
    (freed,) = job.owed()
    assert isinstance(freed.body, task_executor.FreeSlot)
    lost = job.execution("sink", 1)
    fails = job_master.FailSlot(allocation_id=lost.allocation_id or "", reason="broken")
    job.receive("task_executor/te-1", fails)
    job.judge()
    again = job.execution("sink", 1)
    tree = job.state.sharing.trees[job.state.topology.slot_of(again.vertex)]
    assert tree.allocation_id == freed.body.allocation_id
    job.send([freed])
    events = job.tick(60)
    assert [event.body.AVRO_NAME.rpartition(".")[2] for event in events] == ["RequestSlot"]
    (submitted,) = submitted_tasks(event.body for event in job.give("te-2"))
    assert (submitted.subtask_index, submitted.attempt_number) == (1, 1)


def test_task_submitted_into_lost_slot_leaves_next_deployment_unchanged() -> None:
    job = Job(graph(1))
    job.assemble()
    job.runs()
    first = job.executions()[0]
    job.report(first, ExecutionState.FAILED, "broken")
    job.judge()
    job.now += 60 * SECOND
    late = job.owed()
    assert [type(event.body) for event in late] == [task_executor.SubmitTask]
    job.lose("te-1")
    job.send(late)
    job.tick(60)
    submitted = submitted_tasks(event.body for event in job.give("te-2"))
    assert {task.deployment_size for task in submitted} == {1}
    assert {task.attempt_number for task in submitted} == {1, 2}


def test_no_worker_is_started_for_request_that_only_foreign_slots_match() -> None:
    manager = Manager(ACTIVE)
    manager.job()
    large = replace(PROFILE, cpu_cores=2.0)
    manager.register("te-1", 1, profile=large)
    manager.settle()
    manager.request("a", profile=large)
    assert requested_slots(manager.settle()) == [("a", "te-1")]
    manager.accept("a")
    manager.request("b", profile=large)
    started = [event.resource_id for event in events_of(resource_manager.StartWorker, manager.settle())]
    assert started == ["worker-1"]
    manager.receive("resource_manager", resource_manager.WorkerStarted(resource_id="worker-1", address="sim"))
    manager.register("worker-1", 2)
    assert events_of(resource_manager.StartWorker, manager.settle()) == []


def test_task_executor_reports_slot_changes_in_order() -> None:
    talk = Driver(1)
    talk.hold("a")
    talk.receive(task_executor.FreeSlot(allocation_id="a", reason="not needed"), "job_master/j")
    talk.allocate("b")
    names = [event.body.AVRO_NAME.rpartition(".")[2] for event in talk.settle()]
    assert names.index("NotifySlotAvailable") < names.index("SlotRequestAccepted")
