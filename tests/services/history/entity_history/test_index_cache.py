"""Cached causes: annotations are the same with the history index and without, with a cold and a warm cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
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


def index_of(log: MemoryEventLog, directory: Path, interval: int = INTERVAL) -> nullcontext[StateIndex]:
    return nullcontext(StateIndex(log, "c", directory=directory, interval=interval))


def offsets(records: tuple[Record, ...]) -> list[int]:
    return [record.offset for record in records[:: max(1, len(records) // ASKED)]] + [records[-1].offset]


def annotate_needed(memory: CauseIndex, records: tuple[Record, ...]) -> list[AnnotatedEvent]:
    """Annotates the given events only."""
    events: list[AnnotatedEvent] = []
    memory.annotate([record for record in records if record.offset >= memory.start], events.append)
    memory.on_offset_reached(records[-1].offset + 1)
    return events


def properties_of(annotator: EventAnnotator, event: AnnotatedEvent) -> tuple[object, ...]:
    """Returns all properties of an annotated event."""
    return event.entry.ignored, event.severity, event.root, event.has_waited, annotator.text(event)


def why(records: tuple[Record, ...], log: MemoryEventLog, index: StateIndex, offset: int) -> CauseChain:
    memory = CauseIndex(index, offset)
    annotate_needed(memory, records[: offset + 1])
    return cause_chains.trace_causes(memory.annotator, log, offset)


def effects(records: tuple[Record, ...], index: StateIndex, offset: int) -> tuple[int, Effect | None]:
    memory = CauseIndex(index, offset - 1)
    tree = EffectTree(offset, memory.annotator)
    for event in annotate_needed(memory, records):
        tree.add(event)
    return tree.count, tree.tree()


def annotate_from_start(records: tuple[Record, ...]) -> tuple[EventAnnotator, list[AnnotatedEvent]]:
    annotator = EventAnnotator(HistoryProjection(past=False), concerned=False)
    return annotator, [annotator.annotate(record) for record in records]


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("interval", [3, INTERVAL])
def test_annotations_are_the_same_with_index(name: str, interval: int, tmp_path: Path) -> None:
    records = history(name)
    log = in_memory(records)
    whole, all_told = annotate_from_start(records)
    expected = {event.offset: properties_of(whole, event) for event in all_told}
    # Every way to come to know it: from nothing, from what a shorter reading left, and from all of it.
    for beginning in (records[: len(records) // 3], records, records):
        with index_of(log, tmp_path, interval) as index:
            memory = CauseIndex(index, beginning[-1].offset)
            for event in annotate_needed(memory, beginning):
                assert properties_of(memory.annotator, event) == expected[event.offset]
    with index_of(log, tmp_path, interval) as index:
        assert CauseIndex(index, records[-1].offset).start > len(records) - 2 * interval
        for offset in offsets(records):
            memory = CauseIndex(index, offset - 1)
            assert offset - interval <= memory.start <= offset
            for event in annotate_needed(memory, records):
                assert properties_of(memory.annotator, event) == expected[event.offset]


@pytest.mark.parametrize("name", HISTORIES)
def test_causes_and_effects_are_the_same_with_index(name: str, tmp_path: Path) -> None:
    records = history(name)
    log = in_memory(records)
    whole, all_told = annotate_from_start(records)
    for offset in offsets(records):
        annotator, _ = annotate_from_start(records[: offset + 1])
        expected = cause_chains.trace_causes(annotator, log, offset)
        tree = EffectTree(offset, whole)
        for event in all_told:
            tree.add(event)
        with index_of(log, tmp_path) as index:
            assert why(records, log, index, offset) == expected
            assert effects(records, index, offset) == (tree.count, tree.tree())


def built(records: tuple[Record, ...], log: MemoryEventLog, directory: Path) -> Path:
    with index_of(log, directory) as index:
        annotate_needed(CauseIndex(index, 0), records)
        assert index.path is not None
        return index.path


def flip(name: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[-1] ^= 1
        (path / name).write_bytes(data)

    return damage


def delete(pattern: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        for item in path.glob(pattern):
            item.unlink()

    return damage


@pytest.mark.parametrize(
    ("damage", "warnings"),
    [
        (flip(f"{47:020}.segment"), 1),
        (delete(f"{47:020}.segment"), 0),
        (delete("*.segment"), 0),
        (delete("*.mark"), 0),
    ],
)
def test_annotations_are_the_same_with_damaged_cache(
    damage: Callable[[Path], None], warnings: int, tmp_path: Path
) -> None:
    records = history("seed 6")
    log = in_memory(records)
    damage(built(records, log, tmp_path))
    last = records[-1].offset
    annotator, _ = annotate_from_start(records)
    expected = cause_chains.trace_causes(annotator, log, last)
    with capture_logs() as events:
        for _ in range(2):
            with index_of(log, tmp_path) as index:
                assert why(records, log, index, last) == expected
    assert len(events) == warnings


def test_cache_stores_each_entry_once(tmp_path: Path) -> None:
    records = history("seed 6")
    log = in_memory(records)
    path = built(records, log, tmp_path)

    def segments() -> dict[str, bytes]:
        return {item.name: item.read_bytes() for item in path.glob("*.segment")}

    before = segments()
    assert len(before) == len(records) // INTERVAL
    with index_of(log, tmp_path) as index:
        annotate_needed(CauseIndex(index, 100), records)
    assert segments() == before
