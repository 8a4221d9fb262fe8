"""The export of a running master: the same spans as those of the log, and no wait for the collector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from polling import wait_until
from trace_collector import Collector, run_collector

from tailrace.schemas.event import Event, Record
from tailrace.services.core.observed_replica import ObservedReplica
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.roles import master_roles
from tailrace.services.traces.otlp_exporters import OtlpHttpExporter
from tailrace.services.traces.reporter import TraceReporter
from tailrace.services.traces.span_builder import OFFSET

from .test_spans import event_spans, log_of, spans

NAME = "one_task_fails_and_is_restarted_alone"
MIDDLE = 36
"""An offset of this log between the first states of the tasks and the failure."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with run_collector() as running:
        yield running


class Master:
    """A replica with a reporter, as a jobmanager has them."""

    def __init__(self, collector: Collector, *, leads: bool = True, most_events: int = 10_000) -> None:
        self.leads = leads
        self.is_live = True
        self.log = MemoryEventLog(Codec("traces.log"), topic="traces.log")
        self.log.append([Event(record.header, record.body) for record in log_of(NAME)])
        exporter = OtlpHttpExporter(collector.url, "sim", timeout_s=60, pause=lambda _: None)
        self.reporter = TraceReporter(
            exporter,
            self.log,
            is_live=lambda: self.is_live,
            leads=lambda: self.leads,
            most_events=most_events,
        )
        self.replica = ObservedReplica(master_roles, [self.reporter])
        self.replica.telling = False

    def fold(self, records: Sequence[Record]) -> None:
        for record in records:
            self.replica.apply(record)


def test_leader_exports_the_spans_of_the_log(collector: Collector) -> None:
    master = Master(collector)
    master.reporter.start()
    master.fold(log_of(NAME))
    expected = {(span.trace_id, span.span_id, span.parent_span_id or "") for span in spans(NAME)}
    wait_until(lambda: len(collector.ids()) >= len(expected), "all spans")
    master.reporter.close()
    assert set(collector.ids()) == expected
    assert (master.reporter.exported, master.reporter.dropped) == (len(expected), 0)


def test_master_that_starts_later_continues_the_traces(collector: Collector) -> None:
    """It has not seen the causes, and reads them from the log."""
    master = Master(collector)
    master.is_live = False
    master.fold(log_of(NAME)[:MIDDLE])
    master.is_live = True
    master.reporter.start()
    master.fold(log_of(NAME)[MIDDLE:])
    later = {
        (span.trace_id, span.span_id, span.parent_span_id or "")
        for span in event_spans(spans(NAME)).values()
        if int(span.attributes[OFFSET]) >= MIDDLE
    }
    wait_until(lambda: later <= set(collector.ids()), "the spans of later events")
    master.reporter.close()


def test_standby_sends_nothing_until_it_leads(collector: Collector) -> None:
    master = Master(collector, leads=False)
    master.reporter.start()
    master.fold(log_of(NAME))
    wait_until(lambda: master.reporter.is_idle, "all events are taken")
    assert collector.paths == []
    master.leads = True
    wait_until(lambda: len(collector.ids()) == len(spans(NAME)), "the spans of the last minute")
    master.reporter.close()


def test_full_queue_drops_and_counts_and_never_waits(collector: Collector) -> None:
    master = Master(collector, most_events=10)
    # The thread does not run: nothing empties the queue.
    master.fold(log_of(NAME))
    assert master.reporter.dropped == len(log_of(NAME)) - 10
    master.reporter.start()
    wait_until(lambda: collector.ids(), "the spans of the queue")
    master.reporter.close()


def test_spans_wait_for_collector_that_fails(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.traces.reporter._RETRY_S", 0.01)
    collector.answers = [503] * 12
    master = Master(collector)
    master.reporter.start()
    master.fold(log_of(NAME))
    wait_until(lambda: len(collector.ids()) == len(spans(NAME)), "all spans")
    master.reporter.close()
    assert (master.reporter.exported, master.reporter.rejected) == (len(spans(NAME)), 0)


def test_refused_spans_are_counted(collector: Collector) -> None:
    collector.answers = [400] * 100
    master = Master(collector)
    master.reporter.start()
    master.fold(log_of(NAME))
    wait_until(lambda: master.reporter.rejected == len(spans(NAME)), "all spans are refused")
    master.reporter.close()


def test_close_sends_what_there_is(collector: Collector) -> None:
    master = Master(collector)
    master.reporter.start()
    master.fold(log_of(NAME))
    master.reporter.close()
    assert len(collector.ids()) == len(spans(NAME))
