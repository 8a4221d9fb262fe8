"""What a replica tells people of what it ignores, and which addresses it says have changed."""

from __future__ import annotations

from structlog.testing import capture_logs

from tailrace.schemas import job_master
from tailrace.schemas.event import Record
from tailrace.services.core.replica import IllegalEventReporter
from tailrace.services.core.role import IllegalEvent

from ..simulated_cluster.cluster import Cluster, header

RECORD = Record(
    7, header("task_executor/te-1", "job_master/j"), job_master.TaskAcknowledged(execution_attempt_id="a")
)


def test_of_many_illegal_events_a_few_a_second_are_told_and_the_others_counted() -> None:
    now = 0.0
    warnings = IllegalEventReporter(clock=lambda: now)
    with capture_logs() as told:
        for _ in range(1_000):
            warnings(IllegalEvent(RECORD, "RUNNING", "no"), (RECORD,))
        now = 1.0
        warnings(IllegalEvent(RECORD, "RUNNING", "no"), (RECORD,))
    assert len(told) == 11
    assert "passed_over" not in told[0]
    assert told[0]["story"] == ["7 tailrace.job_master.TaskAcknowledged from task_executor/te-1"]
    assert told[-1]["passed_over"] == 990


def test_an_event_that_changes_nothing_touches_nobody() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    before = dict(cluster.replica.states)
    again = cluster.log[-1]
    for offset in (again.offset + 1, again.offset + 2):
        touched = cluster.replica.apply(Record(offset, again.header, again.body))
        for each, state in cluster.replica.states.items():
            assert (each in touched) == (state is not before.get(each))
        before = dict(cluster.replica.states)
