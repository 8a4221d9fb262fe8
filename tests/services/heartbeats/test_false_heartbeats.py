"""Heartbeats of outsiders and of earlier processes change nothing: they keep nobody alive and report for nobody."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from tailrace.schemas import job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import AccumulatorReport, AllocatedSlotReport
from tailrace.services.core.leadership import Leader, LeadershipState
from tailrace.services.core.role import OutgoingEvent, with_headers

from .test_heartbeats import Job, Master, beat, worker

LARGEST = 2**63 - 1
PRESENT = 3
LEADERS = ("dispatcher", "resource_manager", "task_executor/te", "task_executor/live", "task_executor/dead")
LEADERSHIP = LeadershipState(
    leaders=Map({role: Leader(PRESENT, f"{role}:1", "s", 1) for role in LEADERS}), forgotten_epoch=2
)
SENDERS = (
    *LEADERS,
    "job_master/j",
    "job_master/other",
    "client/c",
    "standby/s",
    "task_executor/gone",
    "",
    "te/x",
)
RECIPIENTS = (
    "resource_manager",
    "job_master/j",
    "task_executor/te",
    "task_executor/dead",
    "*",
    "dispatcher",
    "",
)
EPOCHS = (-LARGEST, -1, 0, 1, 2, PRESENT, PRESENT + 1, LARGEST)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.heartbeats.manager._LONGEST_WAIT_S", 0.0)


def of_epoch(event: Event, epoch: int) -> Event:
    return Event(replace(event.header, sender_epoch=epoch), event.body)


def bodies() -> st.SearchStrategy[Body]:
    names = st.sampled_from(("dead", "live", "te"))
    return st.one_of(
        st.builds(
            lambda name, position: resource_manager.HeartbeatFromTaskManager(
                resource_id=name, instance_id=f"{name}-1", position=position, slots=()
            ),
            names,
            st.sampled_from((-1, 0, 9, LARGEST)),
        ),
        st.builds(
            lambda name: job_master.HeartbeatFromTaskManager(
                job_id="j",
                resource_id=name,
                position=9,
                accumulator_report=AccumulatorReport(accumulator_snapshots=()),
            ),
            names,
        ),
        st.just(task_executor.HeartbeatFromResourceManager()),
        st.builds(
            lambda job_id: task_executor.HeartbeatFromJobManager(
                position=9,
                allocated_slot_report=AllocatedSlotReport(job_id=job_id, allocated_slot_infos=()),
            ),
            st.sampled_from(("j", "other")),
        ),
    )


def false_heartbeats(is_true: Callable[[Event], bool]) -> st.SearchStrategy[Event]:
    """Draws heartbeats with any header, except those that the dead process could send if it lived."""
    return st.builds(
        lambda body, sender, recipient, epoch: with_headers(
            [OutgoingEvent(recipient, body, None)],
            cluster="c",
            sender=sender,
            epoch=epoch,
            decided_at=0,
            now=0,
            numbers=itertools.count(),
        )[0],
        bodies(),
        st.sampled_from(SENDERS),
        st.sampled_from(RECIPIENTS),
        st.sampled_from(EPOCHS),
    ).filter(lambda event: not is_true(event))


def is_from_present_task_executor(event: Event) -> bool:
    body, header = event.body, event.header
    named = getattr(body, "resource_id", None)
    return header.sender_epoch == PRESENT and named is not None and header.sender == f"task_executor/{named}"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(false_heartbeats(is_from_present_task_executor), max_size=12))
def test_dead_task_executor_is_lost_whatever_outsiders_send(false: Sequence[Event]) -> None:
    results = []
    for sent in ([], false):
        master = Master(worker("live"), worker("dead"))
        master.bench.accepts = LEADERSHIP.accepts_heartbeat
        master.wrong = {"live", "dead"}  # Each SlotReport that is believed twice is reported.
        for _ in range(6):
            master.others.send(sent)
            master.others.send([of_epoch(beat("live"), PRESENT)])
            master.bench.passes(10)
        results.append(master.sent)
    assert results[0] == results[1]
    assert any(
        isinstance(body, resource_manager.WorkerLost) and body.resource_id == "dead" for _, body in results[0]
    )


def is_from_present_master(event: Event) -> bool:
    return event.header.sender_epoch == PRESENT and event.header.sender in (
        "resource_manager",
        "job_master/j",
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(false_heartbeats(is_from_present_master), max_size=12))
def test_silent_masters_are_reported_whatever_outsiders_send(false: Sequence[Event]) -> None:
    results: list[list[tuple[str, Any]]] = []
    for sent in ([], false):
        job = Job()
        for bench in (job.master, job.worker):
            bench.accepts = LEADERSHIP.accepts_heartbeat
        for _ in range(6):
            job.master.topic.send(sent)
            job.passes(10, master=False)
        results.append(job.sent)
    assert results[0] == results[1]
    assert {body.peer for _, body in results[0] if isinstance(body, task_executor.HeartbeatTimedOut)} == {
        "resource_manager",
        "job_master/j",
    }


@pytest.mark.parametrize("epoch", EPOCHS)
def test_only_present_epoch_counts(epoch: int) -> None:
    event = of_epoch(beat("live"), epoch)
    assert LEADERSHIP.accepts_heartbeat(Record(10**6, event.header, event.body)) is (epoch == PRESENT)
    # The offset of a heartbeat is not one of the log: nothing is compared with it.
    assert LEADERSHIP.accepts_heartbeat(Record(0, event.header, event.body)) is (epoch == PRESENT)
