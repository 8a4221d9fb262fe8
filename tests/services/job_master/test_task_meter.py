"""Measures tasks from what they count: two readings of all subtasks, and one report."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from tailrace.schemas import job_master
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.autoscaler import task_meter
from tailrace.services.job_master.autoscaler.task_meter import Counts, TaskCounts, TaskMeter, measure_vertices
from tailrace.services.job_master.instructions import MeasureTasks

TIMEOUT_S = 60
JOB = "job_master/j"


class Reader:
    """Gives the counts that the test sets, of the number of the reading; `asked` says how often."""

    def __init__(self) -> None:
        self.counts: Callable[[int], Counts] = lambda _: {}
        self.number = 0
        self.asked: queue.Queue[str] = queue.Queue()
        self.is_closed = False

    def read(self, job_id: str) -> Counts:
        self.number += 1
        counts = self.counts(self.number)
        self.asked.put(job_id)
        return counts

    def close(self) -> None:
        self.is_closed = True


def demand(cause: int, window: int = 50_000) -> MeasureTasks:
    return MeasureTasks("j", 0, window, Map({"a": 2}), cause)


def at(seconds: float) -> Counts:
    """Returns the counts of two subtasks after some time: one is busy half of the time, the other one always."""
    return {
        ("a", 0): TaskCounts(10 * seconds, 5 * seconds, seconds / 2, seconds / 2),
        ("a", 1): TaskCounts(30 * seconds, 15 * seconds, seconds),
    }


@pytest.fixture
def said() -> queue.Queue[OutgoingEvent]:
    return queue.Queue()


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def meter(
    said: queue.Queue[OutgoingEvent], reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TaskMeter]:
    monkeypatch.setattr(task_meter, "_PAUSE_S", 0.01)
    meter = TaskMeter(lambda _, owed: said.put(owed), reader)
    yield meter
    meter.close()
    assert reader.is_closed


def test_window_begins_when_all_subtasks_give_counts(
    meter: TaskMeter, reader: Reader, said: queue.Queue[OutgoingEvent]
) -> None:
    reader.counts = lambda _: {("a", 0): TaskCounts()}
    meter.follow(JOB, [demand(7)])
    for _ in range(3):
        assert reader.asked.get(timeout=TIMEOUT_S) == "j"
    assert said.empty()
    reader.counts = at
    owed = said.get(timeout=TIMEOUT_S)
    assert (owed.recipient, owed.cause) == (JOB, 7)
    assert isinstance(owed.body, job_master.TasksMeasured)
    assert owed.body.duration >= 50_000
    meter.follow(JOB, [demand(7)])
    assert said.empty(), "the same measurement is reported once"


def test_subtask_without_counts_is_missing(
    meter: TaskMeter, reader: Reader, said: queue.Queue[OutgoingEvent]
) -> None:
    reader.counts = lambda number: at(number) if number == 1 else {}
    meter.follow(JOB, [demand(7, 1)])
    body = said.get(timeout=TIMEOUT_S).body
    assert isinstance(body, job_master.TasksMeasured)
    assert body.vertices == ()


def test_void_measurement_is_not_reported(
    meter: TaskMeter, reader: Reader, said: queue.Queue[OutgoingEvent]
) -> None:
    meter.follow(JOB, [demand(7)])
    reader.asked.get(timeout=TIMEOUT_S)
    meter.follow(JOB, [])
    reader.counts = at
    meter.follow(JOB, [demand(9, 1)])
    assert said.get(timeout=TIMEOUT_S).cause == 9
    assert said.empty()


def counted(seconds: float, until: float) -> Counts:
    """Returns the counts of two subtasks that are always busy; one has counted its records until some time."""
    return {
        ("a", 0): TaskCounts(10 * until, 0, seconds, counted_s=until, counted_busy_s=until),
        ("a", 1): TaskCounts(10 * seconds, 0, seconds),
    }


def test_window_lasts_until_all_subtasks_have_counted(
    meter: TaskMeter, reader: Reader, said: queue.Queue[OutgoingEvent]
) -> None:
    reader.counts = lambda number: counted(100 + number, 90)
    meter.follow(JOB, [demand(7, 20_000)])
    for _ in range(5):
        reader.asked.get(timeout=TIMEOUT_S)
    assert said.empty()
    reader.counts = lambda _: counted(200, 110)
    body = said.get(timeout=TIMEOUT_S).body
    assert isinstance(body, job_master.TasksMeasured)
    (found,) = body.vertices
    assert (found.records_in, found.busy) == (20.0, 1.0)


def test_window_without_counts_ends_after_its_longest_time(
    meter: TaskMeter, reader: Reader, said: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_meter, "_LONGEST_S", 0.0)
    reader.counts = lambda number: counted(100 + number, 90)
    meter.follow(JOB, [demand(7, 20_000)])
    body = said.get(timeout=TIMEOUT_S).body
    assert isinstance(body, job_master.TasksMeasured)
    assert body.duration >= 200_000


@given(st.floats(1, 100), st.floats(0, 100), st.floats(0.1, 60), st.floats(0, 30))
def test_arrival_does_not_depend_on_when_tasks_count(
    rate: float, position: float, window_s: float, counted_s: float
) -> None:
    def at(end: float, position: float) -> Counts:
        return {
            ("a", 0): TaskCounts(busy_s=end, pending_records=1_000 + rate * end - position, position=position)
        }

    first, last = at(100, position), at(100 + window_s, position + counted_s)
    (found,) = measure_vertices({"a": 1}, first, last, window_s)
    assert found.records_arrived == pytest.approx(rate, abs=1e-3)


def test_rates_are_those_of_the_time_that_the_tasks_have_measured() -> None:
    (found,) = measure_vertices({"a": 2}, at(100), at(160), 61.0)
    assert (found.records_in, found.records_out, found.busy) == (40.0, 20.0, 1.0)
    assert (found.pending_records, found.records_consumed, found.partitions) == (None, None, None)


def test_lag_is_the_sum_over_the_task_executors() -> None:
    def lag(pending: float, position: float) -> Counts:
        return {
            ("a", 0): TaskCounts(
                position, 0, position, pending_records=pending, position=2 * position, partitions=2.0
            ),
            ("a", 1): TaskCounts(
                position, 0, position, pending_records=1.0, position=position, partitions=1.0
            ),
        }

    (found,) = measure_vertices({"a": 2}, lag(100, 10), lag(40, 70), 60.0)
    assert (found.pending_records, found.pending_records_before) == (41, 101)
    assert (found.records_consumed, found.partitions) == (3.0, 3)


@pytest.mark.parametrize(
    "last",
    [
        {},
        {**at(160), ("a", 1): TaskCounts(5, 0, 50, 60)},
        {**at(160), ("a", 1): TaskCounts(9_000, 0, 110)},
        {**at(160), ("a", 1): TaskCounts(9_000, 0, 160, pending_records=70)},
    ],
    ids=["gone", "counts anew", "reports late", "lag is new"],
)
def test_vertex_that_was_not_measured_wholly_is_missing(last: Counts) -> None:
    assert measure_vertices({"a": 2}, at(100), last, 60.0) == ()
