"""The adaptive scheduler: a job runs with the slots that there are, and takes more as they come."""

from __future__ import annotations

import pytest

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas import client, job_master, resource_manager, task_executor
from tailrace.schemas.types import (
    ExecutionState,
    JobStatus,
    ParallelismBounds,
    SnapshotType,
    VertexMeasurement,
)
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.instructions import CreateChannels, FindCheckpoint, MeasureTasks
from tailrace.services.job_master.job_status import ACTIVE

from ...graphs import edge, job_graph, operator, vertex
from ..simulated_cluster.cluster import SECOND
from .checkpointed import ON_REQUEST, Checkpointed, bodies
from .driver import JOB, submissions

KEY = "jobmanager.adaptive-scheduler"
OPTIONS = {
    **ON_REQUEST,
    f"{KEY}.submission.resource-stabilization-timeout": "10 s",
    f"{KEY}.executing.resource-stabilization-timeout": "60 s",
    f"{KEY}.executing.cooldown-after-rescaling": "30 s",
}
GRAPH = job_graph(
    vertex("source", operator("source-operator", OperatorKind.KAFKA_SOURCE), parallelism=4),
    vertex("sink", parallelism=4, max_parallelism=8),
    edge("source", "sink"),
)
BOUNDS = {name: ParallelismBounds(lower_bound=1, upper_bound=4) for name in ("source", "sink")}


class Adaptive(Checkpointed):
    """A job whose vertices may have 1 to 4 subtasks; the test gives slots one by one."""

    def register(self) -> None:
        self.receive(JOB, job_master.ChannelsCreated(job_id="j"))
        self.send()
        self.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
        self.send()

    def give_some(self, resource_id: str, count: int) -> list[OutgoingEvent]:
        """A TaskExecutor offers slots for the first open requests."""
        requests = sorted(self.state.slots.requests.values(), key=lambda item: item.slot)[:count]
        assert len(requests) == count
        if resource_id not in self.state.connections:
            body = job_master.RegisterTaskManager(job_id="j", resource_id=resource_id)
            self.receive(f"task_executor/{resource_id}", body)
        self.offer(resource_id, *(request.allocation_id for request in requests))
        return self.send()

    def is_rescaled(self) -> list[OutgoingEvent]:
        """The cut that is taken completes, and the job starts from it."""
        self.acknowledged_by_all()
        self.written()
        self.ends()
        self.restored(self.checkpoints.candidates()[0])
        self.receive(JOB, job_master.ChannelsCreated(job_id="j"))
        self.send()
        self.runs()
        return self.send()

    @property
    def parallelism(self) -> int:
        (found,) = {each.parallelism for each in self.state.topology.in_order}
        return int(found)

    def lose_and_restart(self, resource_id: str) -> list[OutgoingEvent]:
        """A TaskExecutor is lost; the restart strategy lets its tasks wait for 2 s."""
        self.lose(resource_id)
        return self.send()


def job_of(bounds: dict[str, ParallelismBounds] | None = None, **more: str) -> Adaptive:
    job = Adaptive(GRAPH, {**OPTIONS, **more}, bounds=BOUNDS if bounds is None else bounds)
    job.register()
    return job


def started_with(slots: dict[str, int], **more: str) -> Adaptive:
    """Returns a job that runs with the slots of these TaskExecutors."""
    job = job_of(**more)
    for resource_id, count in slots.items():
        job.give_some(resource_id, count)
    if sum(slots.values()) < 4:
        job.tick(10)
        job.receive(JOB, job_master.ChannelsCreated(job_id="j"))
        job.send()
    job.runs()
    job.send()
    assert job.state.status is JobStatus.RUNNING
    assert job.parallelism == sum(slots.values())
    return job


def test_job_starts_with_slots_that_it_has_after_timeout() -> None:
    job = job_of()
    assert len(job.state.slots.requests) == 4
    job.give_some("te-1", 2)
    assert not bodies(job.tick(9), job_master.RescaleStarted)
    events = job.tick(1)
    (started,) = bodies(events, job_master.RescaleStarted)
    assert (started.is_adaptive, started.has_cut) == (True, False)
    assert started.parallelism == {"source": 2, "sink": 2}
    assert not submissions(events), "its channels are others"
    assert job.demanded(CreateChannels).job_graph.vertices[0].parallelism == 2
    job.receive(JOB, job_master.ChannelsCreated(job_id="j"))
    assert [(task.subtask_index, task.attempt_number) for task in submissions(job.send())] == [
        (0, 0),
        (1, 0),
    ] * 2
    job.runs()
    events = job.send()
    (answer,) = bodies(events, client.JobRescaled)
    assert answer.parallelism == {"source": 2, "sink": 2}
    assert job.state.status is JobStatus.RUNNING


def test_each_slot_that_comes_extends_the_wait() -> None:
    job = job_of()
    for _ in range(3):
        job.give_some("te-1", 1)
        assert not bodies(job.tick(9), job_master.RescaleStarted)
    assert bodies(job.tick(1), job_master.RescaleStarted)


def test_job_with_all_slots_starts_at_once() -> None:
    job = job_of()
    assert len(submissions(job.give_some("te-1", 4))) == 8
    assert job.parallelism == 4


def test_job_without_a_slot_waits() -> None:
    job = job_of()
    assert not job.tick(1_000)
    assert len(job.state.slots.requests) == 4


def test_denied_slot_starts_job_with_others_at_once() -> None:
    job = job_of()
    job.give_some("te-1", 1)
    denied = next(iter(job.state.slots.requests))
    job.receive("resource_manager", job_master.SlotAllocationFailed(allocation_id=denied, reason="too many"))
    events = job.send()
    assert not bodies(events, job_master.RestartSuppressed)
    (started,) = bodies(events, job_master.RescaleStarted)
    assert started.parallelism == {"source": 1, "sink": 1}
    assert "too many" in started.reason


def test_denied_slot_fails_job_below_lower_bound() -> None:
    bounds = {name: ParallelismBounds(lower_bound=2, upper_bound=4) for name in BOUNDS}
    job = job_of(bounds)
    job.give_some("te-1", 1)
    assert not bodies(job.tick(100), job_master.RescaleStarted)
    denied = next(iter(job.state.slots.requests))
    job.receive("resource_manager", job_master.SlotAllocationFailed(allocation_id=denied, reason="too many"))
    assert bodies(job.send(), job_master.RestartSuppressed)
    assert job.state.status not in ACTIVE


def test_job_from_savepoint_is_judged_at_its_parallelism() -> None:
    job = Adaptive(GRAPH, OPTIONS, savepoint_path="file:///s/1", bounds=BOUNDS)
    job.register()
    job.give_some("te-1", 1)
    job.tick(10)
    assert {each.parallelism for each in job.demanded(FindCheckpoint).job_graph.vertices} == {1}


def test_tasks_of_lost_slots_continue_in_slots_of_others() -> None:
    job = started_with({"te-1": 2, "te-2": 2})
    generation = job.state.generation
    job.lose_and_restart("te-2")
    job.tick(2)
    assert len(job.state.slots.requests) == 2
    assert not bodies(job.tick(7), job_master.SlotsShared)
    events = job.tick(1)
    (shared,) = bodies(events, job_master.SlotsShared)
    held = set(job.state.slots.slots)
    assert set(shared.slots.values()) == held, "the tasks are spread over the slots"
    assert bodies(events, resource_manager.CancelSlotRequest)
    again = submissions(events)
    assert {task.subtask_index for task in again} == {2, 3}
    assert {task.attempt_number for task in again} == {1}
    assert job.state.generation == generation, "they continue from their last commits"


def test_parallelism_fits_slots_left_by_a_cut() -> None:
    job = started_with({"te-1": 2, "te-2": 2})
    job.lose_and_restart("te-2")
    job.tick(2)
    job.tick(8)
    job.runs()
    events = job.send()
    (started,) = bodies(events, job_master.RescaleStarted)
    assert (started.parallelism, started.has_cut) == ({"source": 2, "sink": 2}, True)
    assert bodies(events, job_master.CheckpointTriggered)
    job.is_rescaled()
    assert (job.parallelism, len(job.state.slots.slots)) == (2, 2)
    assert not job.state.shares_slots
    optional = [each for each in job.state.slots.requests.values() if each.is_optional]
    assert len(optional) == 2, "it asks for the slots of a higher parallelism"


def test_second_loss_of_shared_slot_takes_all_its_tasks() -> None:
    job = started_with({"te-1": 1, "te-2": 1, "te-3": 1})
    job.lose_and_restart("te-3")
    job.tick(2)
    (shared,) = bodies(job.tick(8), job_master.SlotsShared)
    job.runs()
    (target,) = set(shared.slots.values())
    resource_id = job.state.slots.slots[target].resource_id
    job.lose_and_restart(resource_id)
    waiting = [each for each in job.executions() if each.state is ExecutionState.SCHEDULED]
    assert len(waiting) == 4, "two subtasks of two vertices were in it"
    job.tick(2)
    job.tick(10)
    job.runs()
    job.send()
    job.is_rescaled()
    assert job.parallelism == 1


def test_job_asks_for_optional_slots_without_end() -> None:
    job = started_with({"te-1": 2})
    requests = [each for each in job.log if isinstance(each.body, resource_manager.RequestSlot)]
    assert [each.body.is_optional for each in requests[-2:]] == [True, True]  # type: ignore[attr-defined]
    assert not job.tick(10_000), "nothing is asked again"
    assert len(job.state.slots.requests) == 2


def test_slots_that_come_are_kept_until_job_grows() -> None:
    job = started_with({"te-1": 2})
    job.give_some("te-2", 1)
    assert not job.tick(55), "slot.idle.timeout is over, and the slot is not idle"
    events = job.tick(5)
    (started,) = bodies(events, job_master.RescaleStarted)
    assert started.parallelism == {"source": 3, "sink": 3}
    job.is_rescaled()
    assert job.parallelism == 3


def test_job_with_all_wanted_slots_waits_for_cooldown_only() -> None:
    job = started_with({"te-1": 2})
    assert not bodies(job.give_some("te-2", 2), job_master.RescaleStarted)
    assert not bodies(job.tick(29), job_master.RescaleStarted)
    (started,) = bodies(job.tick(1), job_master.RescaleStarted)
    assert started.parallelism == {"source": 4, "sink": 4}
    job.is_rescaled()
    assert job.parallelism == 4
    assert not job.state.slots.requests


def test_lost_slot_comes_before_higher_parallelism() -> None:
    job = started_with({"te-1": 1, "te-2": 1})
    events = job.lose_and_restart("te-2")
    assert bodies(events, resource_manager.CancelSlotRequest), "optional requests are withdrawn"
    (request,) = job.state.slots.requests.values()
    assert not request.is_optional


def test_finished_task_ends_all_changes() -> None:
    job = started_with({"te-1": 2})
    job.report(job.execution("sink"), ExecutionState.FINISHED)
    job.send()
    assert not job.state.slots.requests
    assert job.state.parallelism_in_use == (2, 2)


@pytest.mark.parametrize(("upper", "slots"), [(1, 1), (3, 3), (8, 4)])
def test_request_changes_bounds(upper: int, slots: int) -> None:
    job = started_with({"te-1": 4})
    body = job_master.RescaleJob(
        job_id="j",
        bounds={name: ParallelismBounds(lower_bound=1, upper_bound=upper) for name in BOUNDS},
        requester="client/me",
    )
    job.receive("dispatcher", body)
    events = job.send()
    if upper < 4:
        events += job.is_rescaled()
    assert len(bodies(events, client.JobRescaled)) == 1
    assert job.parallelism == slots
    assert {each.upper_bound for each in job.state.rescaling.bounds.values()} == {upper}
    optional = [each for each in job.state.slots.requests.values() if each.is_optional]
    assert len(optional) == upper - slots


def measure(job: Adaptive, busy: float) -> list[OutgoingEvent]:
    """A window of the autoscaler ends, in which all subtasks were busy for a share of the time; the lag has grown if
    that is 1."""
    lag = 12_000 if busy == 1 else 0
    vertices = tuple(
        VertexMeasurement(
            vertex_id=vertex_id,
            parallelism=job.parallelism,
            records_in=1_000,
            records_out=1_000,
            busy=busy,
            back_pressured=0,
            pending_records=lag if vertex_id == "source" else None,
            pending_records_before=0 if vertex_id == "source" else None,
        )
        for vertex_id in BOUNDS
    )
    cause = job.demanded(MeasureTasks).cause
    job.now += 60 * SECOND
    job.receive(
        JOB, job_master.TasksMeasured(job_id="j", duration=60 * SECOND, vertices=vertices), cause=cause
    )
    return job.send()


def test_autoscaler_changes_bounds_and_job_follows_its_slots() -> None:
    options = {
        "job.autoscaler.enabled": "true",
        "job.autoscaler.scale-up.grace-period": "0 s",
        "job.autoscaler.stabilization.interval": "0 s",
    }
    job = started_with({"te-1": 4}, **options)
    (started,) = bodies(measure(job, 0.1), job_master.RescaleStarted)
    assert started.reason.startswith("the autoscaler: source from parallelism 4 to 2: ")
    job.is_rescaled()
    assert job.parallelism == 2
    job.tick(60)
    assert (len(job.state.slots.slots), len(job.state.slots.requests)) == (2, 0), "the others are given back"
    events = measure(job, 1.0)
    (started,) = bodies(events, job_master.RescaleStarted)
    assert not started.parallelism, "there are no more slots"
    assert [each.is_optional for each in bodies(events, resource_manager.RequestSlot)] == [True, True]
    assert {each.upper_bound for each in job.state.rescaling.bounds.values()} == {4}
    assert job.parallelism == 2
    job.give_some("te-2", 2)
    (started,) = bodies(job.tick(30), job_master.RescaleStarted)
    assert started.parallelism == {"source": 4, "sink": 4}
    job.is_rescaled()
    assert job.parallelism == 4


def test_upper_bound_above_maximum_parallelism_is_refused() -> None:
    job = started_with({"te-1": 4})
    bounds = {"sink": ParallelismBounds(lower_bound=1, upper_bound=9)}
    job.receive("dispatcher", job_master.RescaleJob(job_id="j", bounds=bounds, requester="client/me"))
    (failed,) = bodies(job.send(), client.RescaleFailed)
    assert "9" in failed.reason


def test_job_that_stops_with_savepoint_does_not_grow() -> None:
    job = started_with({"te-1": 2})
    job.ask(SnapshotType.SAVEPOINT, stops=True)
    job.send()
    job.give_some("te-2", 2)
    assert not bodies(job.tick(100), job_master.RescaleStarted)


def test_resumed_job_runs_with_slots_that_there_are() -> None:
    job = started_with({"te-1": 4})
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="maintenance"))
    job.send()
    job.ends()
    job.receive("dispatcher", job_master.ResumeJob(job_id="j"))
    job.send()
    job.register()
    job.give_some("te-2", 2)
    assert bodies(job.tick(10), job_master.SlotsShared), "its tasks have progress"
    job.runs()
    job.send()
    job.is_rescaled()
    assert job.parallelism == 2


def test_subtask_of_shared_slot_that_finishes_leaves_slot_to_others() -> None:
    job = started_with({"te-1": 1, "te-2": 1})
    job.lose_and_restart("te-2")
    job.tick(2)
    job.tick(8)
    for name in ("source", "sink"):
        job.report(job.execution(name, 0), ExecutionState.RUNNING) if job.execution(
            name, 0
        ).state is ExecutionState.DEPLOYING else None
        job.report(job.execution(name, 0), ExecutionState.FINISHED)
    job.send()
    (slot,) = job.state.slots.slots.values()
    assert slot.slot is not None
    assert not bodies(job.tick(1_000), task_executor.FreeSlot)


def test_denied_slots_do_not_extend_the_wait() -> None:
    job = started_with({"te-1": 2, "te-2": 2})
    job.lose_and_restart("te-2")
    for _ in range(4):
        job.tick(2)
        for allocation_id in sorted(job.state.slots.requests):
            denied = job_master.SlotAllocationFailed(allocation_id=allocation_id, reason="too many")
            job.receive("resource_manager", denied)
        job.send()
    assert bodies(job.tick(2), job_master.SlotsShared)
