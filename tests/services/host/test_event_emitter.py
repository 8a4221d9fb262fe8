"""Events are appended in the order in which they are emitted, and no caller waits for that."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from polling import TIMEOUT_S
from services.simulated_cluster.cluster import HARDWARE, PROFILE, header

from tailrace.schemas.event import Event
from tailrace.schemas.resource_manager import RegisterTaskExecutor
from tailrace.services.host.event_emitter import EventEmitter
from tailrace.services.log import LogUnavailable


def event(number: int) -> Event:
    body = RegisterTaskExecutor(
        address=str(number),
        resource_id="te",
        data_port=0,
        hardware=HARDWARE,
        number_of_slots=1,
        default_slot_profile=PROFILE,
    )
    return Event(header("task_executor/te", "resource_manager", time=number), body)


def test_events_are_appended_in_order_while_log_is_slow() -> None:
    appended: list[Event] = []
    batches: list[int] = []
    open_gate = threading.Event()

    def append(events: Sequence[Event]) -> None:
        assert open_gate.wait(TIMEOUT_S)
        appended.extend(events)
        batches.append(len(events))

    voice = EventEmitter(append, lambda error: None)
    output = [event(number) for number in range(100)]
    for outgoing_event in output:
        voice.emit(outgoing_event)
    assert appended == []
    open_gate.set()
    voice.close()
    assert appended == output
    assert len(batches) < len(output), "what gathers is appended together"


def test_failure_is_reported_once_and_no_event_follows() -> None:
    failures: list[Exception] = []
    attempts: list[int] = []

    def append(events: Sequence[Event]) -> None:
        attempts.append(len(events))
        raise LogUnavailable("gone")

    voice = EventEmitter(append, failures.append)
    voice.emit(event(1))
    voice.close()
    voice.emit(event(2))
    voice.close()
    assert [str(error) for error in failures] == ["gone"]
    assert attempts == [1]
