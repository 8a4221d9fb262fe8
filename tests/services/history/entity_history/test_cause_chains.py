"""Chains without end, and chains that are broken, do no harm."""

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
    """None: a record that can't be read."""
    log, teller = MemoryEventLog(), EventAnnotator()
    for offset, each in enumerate(events):
        log.append_all([b"\x00garbage" if each is None else each])
        if each is not None:
            teller.annotate(Record(offset, each.header, each.body))
    return log, teller


@pytest.mark.parametrize("length", [10, 63, 64, 65, 3000])
def test_a_chain_of_any_length_is_walked(length: int) -> None:
    log, teller = in_log(*[event(each, each - 1 if each else None) for each in range(length)])
    found = cause_chains.trace_causes(teller, log, length - 1)
    assert [line.offset for line in found.lines] == list(reversed(range(length)))
    assert found.began is ChainStart.FACT


def test_a_tree_of_any_depth_is_cut_and_counted() -> None:
    length = 3000
    records = [Record(each, *_parts(event(each, each - 1 if each else None))) for each in range(length)]
    for everything in (True, False):
        teller = EventAnnotator()
        found = EffectTree(0, teller, everything=everything)
        for record in records:
            found.add(teller.annotate(record))
        tree, depth = found.tree(), 0
        assert tree is not None
        assert found.count == length - 1
        while tree.effects:
            (tree,), depth = tree.effects, depth + 1
        assert tree.left_out == length - 1 - depth
        assert tree.as_data()


def _parts(made: Event) -> tuple[Header, job_master.UpdateTaskExecutionState]:
    return made.header, FAILED


def test_a_cause_that_can_not_be_read_is_named() -> None:
    log, teller = in_log(event(0, None), None, event(2, 1), event(3, 2))
    found = cause_chains.trace_causes(teller, log, 3)
    assert [line.offset for line in found.lines] == [3, 2]
    assert found.began is ChainStart.UNKNOWN
    assert "offset 1" in found.text


def test_what_can_not_be_read_itself_is_no_event() -> None:
    log, teller = in_log(event(0, None), None, event(2, None))
    with pytest.raises(LookupError, match="no event at offset 1"):
        cause_chains.trace_causes(teller, log, 1)


@pytest.mark.parametrize("cause", [2, 3, 99])
def test_a_cause_that_lies_behind_its_effect_leads_nowhere(cause: int) -> None:
    log, teller = in_log(event(0, None), event(1, 0), event(2, cause))
    found = cause_chains.trace_causes(teller, log, 2)
    assert [line.offset for line in found.lines] == [2]
    assert found.began is ChainStart.UNKNOWN


def test_a_client_is_named_with_where_it_asked() -> None:
    header = Header(event_id="0", time=0, sender="client/me", sender_epoch=0, recipient="dispatcher")
    log = MemoryEventLog()
    log.append([Event(header, dispatcher.CancelJob(job_id="j"))])
    teller = EventAnnotator()
    teller.annotate(Record(0, header, dispatcher.CancelJob(job_id="j")))
    found = cause_chains.trace_causes(teller, log, 0)
    assert (found.began, found.text) == (ChainStart.CLIENT, "client me asked for it")


def test_a_chain_knows_only_what_it_was_told() -> None:
    chains = FailureChains()
    chains.add(100, 5, None, Severity.NONE)
    chains.add(103, 6, 100, Severity.FAILURE, waited=True)
    assert [chains.contains(each) for each in range(99, 105)] == [False, True, False, False, True, False]
    assert chains.causes_upward(103) == [103, 100]
    assert (chains.severity(103), chains.has_waited(103), chains.time(103)) == (Severity.FAILURE, True, 6)
    assert (chains.severity(101), chains.has_waited(101), chains.time(101)) == (Severity.NONE, False, None)
    assert chains.root_of(103) == 103
