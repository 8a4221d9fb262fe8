"""`tailrace story` reads only what it needs, with the same output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import EffectTree
from tailrace.services.history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
from tailrace.services.history.entity_history.reader import (
    annotate_log,
    annotate_with_index,
    create_annotator,
)
from tailrace.services.history.log_source import open_log_source
from tailrace.services.history.state_index.index import StateIndex

from ...cli.commands.test_story import exported


def test_causes_and_effects_start_at_nearest_mark(tmp_path: Path) -> None:
    file = exported(tmp_path / "log.avro", "a_task_fails")
    with open_log_source(file) as source:
        source.index = StateIndex(source.log, source.cluster, directory=tmp_path / "index", interval=8)
        end = source.log.end()
        annotator = create_annotator(concerned=False)
        event: list[AnnotatedEvent] = []
        annotate_log(source, annotator, end, event.append)
        for offset in (0, 7, 8, 30, end - 1):
            on_event: list[int] = []
            trees: list[EffectTree] = []

            def hear(
                knows: EventAnnotator,
                event: AnnotatedEvent,
                on_event: list[int] = on_event,
                found: list[EffectTree] = trees,
            ) -> None:
                if not found:
                    found.append(EffectTree(event.offset, knows))
                on_event.append(event.offset)
                found[0].add(event)

            behind = annotate_with_index(source, offset - 1, end, hear)
            assert cause_chains.trace_causes(behind, source.log, offset) == cause_chains.trace_causes(
                annotator, source.log, offset
            )
            first = on_event[0]
            assert on_event == list(range(first, end))
            assert first <= offset < first + 8 or offset == 0
            expected = EffectTree(first, annotator)
            for annotated_event in event:
                expected.add(annotated_event)
            assert trees[0].tree() == expected.tree()


@pytest.mark.parametrize("offset", [0, 57])
def test_whole_log_is_read_without_index(offset: int, tmp_path: Path) -> None:
    file = exported(tmp_path / "log.avro", "a_task_fails")
    (tmp_path / "index").write_text("is no directory")
    with open_log_source(file) as source:
        source.index = StateIndex(source.log, source.cluster, directory=tmp_path / "index", interval=8)
        annotator = create_annotator(concerned=False)
        annotate_log(source, annotator, offset + 1, lambda _: None)
        for _ in range(2):
            chain = cause_chains.trace_causes(
                annotate_with_index(source, offset, offset + 1), source.log, offset
            )
            assert chain == cause_chains.trace_causes(annotator, source.log, offset)
