"""The log lines of a replica about ignored events, and the addresses that it reports as changed."""

from __future__ import annotations

from structlog.testing import capture_logs

from tailrace.schemas import job_master
from tailrace.schemas.event import Record
from tailrace.services.core.replica import IllegalEventReporter
from tailrace.services.core.role import IllegalEvent

from ..simulated_cluster.cluster import header, start_cluster

RECORD = Record(
    7, header("task_executor/te-1", "job_master/j"), job_master.TaskAcknowledged(execution_attempt_id="a")
)


def test_illegal_events_are_logged_at_limited_rate_and_the_rest_counted() -> None:
    now = 0.0
    warnings = IllegalEventReporter(clock=lambda: now)
    with capture_logs() as reports:
        for _ in range(1_000):
            warnings(IllegalEvent(RECORD, "RUNNING", "no"), (RECORD,))
        now = 1.0
        warnings(IllegalEvent(RECORD, "RUNNING", "no"), (RECORD,))
    assert len(reports) == 11
    assert "passed_over" not in reports[0]
    assert reports[0]["story"] == ["7 tailrace.job_master.TaskAcknowledged from task_executor/te-1"]
    assert reports[-1]["passed_over"] == 990


def test_event_without_effect_changes_no_address() -> None:
    cluster = start_cluster("te-1")
    before = dict(cluster.replica.states)
    again = cluster.log[-1]
    for offset in (again.offset + 1, again.offset + 2):
        touched = cluster.replica.apply(Record(offset, again.header, again.body))
        for item, state in cluster.replica.states.items():
            assert (item in touched) == (state is not before.get(item))
        before = dict(cluster.replica.states)
