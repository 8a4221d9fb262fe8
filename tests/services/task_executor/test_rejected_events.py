"""Every decision of a master fits into the log, whatever clients and TaskExecutors put into the fields of their
events."""

from __future__ import annotations

from typing import Any

import pytest
from example_count import example_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from tailrace.schemas import dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event
from tailrace.schemas.types import (
    AccumulatorSnapshot,
    CheckpointMetrics,
    ExecutionState,
    OperatorState,
    SubtaskAcknowledgement,
    SubtaskState,
)
from tailrace.services.core.reason_limits import LONGEST_REASON_CHARACTERS
from tailrace.services.heartbeats.task_executor import limit_snapshots
from tailrace.services.host.event_appender import EventAppender
from tailrace.services.host.job_failures import JobFailures
from tailrace.services.log import Codec
from tailrace.services.log.event_log import LARGEST_EVENT, EventRefused, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager.message_limits import find_error

from ...schemas.strategies import instances
from ..simulated_cluster.cluster import Cluster, graph, header, start_cluster

HUGE = "x" * 300_000
SAID = 100_000
"""Bytes that an event has at most beside a reason, and beside what a client's own request holds."""
TEXTS = st.sampled_from(("te", "j", "sim", HUGE, "\N{MATHEMATICAL BOLD CAPITAL X}" * 900))
PATHS = st.sampled_from(("memory://s", "nowhere", HUGE))
IDS = st.sampled_from(("te", HUGE))
JOBS = st.sampled_from(("j", "unknown", HUGE))
FROM_CLIENTS = (
    dispatcher.CancelJob,
    dispatcher.TriggerCheckpoint,
    dispatcher.TriggerSavepoint,
    dispatcher.StopWithSavepoint,
    dispatcher.DisposeSavepoint,
    dispatcher.RaiseFeatureLevel,
    dispatcher.ShutDownCluster,
    dispatcher.SubmitJob,
)
FROM_TASK_EXECUTORS = (
    resource_manager.RegisterTaskExecutor,
    resource_manager.SendSlotReport,
    resource_manager.NotifySlotAvailable,
    resource_manager.SlotRequestAccepted,
    resource_manager.SlotRequestRejected,
    resource_manager.DisconnectTaskManager,
)
_CODEC = Codec("c.log")


def size_of(event: Any) -> int:
    return len(_CODEC.encode(Event(event.header, event.body)))


def check(cluster: Cluster, sender: str, recipient: str, bodies: list[Body]) -> None:
    """Folds the events one after the other; all events that the roles then require are small apart from the given
    texts."""
    for body in bodies:
        given_bytes = size_of(cluster.log[cluster.send(sender, recipient, body)])
        before = len(cluster.log)
        for _ in range(30):
            cluster.step()
        for record in cluster.log[before:]:
            most = SAID + 4 * LONGEST_REASON_CHARACTERS + (given_bytes if sender.startswith("client") else 0)
            assert size_of(record) < most, f"{type(record.body).__name__} because of {type(body).__name__}"


def running() -> Cluster:
    cluster = start_cluster("te", slots=2)
    cluster.submit("j", graph(1))
    cluster.settle()
    cluster.submit("waits", graph(2))
    cluster.settle()
    return cluster


@settings(max_examples=example_count(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_decisions_after_events_of_task_executors_fit_into_log(data: st.DataObject) -> None:
    cluster = running()
    registered = cluster.events_of("TaskExecutorRegistrationSuccess")[-1].body
    allocations = [record.body.allocation_id for record in cluster.events_of("SlotRequestAccepted")]  # type: ignore[attr-defined]
    known: dict[str, st.SearchStrategy[Any]] = {
        "resource_id": IDS,
        "job_id": st.none() | JOBS,
        "allocation_id": st.none() | st.sampled_from((*allocations, HUGE)),
        "old_allocation_id": st.sampled_from((*allocations, HUGE)),
        "instance_id": st.sampled_from((registered.instance_id, HUGE)),  # type: ignore[attr-defined]
        "slot_number": st.sampled_from((0, 1, 2, -1, 2**31 - 1)),
        "reason": TEXTS,
        "address": TEXTS,
        "process_mark": TEXTS,
        "extended_resources": st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=2),
    }
    events = []
    for kind in data.draw(st.lists(st.sampled_from(FROM_TASK_EXECUTORS), min_size=1, max_size=3)):
        own = dict(known)
        if kind in (resource_manager.SlotRequestAccepted, resource_manager.SlotRequestRejected):
            own["allocation_id"] = known["old_allocation_id"]
        events.append(data.draw(instances(kind, own)))
    check(cluster, "task_executor/te", "resource_manager", events)


@settings(max_examples=example_count(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_decisions_after_events_of_clients_fit_into_log(data: st.DataObject) -> None:
    known = {"job_id": JOBS, "directory": st.none() | PATHS, "path": PATHS, "reason": TEXTS, "name": TEXTS}
    known |= {"target": TEXTS, "savepoint_path": st.none() | PATHS, "value": TEXTS}
    # The simulated shell raises any level that it is asked for.
    known["level"] = st.sampled_from((-(2**31), 0, 1))
    kinds = data.draw(st.lists(st.sampled_from(FROM_CLIENTS), min_size=1, max_size=3))
    check(running(), "client/c", "dispatcher", [data.draw(instances(kind, known)) for kind in kinds])


@settings(max_examples=example_count(40), deadline=None)
@given(body=st.sampled_from(FROM_TASK_EXECUTORS).flatmap(instances))
def test_registration_with_valid_fields_is_accepted(body: Body) -> None:
    assert find_error(body) is None


def test_text_above_limit_is_named() -> None:
    for kind in FROM_TASK_EXECUTORS:
        texts = [field.name for field in fields(kind) if field.type is str and field.name != "reason"]
        for name in texts:
            body = example(kind, **{name: HUGE})
            assert f"its {name} has a text of 300,000 characters" in (find_error(body) or "")


def example(kind: type[Body], **values: Any) -> Body:
    events: list[Body] = []

    @settings(max_examples=1, database=None, suppress_health_check=list(HealthCheck))
    @given(body=instances(kind, {name: st.just(value) for name, value in values.items()}))
    def draw(body: Body) -> None:
        events.append(body)

    draw()
    return events[0]


def test_oversized_report_fails_its_task_and_task_executor_continues() -> None:
    log = MemoryEventLog()
    appender = EventAppender(
        log, lambda role, error: JobFailures(lambda _: None).events_of(role, error) and []
    )
    ids = {"job_id": "j", "execution_attempt_id": "a"}
    unfit = {"x" * LARGEST_EVENT: 1.0}
    ended = job_master.UpdateTaskExecutionState(
        **ids, execution_state=ExecutionState.FINISHED, accumulators=unfit
    )
    acknowledged = job_master.AcknowledgeCheckpoint(
        job_id="j",
        checkpoint_id=1,
        acknowledgements=(
            SubtaskAcknowledgement(
                execution_attempt_id="a",
                metrics=CheckpointMetrics(),
                subtask_state=SubtaskState(operators={item: OperatorState() for item in unfit}),
            ),
        ),
    )
    own = Event(header("task_executor/te", "job_master/j"), ended)
    appender.append_all(
        [own, Event(own.header, acknowledged), Event(own.header, job_master.CancelJob(job_id="j"))]
    )
    failed, declined, last = [record.body for batch in read_to_end(log) for record in batch]
    assert isinstance(failed, job_master.UpdateTaskExecutionState)
    assert failed.execution_state is ExecutionState.FAILED
    assert "can't be written into the log" in (failed.failure or "")
    assert isinstance(declined, job_master.DeclineCheckpoint)
    assert isinstance(last, job_master.CancelJob)
    other = task_executor.HeartbeatTimedOut(peer="x" * LARGEST_EVENT, reason="")
    with pytest.raises(EventRefused):
        appender.append_all([Event(own.header, other)])


def test_heartbeat_with_many_accumulators_names_all_executions() -> None:
    counts = {f"{number}": 1.0 for number in range(300)}
    snapshots = [
        AccumulatorSnapshot(job_id="j", execution_attempt_id=f"{number}", user_accumulators=counts)
        for number in range(1_000)
    ]
    results = limit_snapshots(snapshots)
    assert [snapshot.execution_attempt_id for snapshot in results] == [
        snapshot.execution_attempt_id for snapshot in snapshots
    ]
    assert results[0] == snapshots[0]
    assert sum(len(result.user_accumulators) for result in results) <= 20_000
