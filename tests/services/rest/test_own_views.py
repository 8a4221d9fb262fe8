"""tailrace's own reads of states, over golden logs: they agree with Flink's."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.services.history import HistoryProjection
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.log.event_log import read_to_end
from tailrace.services.rest.api.attempts import attempts
from tailrace.services.rest.api.cluster import cluster
from tailrace.services.rest.api.jobs import job, jobs
from tailrace.services.rest.api.quarantines import quarantines
from tailrace.services.rest.api.subtasks import subtasks
from tailrace.services.rest.moment import Moment

from .views import view

LOGS = sorted((Path(__file__).parents[2] / "golden" / "0.1.0").glob("*.avro"))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_own_views_agree_with_those_of_flink(log: Path) -> None:
    fold = HistoryProjection()
    with closing(FileLog.open(log)) as source:
        for batch in read_to_end(source):
            for record in batch:
                fold.apply(record)
                # Every fifth prefix: all of them take long, and show no more.
                if record.offset % 5 == 0:
                    check(Moment(fold, record.header.time // 1000))


def check(moment: Moment) -> None:
    found, overview = cluster(moment, {}), view(moment, "/overview")
    slots = Counter(holder for each in found.task_executors for holder in each.slots)
    assert len(found.task_executors) == overview.taskmanagers
    blocked = overview.slots_free_and_blocked or 0
    assert (slots.total(), slots[-1]) == (overview.slots_total, overview.slots_available + blocked)
    apart = [each.id for each in found.task_executors if each.quarantine is not None]
    theirs_apart = [each.id for each in view(moment, "/taskmanagers").taskmanagers if each.blocked is True]
    assert (apart, len(apart)) == (theirs_apart, overview.taskmanagers_blocked or 0)
    listed = {each.task_executor or each.host for each in quarantines(moment, {}).quarantines}
    assert {each.id for each in found.task_executors} & listed <= set(apart)
    assert all(holder < len(found.jobs) for holder in slots)
    assert all(0 <= demand.job < len(found.jobs) and demand.count > 0 for demand in found.demands)
    summaries, theirs = jobs(moment, {}).jobs, view(moment, "/jobs/overview").jobs
    assert [(each.id, each.name, each.status) for each in summaries] == [
        (each.jid, each.name, each.state) for each in theirs
    ]
    for summary in summaries:
        assert job(moment, {"jobid": summary.job_id}).job == summary
        graph = view(moment, "/jobs/{jobid}", jobid=summary.id)
        vertices = attempts(moment, {"jobid": summary.id}).vertices
        assert [each.id for each in vertices] == [each.id for each in graph.vertices]
        for ours, flink in zip(vertices, graph.vertices, strict=True):
            states = Counter(list(each.times)[-1] for each in ours.attempts if each.is_current)
            assert states == Counter({state: count for state, count in flink.tasks.items() if count})
            found_subtasks = subtasks(moment, {"jobid": summary.id, "vertexid": ours.id}).subtasks
            assert [(each.subtask, each.attempt, each.task_executor) for each in found_subtasks] == [
                (each.subtask, each.attempt, each.task_executor) for each in ours.attempts if each.is_current
            ]
            assert Counter(each.state for each in found_subtasks) == states


def test_slots_that_are_missing_have_a_reason() -> None:
    """The requests of a job that wants more slots than there are wait, because no slot is free."""
    fold, reasons = HistoryProjection(), set()
    log = next(log for log in LOGS if log.stem == "a_job_wants_more_slots_than_there_are")
    with closing(FileLog.open(log)) as source:
        for batch in read_to_end(source):
            for record in batch:
                fold.apply(record)
                reasons |= {each.reason for each in cluster(Moment(fold, 0), {}).demands}
    assert "No slot is free." in reasons
