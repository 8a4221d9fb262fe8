"""Laws of what is kept of causes: with the history index and without, cold and warm, the same is told of an event."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tailrace.schemas.event import Record
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import CauseChain, Effect, EffectTree
from tailrace.services.history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
from tailrace.services.history.entity_history.index_cache import CauseIndex
from tailrace.services.history.projection import HistoryProjection
from tailrace.services.history.state_index.index import StateIndex
from tailrace.services.log.memory import MemoryEventLog

from .simulated_logs import HISTORIES, history
from .test_properties import in_memory

INTERVAL = 16
ASKED = 4
"""Of how many events of a history."""


def index_of(log: MemoryEventLog, directory: Path, interval: int = INTERVAL) -> closing[StateIndex]:
    return closing(StateIndex(log, "c", directory=directory, interval=interval))


def offsets(records: tuple[Record, ...]) -> list[int]:
    return [each.offset for each in records[:: max(1, len(records) // ASKED)]] + [records[-1].offset]


def tell(memory: CauseIndex, records: tuple[Record, ...]) -> list[AnnotatedEvent]:
    """What is told of those that need be."""
    found: list[AnnotatedEvent] = []
    memory.annotate([each for each in records if each.offset >= memory.start], found.append)
    memory.on_offset_reached(records[-1].offset + 1)
    return found


def as_told(teller: EventAnnotator, event: AnnotatedEvent) -> tuple[object, ...]:
    """What there is to know of an event."""
    return event.entry.ignored, event.severity, event.root, event.has_waited, teller.text(event)


def why(records: tuple[Record, ...], log: MemoryEventLog, index: StateIndex, offset: int) -> CauseChain:
    memory = CauseIndex(index, offset)
    tell(memory, records[: offset + 1])
    return cause_chains.trace_causes(memory.teller, log, offset)


def effects(records: tuple[Record, ...], index: StateIndex, offset: int) -> tuple[int, Effect | None]:
    memory = CauseIndex(index, offset - 1)
    found = EffectTree(offset, memory.teller)
    for each in tell(memory, records):
        found.add(each)
    return found.count, found.tree()


def told_from_the_start(records: tuple[Record, ...]) -> tuple[EventAnnotator, list[AnnotatedEvent]]:
    teller = EventAnnotator(HistoryProjection(past=False), concerned=False)
    return teller, [teller.annotate(record) for record in records]


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("interval", [3, INTERVAL])
def test_what_is_told_is_the_same_with_an_index(name: str, interval: int, tmp_path: Path) -> None:
    records = history(name)
    log = in_memory(records)
    whole, all_told = told_from_the_start(records)
    expected = {each.offset: as_told(whole, each) for each in all_told}
    # Every way to come to know it: from nothing, from what a shorter reading left, and from all of it.
    for beginning in (records[: len(records) // 3], records, records):
        with index_of(log, tmp_path, interval) as index:
            memory = CauseIndex(index, beginning[-1].offset)
            for event in tell(memory, beginning):
                assert as_told(memory.teller, event) == expected[event.offset]
    with index_of(log, tmp_path, interval) as index:
        assert CauseIndex(index, records[-1].offset).start > len(records) - 2 * interval
        for offset in offsets(records):
            memory = CauseIndex(index, offset - 1)
            assert offset - interval <= memory.start <= offset
            for event in tell(memory, records):
                assert as_told(memory.teller, event) == expected[event.offset]


@pytest.mark.parametrize("name", HISTORIES)
def test_causes_and_effects_are_the_same_with_an_index(name: str, tmp_path: Path) -> None:
    records = history(name)
    log = in_memory(records)
    whole, all_told = told_from_the_start(records)
    for offset in offsets(records):
        teller, _ = told_from_the_start(records[: offset + 1])
        expected = cause_chains.trace_causes(teller, log, offset)
        tree = EffectTree(offset, whole)
        for each in all_told:
            tree.add(each)
        with index_of(log, tmp_path) as index:
            assert why(records, log, index, offset) == expected
            assert effects(records, index, offset) == (tree.count, tree.tree())


def built(records: tuple[Record, ...], log: MemoryEventLog, directory: Path) -> Path:
    with index_of(log, directory) as index:
        tell(CauseIndex(index, 0), records)
        assert index.path is not None
        return index.path


@pytest.mark.parametrize(
    ("damage", "warnings"),
    [
        ("UPDATE stretches SET data = x'00' || data WHERE \"offset\" = 47", 1),
        ('UPDATE stretches SET "offset" = 46 WHERE "offset" = 47', 1),
        ('DELETE FROM stretches WHERE "offset" = 47', 0),
        ('DELETE FROM stretches WHERE "offset" > 47', 0),
        ("DELETE FROM stretches", 0),
        ("DROP TABLE stretches", 1),
        ("UPDATE marks SET event_id = 'x' WHERE \"offset\" > 47", 1),
    ],
)
def test_whatever_is_wrong_with_it_the_same_is_told(damage: str, warnings: int, tmp_path: Path) -> None:
    records = history("seed 6")
    log = in_memory(records)
    path = built(records, log, tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    last = records[-1].offset
    teller, _ = told_from_the_start(records)
    expected = cause_chains.trace_causes(teller, log, last)
    with capture_logs() as said:
        for _ in range(2):
            with index_of(log, tmp_path) as index:
                assert why(records, log, index, last) == expected
    assert len(said) == warnings


def test_what_was_kept_is_kept_once(tmp_path: Path) -> None:
    records = history("seed 6")
    log = in_memory(records)
    path = built(records, log, tmp_path)

    def rows() -> list[tuple[object, ...]]:
        connection = sqlite3.connect(path)
        try:
            return connection.execute("SELECT * FROM stretches").fetchall()
        finally:
            connection.close()

    before = rows()
    assert len(before) == len(records) // INTERVAL
    with index_of(log, tmp_path) as index:
        tell(CauseIndex(index, 100), records)
    assert rows() == before
