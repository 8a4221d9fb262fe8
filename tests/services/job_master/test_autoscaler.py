"""The autoscaler as a part of the JobMaster: when tasks are measured, and what becomes of decisions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas import client, job_master
from tailrace.schemas.types import ExecutionState, ParallelismBounds, SnapshotType, VertexMeasurement
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.autoscaler.coordinator import REQUESTER
from tailrace.services.job_master.instructions import MeasureTasks
from tailrace.services.job_master.rescale.state import RescalePhase

from ...graphs import edge, job_graph, operator, vertex
from ..simulated_cluster.cluster import SECOND
from .checkpointed import ON_REQUEST, Checkpointed, bodies, running
from .driver import JOB

SOURCE = vertex("source", operator("source-operator", OperatorKind.KAFKA_SOURCE), parallelism=2)
GRAPH = job_graph(SOURCE, vertex("sink", parallelism=2), edge("source", "sink"))
ENABLED = {
    **ON_REQUEST,
    "job.autoscaler.enabled": "true",
    "job.autoscaler.stabilization.interval": "20 s",
    "job.autoscaler.metrics.window": "60 s",
}


def job_of(**options: str) -> Checkpointed:
    """Returns a job that runs in two subtasks of two vertices."""
    given = {
        f"job.autoscaler.{key.replace('__', '.').replace('_', '-')}": text for key, text in options.items()
    }
    return running({**ENABLED, **given}, GRAPH)


def busy(share: float) -> tuple[VertexMeasurement, ...]:
    """Returns what is measured if both vertices are busy for a share of the time; the lag grows if that is 1."""
    lag = 12_000 if share == 1.0 else 0
    return tuple(
        VertexMeasurement(
            vertex_id=vertex_id,
            parallelism=2,
            records_in=1_000,
            records_out=1_000,
            busy=share,
            back_pressured=0,
            pending_records=lag if vertex_id == "source" else None,
            pending_records_before=0 if vertex_id == "source" else None,
        )
        for vertex_id in ("sink", "source")
    )


def measured(
    job: Checkpointed, vertices: tuple[VertexMeasurement, ...], cause: int | None = None
) -> list[OutgoingEvent]:
    """The shell reports a measurement; returns the events in response."""
    report(job, vertices, cause)
    return job.send()


def report(job: Checkpointed, vertices: tuple[VertexMeasurement, ...], cause: int | None = None) -> None:
    cause = job.demanded(MeasureTasks).cause if cause is None else cause
    job.now += 80 * SECOND
    body = job_master.TasksMeasured(job_id="j", duration=60 * SECOND, vertices=vertices)
    job.receive(JOB, body, cause=cause)


def test_tasks_are_measured_when_all_have_run_for_the_stabilization_interval() -> None:
    job = Checkpointed(GRAPH, ENABLED)
    job.assemble()
    assert job.demands(MeasureTasks) == []
    job.now += 7 * SECOND
    job.runs()
    job.send()
    demand = job.demanded(MeasureTasks)
    assert (demand.begins, demand.window) == (job.now + 20 * SECOND, 60 * SECOND)
    assert dict(demand.vertices) == {"source": 2, "sink": 2}


def test_nothing_is_measured_unless_it_is_enabled() -> None:
    assert running(ON_REQUEST, GRAPH).demands(MeasureTasks) == []


def test_decision_rescales_the_job() -> None:
    job = job_of()
    events = measured(job, busy(1.0))
    (decided,) = bodies(events, job_master.ScalingDecided)
    assert (decided.parallelism, decided.is_advice) == ({"source": 4, "sink": 4}, False)
    assert "1,200 records/s arrive" in decided.reason
    (started,) = bodies(events, job_master.RescaleStarted)
    assert started.parallelism == {"source": 4, "sink": 4}
    assert started.reason == f"the autoscaler: {decided.reason}"
    assert job.demands(MeasureTasks) == [], "nothing is measured while the job is rescaled"
    job.give("te-1")
    job.acknowledged_by_all()
    job.written()
    job.ends()
    job.restored(job.checkpoints.candidates()[0])
    job.runs()
    (answer,) = [each for each in job.send() if isinstance(each.body, client.JobRescaled)]
    assert answer.recipient == REQUESTER
    demand = job.demanded(MeasureTasks)
    assert (demand.begins, demand.vertices["sink"]) == (job.now + 20 * SECOND, 4)


def test_advice_changes_nothing() -> None:
    job = job_of(scaling__enabled="false")
    (decided,) = bodies(measured(job, busy(1.0)), job_master.ScalingDecided)
    assert (decided.parallelism, decided.is_advice) == ({"source": 4, "sink": 4}, True)
    assert job.state.rescaling.current is None
    assert not job.state.rescaling.requests
    assert job.demanded(MeasureTasks).begins == job.now, "the next window follows at once"


def test_windows_follow_one_another_while_nothing_changes() -> None:
    job = job_of()
    for _ in range(3):
        events = measured(job, busy(0.6))
        (decided,) = bodies(events, job_master.ScalingDecided)
        assert not decided.parallelism
        assert len(events) == 1
        assert job.demanded(MeasureTasks).begins == job.now
    assert [each.reason for each in job.state.autoscaling.decisions] == [
        "no vertex needs another parallelism: the busiest, source, is at 60 %"
    ]


def fail_task(job: Checkpointed) -> None:
    job.report(job.execution("sink"), ExecutionState.FAILED, "it fails")


def ask_to_rescale(job: Checkpointed) -> None:
    wanted = {"sink": ParallelismBounds(lower_bound=1, upper_bound=1)}
    job.receive("dispatcher", job_master.RescaleJob(job_id="j", bounds=wanted, requester="client/me"))


def suspend(job: Checkpointed) -> None:
    job.receive("dispatcher", job_master.SuspendJob(job_id="j", reason="a pause"))


def stop(job: Checkpointed) -> None:
    job.ask(SnapshotType.SAVEPOINT, stops=True)


@pytest.mark.parametrize("change", [fail_task, ask_to_rescale, suspend, stop])
@pytest.mark.parametrize("is_measured", [False, True])
def test_change_of_the_job_voids_the_measurement(
    change: Callable[[Checkpointed], None], is_measured: bool
) -> None:
    job = job_of()
    cause = job.demanded(MeasureTasks).cause
    if is_measured:
        report(job, busy(1.0))
    change(job)
    job.send()
    assert job.demands(MeasureTasks) == []
    assert not bodies(measured(job, busy(1.0), cause), job_master.ScalingDecided)
    assert not job.state.autoscaling.decisions


def test_measurement_of_an_earlier_window_is_ignored() -> None:
    job = job_of()
    cause = job.demanded(MeasureTasks).cause
    measured(job, busy(0.6))
    assert measured(job, busy(1.0), cause) == []


def test_decision_that_a_change_overtakes_is_void() -> None:
    job = job_of()
    report(job, busy(1.0))
    (decided,) = [each for each in job.owed() if isinstance(each.body, job_master.ScalingDecided)]
    suspend(job)
    job.receive(JOB, decided.body, cause=decided.cause)
    assert not job.state.rescaling.requests
    assert not job.state.autoscaling.decisions


def test_not_enough_measurements_decide_nothing() -> None:
    (decided,) = bodies(measured(job_of(), busy(1.0)[1:]), job_master.ScalingDecided)
    assert (decided.parallelism, decided.reason) == ({}, "there are not enough measurements of sink")


def test_impossible_change_is_said_and_not_requested() -> None:
    job = running({key: text for key, text in ENABLED.items() if key != "state.checkpoints.dir"}, GRAPH)
    events = measured(job, busy(1.0))
    (decided,) = bodies(events, job_master.ScalingDecided)
    assert not decided.parallelism
    assert decided.reason.startswith(
        "the cluster has no directory for checkpoints: set state.checkpoints.dir"
    )
    assert "wanted: source from parallelism 2 to 4" in decided.reason
    assert len(events) == 1


def test_failed_rescale_is_tried_again_in_the_next_window() -> None:
    job = job_of()
    (started,) = [
        each for each in measured(job, busy(1.0)) if isinstance(each.body, job_master.RescaleStarted)
    ]
    assert job.state.rescaling.is_in(RescalePhase.WAITING)
    (failed,) = [each for each in job.tick(600) if isinstance(each.body, client.RescaleFailed)]
    assert (failed.recipient, failed.cause) == (REQUESTER, started.cause)
    assert job.demanded(MeasureTasks).begins == job.now + 20 * SECOND
    assert bodies(measured(job, busy(1.0)), job_master.RescaleStarted)
