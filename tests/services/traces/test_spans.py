"""The spans of simulated logs: each event is one span of one trace, and the same log gives the same spans."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.event import Event, Record
from tailrace.schemas.states import JOB_ENDS
from tailrace.schemas.types import ExecutionState, Origin
from tailrace.services.core.role import JOB_MASTER, kind_of
from tailrace.services.job_master.state import StartedJob
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.traces.reader import read_spans
from tailrace.services.traces.rpcs import CLIENT_REQUESTS, RPCS
from tailrace.services.traces.span import Span
from tailrace.services.traces.span_builder import (
    CHECKPOINT,
    JOB_INITIALIZATION,
    JOB_RUNNING,
    OFFSET,
    SpanBuilder,
)
from tailrace.services.traces.traced_event import from_record

from ..simulated_cluster.cluster import new_replica
from ..snapshots.simulated_logs import HISTORIES, history

CLIENT_CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def with_origins(records: Sequence[Record]) -> list[Record]:
    """Returns the log as a real Dispatcher admits it: requests have an origin."""
    admitted = []
    for record in records:
        header = record.header
        if type(record.body) in CLIENT_REQUESTS and header.cause is None:
            origin = Origin(topic="sim.submissions", partition=0, offset=record.offset)
            record = Record(record.offset, replace(header, origin=origin), record.body)
        admitted.append(record)
    return admitted


@functools.cache
def log_of(name: str | int) -> tuple[Record, ...]:
    return tuple(with_origins(history(name)))


def spans_of(records: Iterable[Record]) -> list[Span]:
    log = MemoryEventLog(Codec("traces.log"), topic="traces.log")
    log.append([Event(record.header, record.body) for record in records])
    return list(read_spans(log))


@functools.cache
def spans(name: str | int) -> tuple[Span, ...]:
    return tuple(spans_of(log_of(name)))


def event_spans(found: Iterable[Span]) -> dict[int, Span]:
    """Returns offset -> the span of that event. Fails if an event has several."""
    of_events = [span for span in found if span.name not in (JOB_INITIALIZATION, JOB_RUNNING)]
    by_offset = {int(span.attributes[OFFSET]): span for span in of_events}
    assert len(by_offset) == len(of_events)
    return by_offset


def check_traces(records: Sequence[Record], found: Sequence[Span]) -> None:
    """Asserts what holds for the spans of every log."""
    by_id = {(span.trace_id, span.span_id): span for span in found}
    assert len(by_id) == len(found) == len({span.span_id for span in found})
    of_events = event_spans(found)
    assert sorted(of_events) == [record.offset for record in records]
    roots = Counter(span.trace_id for span in of_events.values() if span.parent_span_id is None)
    assert set(roots) == {span.trace_id for span in found}
    assert set(roots.values()) == {1}
    for span in found:
        assert span.start <= span.end
        if span.parent_span_id is not None:
            parent = by_id[span.trace_id, span.parent_span_id]
            assert parent.start <= span.start
    by_offset = {record.offset: record for record in records}
    for offset, span in of_events.items():
        cause = by_offset[offset].header.cause
        if cause is None:
            assert (span.parent_span_id, span.links) == (None, ())
        elif span.parent_span_id is None:
            (link,) = span.links
            assert (link.trace_id, link.span_id) == (of_events[cause].trace_id, of_events[cause].span_id)
        else:
            assert (span.trace_id, span.parent_span_id) == (
                of_events[cause].trace_id,
                of_events[cause].span_id,
            )


@pytest.mark.parametrize("name", HISTORIES)
def test_every_event_is_one_span_below_its_cause(name: str | int) -> None:
    check_traces(log_of(name), spans(name))


@pytest.mark.parametrize("name", HISTORIES)
def test_same_log_gives_same_spans(name: str | int) -> None:
    assert spans_of(log_of(name)) == list(spans(name))


@pytest.mark.parametrize("name", HISTORIES)
def test_clocks_that_differ_change_no_ids_and_no_order(name: str | int) -> None:
    rng = random.Random(str(name))
    shifts = {record.header.sender: rng.randrange(-(10**9), 10**9) for record in log_of(name)}
    skewed = [
        Record(
            record.offset,
            replace(record.header, time=max(0, record.header.time + shifts[record.header.sender])),
            record.body,
        )
        for record in log_of(name)
    ]
    check_traces(skewed, spans_of(skewed))


@pytest.mark.parametrize("name", HISTORIES)
def test_builder_that_forgets_gives_same_places(name: str | int) -> None:
    """A master remembers few events, and reads the others again: ids and parents are the same."""
    records = log_of(name)
    forgetful = SpanBuilder(lambda offset: from_record(records[offset]), most_places=1)
    found = [span for record in records for span in forgetful.add(from_record(record))]
    found += forgetful.close()
    assert event_spans(found) == event_spans(spans(name))


@pytest.mark.parametrize("name", HISTORIES)
def test_bounded_builder_makes_a_span_of_every_event(name: str | int) -> None:
    """It remembers one place, one open span, and the checkpoint of this span."""
    records = log_of(name)
    bounded = SpanBuilder(lambda offset: from_record(records[offset]), most_places=1, most_open=1)
    found: list[Span] = []
    for record in records:
        found += bounded.add(from_record(record))
        assert bounded.remembered <= 3
    found += bounded.close()
    assert event_spans(found).keys() == event_spans(spans(name)).keys()


@pytest.mark.parametrize("name", HISTORIES)
def test_builder_that_begins_later_continues_traces(name: str | int) -> None:
    records = log_of(name)
    middle = len(records) // 2
    late = SpanBuilder(lambda offset: from_record(records[offset]))
    found = [span for record in records[middle:] for span in late.add(from_record(record))]
    found += late.close()
    expected = event_spans(spans(name))
    for offset, span in event_spans(found).items():
        assert (span.trace_id, span.span_id, span.parent_span_id, span.links, span.start) == (
            expected[offset].trace_id,
            expected[offset].span_id,
            expected[offset].parent_span_id,
            expected[offset].links,
            expected[offset].start,
        )


@pytest.mark.parametrize("name", HISTORIES)
def test_every_accepted_job_has_one_root(name: str | int) -> None:
    of_events = event_spans(spans(name))
    by_span_id = {span.span_id: span for span in of_events.values()}
    for record in log_of(name):
        if isinstance(record.body, client.JobAccepted):
            span = of_events[record.offset]
            while span.parent_span_id is not None:
                span = by_span_id[span.parent_span_id]
            assert (span.name, span.job_id) == ("SubmitJob", record.body.job_id)
    starts = [record for record in log_of(name) if isinstance(record.body, job_master.StartJob)]
    traces = {record.header.recipient: of_events[record.offset].trace_id for record in starts}
    assert len(set(traces.values())) == len(traces)


@pytest.mark.parametrize("name", HISTORIES)
def test_request_ends_with_its_first_answer(name: str | int) -> None:
    of_events = event_spans(spans(name))
    answers: dict[int, int] = {}
    by_offset = {record.offset: record for record in log_of(name)}
    for record in log_of(name):
        request = by_offset.get(-1 if record.header.cause is None else record.header.cause)
        if request is not None and type(record.body) in RPCS.get(type(request.body), ()):
            answers.setdefault(request.offset, record.offset)
    for offset, span in of_events.items():
        if type(by_offset[offset].body) in RPCS:
            assert span.attributes.get("tailrace.answer") == answers.get(offset)
            if offset in answers:
                assert span.end == of_events[answers[offset]].start
            else:
                assert span.end == span.start


def test_all_rpcs_occur_and_are_answered_to_their_sender() -> None:
    """Else the table would say nothing."""
    pairs = set()
    for name in HISTORIES:
        by_offset = {record.offset: record for record in log_of(name)}
        for record in by_offset.values():
            request = by_offset.get(-1 if record.header.cause is None else record.header.cause)
            if request is not None and type(record.body) in RPCS.get(type(request.body), ()):
                assert request.header.sender == record.header.recipient
                pairs.add(type(request.body))
    assert pairs == set(RPCS)


@pytest.mark.parametrize("name", HISTORIES)
def test_client_request_ends_with_the_answer_in_its_trace(name: str | int) -> None:
    of_events = event_spans(spans(name))
    for record in log_of(name):
        if type(record.body) in CLIENT_REQUESTS:
            span = of_events[record.offset]
            answers = [
                other.offset
                for other in log_of(name)
                if type(other.body) in CLIENT_REQUESTS[type(record.body)]
                and of_events[other.offset].trace_id == span.trace_id
            ]
            assert span.attributes.get("tailrace.answer") == (min(answers) if answers else None)


@pytest.mark.parametrize("name", HISTORIES)
def test_checkpoint_is_a_span_until_its_end(name: str | int) -> None:
    of_events = event_spans(spans(name))
    ends = {
        (kind_of(record.header.sender) and record.header.sender, checkpoint_id): record
        for record in log_of(name)
        if (checkpoint_id := ended_checkpoint(record)) is not None
    }
    for record in log_of(name):
        if not isinstance(record.body, job_master.CheckpointTriggered):
            continue
        span = of_events[record.offset]
        end = ends.get((record.header.sender, record.body.checkpoint_id))
        assert span.name == CHECKPOINT
        assert span.attributes["checkpointId"] == record.body.checkpoint_id
        assert (span.parent_span_id is None) is not bool(record.body.requests)
        if end is None:
            assert (span.attributes["checkpointStatus"], span.end) == ("IN_PROGRESS", span.start)
        elif isinstance(end.body, job_master.CheckpointCompleted):
            assert (span.attributes["checkpointStatus"], span.error) == ("COMPLETED", None)
            assert span.attributes["fullSize"] == end.body.checkpoint.size
            assert span.end == of_events[end.offset].start
        else:
            assert span.attributes["checkpointStatus"] == "FAILED"


def ended_checkpoint(record: Record) -> int | None:
    match record.body:
        case job_master.CheckpointCompleted(checkpoint=checkpoint):
            return int(checkpoint.checkpoint_id)
        case job_master.CheckpointAborted(checkpoint_id=checkpoint_id):
            return int(checkpoint_id)
        case _:
            return None


@pytest.mark.parametrize("name", HISTORIES)
def test_job_runs_while_all_its_tasks_run(name: str | int) -> None:
    replica, running = new_replica(on_illegal=lambda *_: None), set[str]()
    begun: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for record in log_of(name):
        for role_address in replica.apply(record):
            state = replica.states.get(role_address)
            runs = isinstance(state, StartedJob) and state.is_fully_running and state.status not in JOB_ENDS
            if kind_of(role_address) == JOB_MASTER and runs is not (role_address in running):
                (running.add if runs else running.discard)(role_address)
                (begun if runs else ended)[role_address] += 1
    found = spans(name)
    assert Counter(span.sender for span in found if span.name == JOB_RUNNING) == ended
    initialized = [span for span in found if span.name == JOB_INITIALIZATION]
    assert Counter(span.sender for span in initialized if span.error is None) <= begun
    assert all(span.attributes["startTs"] <= span.attributes["endTs"] for span in initialized)


@pytest.mark.parametrize("name", HISTORIES)
def test_failed_task_is_an_exception_of_its_span(name: str | int) -> None:
    of_events = event_spans(spans(name))
    for record in log_of(name):
        match record.body:
            case job_master.UpdateTaskExecutionState(execution_state=ExecutionState.FAILED, failure=failure):
                span = of_events[record.offset]
                assert span.error == (failure or "job_master.UpdateTaskExecutionState")
                (event,) = span.events
                assert (event.name, event.attributes["exception.message"]) == ("exception", span.error)
            case job_master.UpdateTaskExecutionState():
                assert (of_events[record.offset].error, of_events[record.offset].events) == (None, ())
            case client.JobRejected():
                root = of_events[record.header.cause or 0]
                assert root.name != "SubmitJob" or root.error is not None
            case _:
                pass


def test_histories_have_what_the_laws_are_about() -> None:
    names = Counter(span.name for name in HISTORIES for span in spans(name))
    assert min(names[name] for name in (CHECKPOINT, JOB_INITIALIZATION, JOB_RUNNING, "RestartScheduled")) > 3
    statuses = {span.attributes.get("checkpointStatus") for name in HISTORIES for span in spans(name)}
    assert statuses >= {"COMPLETED", "FAILED"}


def test_trace_context_of_client_is_the_parent_of_its_request() -> None:
    records = list(log_of("a_task_fails"))
    (submitted,) = [record for record in records if isinstance(record.body, dispatcher.SubmitJob)]
    traced = Record(submitted.offset, replace(submitted.header, traceparent=CLIENT_CONTEXT), submitted.body)
    records[submitted.offset] = traced
    before, after = event_spans(spans("a_task_fails")), event_spans(spans_of(records))
    root = after[submitted.offset]
    _, trace_id, span_id, _ = CLIENT_CONTEXT.split("-")
    assert (root.trace_id, root.parent_span_id) == (trace_id, span_id)
    for offset, span in after.items():
        was_in_trace = before[offset].trace_id == before[submitted.offset].trace_id
        assert (span.trace_id == trace_id) is was_in_trace


def test_part_of_log_gives_the_spans_that_begin_in_it() -> None:
    log = MemoryEventLog(Codec("traces.log"), topic="traces.log")
    log.append([Event(record.header, record.body) for record in log_of("a_task_fails")])
    assert [each.attributes[OFFSET] for each in read_spans(log, start=7, end=9)] == [7, 8]
    whole = [span for span in read_spans(log) if span.job_id == "j1"]
    assert whole
    assert list(read_spans(log, job_id="j1")) == whole
