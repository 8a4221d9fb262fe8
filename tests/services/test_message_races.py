"""Words that cross on the log: what is said too late, because the sender had not read yet what changed meanwhile."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from tailrace.schemas import dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, JobStatus, Origin, SlotOffer
from tailrace.services.configuration.role_options import ResourceManagerOptions
from tailrace.services.core.role import OutgoingEvent, with_headers

from .job_master.driver import Job
from .resource_manager.manager import ACTIVE, Manager, asked, of
from .simulated_cluster.cluster import HARDWARE, PROFILE, SECOND, Cluster, graph
from .simulated_cluster.jobs import in_single_slots, with_options
from .task_executor.log_builder import Talk


def running(parallelism: int = 1) -> Cluster:
    """j1 runs on te-1, and te-2 is there."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=parallelism)
    cluster.settle()
    cluster.submit("j1", graph(parallelism))
    cluster.settle()
    cluster.start_task_executor("te-2")
    cluster.settle()
    return cluster


def allocation(cluster: Cluster) -> str:
    """The first AllocationID of j1."""
    pool = cluster.replica.states["job_master/j1"].slots
    first: str = min((*pool.slots, *pool.requests))
    return first


def test_a_slot_that_another_task_executor_offers_again_is_turned_down() -> None:
    cluster = running()
    offer = SlotOffer(allocation_id=allocation(cluster), slot_number=0, resource_profile=PROFILE)
    body = job_master.OfferSlots(job_id="j1", resource_id="te-2", slots=(offer,))
    cluster.say("task_executor/te-2", "job_master/j1", body)
    cluster.settle()
    (rejection,) = cluster.said("SlotsRejected")
    assert rejection.header.recipient == "task_executor/te-2"
    job = cluster.replica.states["job_master/j1"]
    assert (job.status, len(job.slots.requests)) == (JobStatus.RUNNING, 0)
    assert job.slots.slots[allocation(cluster)].resource_id == "te-1"


def test_a_slot_that_was_offered_in_time_is_not_lost_to_a_timeout() -> None:
    cluster = running()
    body = job_master.SlotAllocationFailed(allocation_id=allocation(cluster), reason="too late")
    cluster.say("resource_manager", "job_master/j1", body)
    cluster.settle()
    assert cluster.replica.states["job_master/j1"].status is JobStatus.RUNNING


def test_a_task_that_is_deployed_into_a_lost_slot_does_not_keep_the_job_from_ending() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1", with_options(graph(), {"restart-strategy.type": "none"}))
    while not cluster.said("ChannelsCreated"):
        assert cluster.step()
    job_master_state = cluster.replica.states["job_master/j1"]
    deployments = cluster.replica.role("job_master/j1").decide(job_master_state, cluster.now)
    assert [each.body.AVRO_NAME.rpartition(".")[2] for each in deployments] == ["SubmitTask", "SubmitTask"]
    lost = job_master.FailSlot(allocation_id=allocation(cluster), reason="te-1 has left")
    cluster.say("resource_manager", "job_master/j1", lost)
    for each in deployments:
        cluster.say("job_master/j1", each.recipient, each.body, cause=each.cause)
    assert cluster.replica.states["job_master/j1"].status is JobStatus.FAILING
    cluster.on_run = lambda *_: None
    cluster.settle()
    (finished,) = cluster.said("JobFinished")
    assert finished.body.status is JobStatus.FAILED  # type: ignore[attr-defined]
    assert finished.body.reason.endswith(" (1) and 1 more on te-1: te-1 has left")  # type: ignore[attr-defined]


def test_a_task_executor_that_does_not_answer_a_slot_request_fails_the_job_with_its_name() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1")
    while not cluster.said("task_executor.RequestSlot"):
        assert cluster.step()
    role, state = cluster.replica.role("resource_manager"), cluster.replica.states["resource_manager"]
    deadline = role.deadline(state)
    assert deadline == cluster.now + ResourceManagerOptions().slot_request_timeout
    assert role.decide(state, deadline - 1) == []
    (owed,) = role.decide(state, deadline)
    assert "TaskExecutor te-1 does not answer the request for its slot 0" in owed.body.reason  # type: ignore[attr-defined]


def test_a_task_executor_that_registers_while_the_cluster_ends_is_told_to_leave() -> None:
    cluster = running()
    cluster.say("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="asked to"))
    while not cluster.said("resource_manager.ShutDownCluster"):
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
    cluster.say("task_executor/te-3", "resource_manager", body)
    cluster.settle()
    assert cluster.replica.states["task_executor/te-3"].left
    (terminated,) = cluster.said("ClusterTerminated")
    assert terminated.body.reason == "asked to"  # type: ignore[attr-defined]
    assert terminated.header.time < cluster.now + SECOND


def test_a_refusal_that_comes_late_does_not_open_the_way_for_what_was_admitted_before() -> None:
    cluster = Cluster()
    cluster.start_master()
    said = with_headers(
        [OutgoingEvent("dispatcher", dispatcher.CancelJob(job_id="nobody"), None)],
        cluster="sim",
        sender="client/test",
        epoch=0,
        decided_at=0,
        now=cluster.now,
        numbers=itertools.count(),
    )[0]
    source = Origin(topic="sim.submissions", partition=0, offset=6)
    admitted = Record(len(cluster.log), replace(said.header, origin=source), said.body)
    cluster.log.append(admitted)
    cluster.replica.apply(admitted)
    refused = dispatcher.SubmissionRefused(source=replace(source, offset=5), reason="garbage")
    cluster.say("dispatcher", "dispatcher", refused)
    assert cluster.replica.states["dispatcher"].positions[0] == 7


def test_an_idle_slot_that_is_used_again_while_it_is_being_freed_is_replaced() -> None:
    job = Job(in_single_slots(2), {"slot.idle.timeout": "1 s"})
    job.assemble()
    job.runs()
    job.report(job.execution("source"), ExecutionState.FINISHED)
    job.now += 2 * SECOND
    (freed,) = job.owed()
    assert isinstance(freed.body, task_executor.FreeSlot)
    lost = job.execution("sink", 1)
    fails = job_master.FailSlot(allocation_id=lost.allocation_id or "", reason="broken")
    job.tell("task_executor/te-1", fails)
    again = job.execution("sink", 1)
    tree = job.state.sharing.trees[job.state.topology.slot_of(again.vertex)]
    assert tree.allocation_id == freed.body.allocation_id
    job.say([freed])
    said = job.tick(60)
    assert [each.body.AVRO_NAME.rpartition(".")[2] for each in said] == ["RequestSlot"]
    (submitted,) = [each.body for each in job.give("te-2") if isinstance(each.body, task_executor.SubmitTask)]
    assert (submitted.subtask_index, submitted.attempt_number) == (1, 1)


def test_a_task_that_is_submitted_into_a_slot_just_lost_leaves_the_deployment_that_was_next() -> None:
    job = Job(graph(1))
    job.assemble()
    job.runs()
    first = job.executions()[0]
    job.report(first, ExecutionState.FAILED, "broken")
    job.now += 60 * SECOND
    late = job.owed()
    assert [type(each.body) for each in late] == [task_executor.SubmitTask]
    job.lose("te-1")
    job.say(late)
    job.tick(60)
    submitted = [each.body for each in job.give("te-2") if isinstance(each.body, task_executor.SubmitTask)]
    assert {each.deployment_size for each in submitted} == {1}
    assert {each.attempt_number for each in submitted} == {1, 2}


def test_no_worker_is_started_for_a_request_that_only_somebody_elses_slots_fit() -> None:
    manager = Manager(ACTIVE)
    manager.job()
    large = replace(PROFILE, cpu_cores=2.0)
    manager.register("te-1", 1, profile=large)
    manager.settle()
    manager.request("a", profile=large)
    assert asked(manager.settle()) == [("a", "te-1")]
    manager.accept("a")
    manager.request("b", profile=large)
    started = [each.resource_id for each in of(resource_manager.StartWorker, manager.settle())]
    assert started == ["worker-1"]
    manager.hear("resource_manager", resource_manager.WorkerStarted(resource_id="worker-1", address="sim"))
    manager.register("worker-1", 2)
    assert of(resource_manager.StartWorker, manager.settle()) == []


def test_a_task_executor_tells_what_became_of_a_slot_in_the_order_in_which_it_happened() -> None:
    talk = Talk(1)
    talk.hold("a")
    talk.hear(task_executor.FreeSlot(allocation_id="a", reason="not needed"), "job_master/j")
    talk.allocate("b")
    names = [each.body.AVRO_NAME.rpartition(".")[2] for each in talk.settle()]
    assert names.index("NotifySlotAvailable") < names.index("SlotRequestAccepted")
