"""Endless and broken chains of causes do no harm."""

from __future__ import annotations

import pytest

from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import ExecutionState, Header
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import ChainStart, EffectTree
from tailrace.services.history.entity_history.event_annotator import EventAnnotator
from tailrace.services.history.entity_history.failure_chains import FailureChains, Severity
from tailrace.services.log.memory import MemoryEventLog

FAILED = job_master.UpdateTaskExecutionState(
    job_id="j", execution_attempt_id="a", execution_state=ExecutionState.FAILED, failure="broken"
)


def event(number: int, cause: int | None, sender: str = "task_executor/te") -> Event:
    header = Header(
        event_id=str(number),
        time=number,
        sender=sender,
        sender_epoch=0,
        recipient="job_master/j",
        cause=cause,
    )
    return Event(header, FAILED)


def in_log(*events: Event | None) -> tuple[MemoryEventLog, EventAnnotator]:
    """Returns a log of the events; None stands for an undecodable record."""
    log, annotator = MemoryEventLog(), EventAnnotator()
    for offset, outgoing_event in enumerate(events):
        log.append_all([b"\x00garbage" if outgoing_event is None else outgoing_event])
        if outgoing_event is not None:
            annotator.annotate(Record(offset, outgoing_event.header, outgoing_event.body))
    return log, annotator


@pytest.mark.parametrize("length", [10, 63, 64, 65, 3000])
def test_chain_of_any_length_is_walked(length: int) -> None:
    log, annotator = in_log(*[event(index, index - 1 if index else None) for index in range(length)])
    chain = cause_chains.trace_causes(annotator, log, length - 1)
    assert [line.offset for line in chain.lines] == list(reversed(range(length)))
    assert chain.began is ChainStart.FACT


def test_tree_of_any_depth_is_cut_and_counted() -> None:
    length = 3000
    records = [Record(index, *_parts(event(index, index - 1 if index else None))) for index in range(length)]
    for everything in (True, False):
        annotator = EventAnnotator()
        result = EffectTree(0, annotator, everything=everything)
        for record in records:
            result.add(annotator.annotate(record))
        tree, depth = result.tree(), 0
        assert tree is not None
        assert result.count == length - 1
        while tree.effects:
            (tree,), depth = tree.effects, depth + 1
        assert tree.left_out == length - 1 - depth
        assert result.tree() is not None


def _parts(made: Event) -> tuple[Header, job_master.UpdateTaskExecutionState]:
    return made.header, FAILED


def test_undecodable_cause_is_named() -> None:
    log, annotator = in_log(event(0, None), None, event(2, 1), event(3, 2))
    chain = cause_chains.trace_causes(annotator, log, 3)
    assert [line.offset for line in chain.lines] == [3, 2]
    assert chain.began is ChainStart.UNKNOWN
    assert "offset 1" in chain.text


def test_undecodable_record_is_no_event() -> None:
    log, annotator = in_log(event(0, None), None, event(2, None))
    with pytest.raises(LookupError, match="no event at offset 1"):
        cause_chains.trace_causes(annotator, log, 1)


@pytest.mark.parametrize("cause", [2, 3, 99])
def test_cause_after_its_effect_is_ignored(cause: int) -> None:
    log, annotator = in_log(event(0, None), event(1, 0), event(2, cause))
    chain = cause_chains.trace_causes(annotator, log, 2)
    assert [line.offset for line in chain.lines] == [2]
    assert chain.began is ChainStart.UNKNOWN


def test_client_is_named_with_its_request() -> None:
    header = Header(event_id="0", time=0, sender="client/me", sender_epoch=0, recipient="dispatcher")
    log = MemoryEventLog()
    log.append([Event(header, dispatcher.CancelJob(job_id="j"))])
    annotator = EventAnnotator()
    annotator.annotate(Record(0, header, dispatcher.CancelJob(job_id="j")))
    chain = cause_chains.trace_causes(annotator, log, 0)
    assert (chain.began, chain.text) == (ChainStart.CLIENT, "client me requested it")


def test_chain_has_only_annotated_events() -> None:
    chains = FailureChains()
    chains.add(100, 5, None, Severity.NONE)
    chains.add(103, 6, 100, Severity.FAILURE, waited=True)
    assert [chains.contains(index) for index in range(99, 105)] == [False, True, False, False, True, False]
    assert chains.causes_upward(103) == [103, 100]
    assert (chains.severity(103), chains.has_waited(103), chains.time(103)) == (Severity.FAILURE, True, 6)
    assert (chains.severity(101), chains.has_waited(101), chains.time(101)) == (Severity.NONE, False, None)
    assert chains.root_of(103) == 103
