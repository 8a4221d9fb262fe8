"""The metrics of a jobmanager at every prefix of a log: the exposition can be read, counters never fall, and sums agree
with the states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tailrace.schemas.event import Record
from tailrace.schemas.types import JobStatus
from tailrace.services.core.observed_replica import ObservedReplica
from tailrace.services.core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, address
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.job_master.state import StartedJob
from tailrace.services.metrics import jobmanager, table
from tailrace.services.metrics.event_totals import EventTotals
from tailrace.services.metrics.exposition import create_registry, exposition
from tailrace.services.metrics.samples import Sample
from tailrace.services.metrics.table import Kind
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.resource_manager.task_manager_slot import SlotState
from tailrace.services.roles import master_roles

from ..simulated_cluster.cluster import new_replica
from ..snapshots.simulated_logs import HISTORIES, LONG, history

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SERIES = tuple[str, tuple[str, ...]]


class Prefix:
    """The states and totals after some events of a log, and the samples of them."""

    def __init__(self, states: Mapping[str, Any], totals: EventTotals, record: Record) -> None:
        self.states, self.totals, self.record = states, totals, record
        groups = jobmanager.sample_groups(states, totals, record.header.time)
        self.samples = [sample for group in groups for sample in group]

    def values(self, metric: table.Metric) -> list[float]:
        return [sample.value for sample in self.samples if sample.metric is metric]

    def jobs(self) -> list[StartedJob]:
        found = [state for state in self.states.values() if isinstance(state, StartedJob)]
        return [job for job in found if not job.has_ended]


def prefixes(name: str | int) -> Iterator[Prefix]:
    """Yields each prefix of a log. The states are of a plain replica, so that a counting one cannot change them."""
    totals = EventTotals()
    plain, counting = new_replica(on_illegal=lambda *_: None), ObservedReplica(master_roles, [totals])
    counting.telling = False
    for record in history(name):
        plain.apply(record)
        counting.apply(record)
        yield Prefix(plain.states, totals, record)


def series_of(samples: Sequence[Sample]) -> dict[SERIES, float]:
    return {(sample.metric.name, sample.labels): sample.value for sample in samples}


@pytest.mark.parametrize("name", HISTORIES)
def test_counters_never_fall(name: str | int) -> None:
    before: dict[SERIES, float] = {}
    for prefix in prefixes(name):
        now = series_of([sample for sample in prefix.samples if sample.metric.kind is Kind.COUNTER])
        fallen = {series for series in now.keys() & before.keys() if now[series] < before[series]}
        assert fallen == set(), prefix.record
        before = now


@pytest.mark.parametrize("name", HISTORIES)
def test_every_sample_is_finite_and_has_its_labels_once(name: str | int) -> None:
    for prefix in prefixes(name):
        assert all(len(sample.labels) == len(sample.metric.labels) for sample in prefix.samples)
        assert all(0 <= sample.value < float("inf") for sample in prefix.samples)
        assert len(series_of(prefix.samples)) == len(prefix.samples)


@pytest.mark.parametrize("name", HISTORIES)
def test_sums_agree_with_states(name: str | int) -> None:
    for prefix in prefixes(name):
        manager = prefix.states.get(RESOURCE_MANAGER) or ResourceManagerState()
        slots = [
            slot for worker in manager.slot_manager.slots.workers.values() for slot in worker.slots.values()
        ]
        open_requests = [each for each in manager.slot_manager.requests.known.values() if not each.fulfilled]
        running = [job for job in prefix.jobs() if job.status is JobStatus.RUNNING]
        assert prefix.values(table.TASK_MANAGERS) == [len(manager.workers)]
        assert prefix.values(table.SLOTS_TOTAL) == [len(slots)]
        assert prefix.values(table.SLOTS_AVAILABLE) == [sum(slot.state is SlotState.FREE for slot in slots)]
        assert prefix.values(table.OPEN_SLOT_REQUESTS) == [len(open_requests)]
        assert prefix.values(table.RUNNING_JOBS) == [len(running)]
        assert sum(prefix.values(table.EVENTS)) == prefix.record.offset + 1


@pytest.mark.parametrize("name", HISTORIES)
def test_jobs_have_series_until_they_end(name: str | int) -> None:
    for prefix in prefixes(name):
        dispatcher = prefix.states.get(DISPATCHER) or DispatcherState()
        expected = {job.job_id for job in prefix.jobs() if job.job_id in dispatcher.live}
        assert {sample.labels[0] for sample in prefix.samples if "job_id" in sample.metric.labels} == expected
        for job in prefix.jobs():
            totals = prefix.totals.for_job(address(JOB_MASTER, job.job_id))
            assert set(totals.triggered) == set(job.checkpoints.pending)
            assert not (job.is_fully_running and totals.down_since is not None)


@pytest.mark.parametrize("name", HISTORIES)
def test_every_triggered_checkpoint_is_counted_once(name: str | int) -> None:
    begun: dict[str, int] = {}
    for prefix in prefixes(name):
        for job in prefix.jobs():
            # A job that was suspended begins again, with the ids that follow.
            before = begun.setdefault(job.job_id, job.checkpoints.counter)
            totals = prefix.totals.for_job(address(JOB_MASTER, job.job_id))
            counted = totals.completed + totals.failed + len(totals.triggered)
            assert counted == job.checkpoints.counter - before
        begun = {job.job_id: begun[job.job_id] for job in prefix.jobs()}


def test_histories_have_what_is_counted() -> None:
    """Else the laws above would say nothing."""
    largest: dict[table.Metric, float] = {}
    for name in HISTORIES:
        for prefix in prefixes(name):
            for sample in prefix.samples:
                largest[sample.metric] = max(largest.get(sample.metric, 0), sample.value)
    of_process = {
        table.IS_LEADER,
        table.MASTER_LOG_POSITION,
        table.MASTER_LOG_LAG,
        table.MASTER_OMITTED,
        table.SPANS_EXPORTED,
        table.SPANS_REJECTED,
        table.SPANS_DROPPED,
    }
    master = {*table.SECTIONS["Jobmanagers"], *table.SECTIONS["Jobs, at jobmanagers"]} - of_process
    assert set(largest) == master
    # The checkpoints of the simulation have no content.
    assert {metric for metric, value in largest.items() if value > 0} == master - {table.CHECKPOINT_SIZE}


@pytest.mark.parametrize("name", [*HISTORIES[:4], LONG])
@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_exposition_is_read_by_parser_of_prometheus(name: str | int, accept: str) -> None:
    read = read_openmetrics if accept else read_text
    shown: list[Sample] = []
    registry = create_registry(lambda: shown)
    for number, prefix in enumerate(prefixes(name)):
        if number % 7 == 0 or number < 30:
            shown[:] = prefix.samples
            content_type, content = exposition(registry, accept)
            assert content_type.startswith("application/openmetrics-text" if accept else "text/plain")
            found = {
                (sample.name, tuple(sample.labels.values())): sample.value
                for family in read(content.decode())
                for sample in family.samples
                if sample.name.startswith("tailrace_")
            }
            assert found == series_of(prefix.samples)


def test_name_of_job_with_special_characters_is_read_back() -> None:
    labels = "j", 'quotes " and \\ and\nlines {a="b"} ä'
    registry = create_registry(lambda: [Sample(table.JOB_UPTIME, labels, 1.5)])
    for read, accept in ((read_text, ""), (read_openmetrics, OPENMETRICS)):
        _, content = exposition(registry, accept)
        samples = [sample for family in read(content.decode()) for sample in family.samples]
        assert [tuple(each.labels.values()) for each in samples if each.value == 1.5] == [labels]
