"""`tailrace story` reads no more than it needs, and tells the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.services.cli.readers.entity_history import annotate_log, create_annotator, raise_if_unknown
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import EffectTree
from tailrace.services.history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
from tailrace.services.history.log_source import open_log_source
from tailrace.services.history.state_index.index import StateIndex

from ..commands.test_story import exported


def test_causes_and_effects_begin_at_the_nearest_mark(tmp_path: Path) -> None:
    file = exported(tmp_path / "log.avro", "a_task_fails")
    with open_log_source(file) as source:
        source.index = StateIndex(source.log, source.cluster, directory=tmp_path / "index", interval=8)
        end = source.log.end()
        teller = create_annotator(concerned=False)
        told: list[AnnotatedEvent] = []
        annotate_log(source, teller, end, told.append)
        for offset in (0, 7, 8, 30, end - 1):
            heard: list[int] = []
            found: list[EffectTree] = []

            def hear(
                knows: EventAnnotator,
                each: AnnotatedEvent,
                heard: list[int] = heard,
                found: list[EffectTree] = found,
            ) -> None:
                if not found:
                    found.append(EffectTree(each.offset, knows))
                heard.append(each.offset)
                found[0].add(each)

            behind = raise_if_unknown(source, offset - 1, end, hear)
            assert cause_chains.trace_causes(behind, source.log, offset) == cause_chains.trace_causes(
                teller, source.log, offset
            )
            first = heard[0]
            assert heard == list(range(first, end))
            assert first <= offset < first + 8 or offset == 0
            expected = EffectTree(first, teller)
            for each in told:
                expected.add(each)
            assert found[0].tree() == expected.tree()


@pytest.mark.parametrize("offset", [0, 59])
def test_where_no_index_can_be_all_is_read(offset: int, tmp_path: Path) -> None:
    file = exported(tmp_path / "log.avro", "a_task_fails")
    (tmp_path / "index").write_text("is no directory")
    with open_log_source(file) as source:
        source.index = StateIndex(source.log, source.cluster, directory=tmp_path / "index", interval=8)
        teller = create_annotator(concerned=False)
        annotate_log(source, teller, offset + 1, lambda _: None)
        for _ in range(2):
            found = cause_chains.trace_causes(
                raise_if_unknown(source, offset, offset + 1), source.log, offset
            )
            assert found == cause_chains.trace_causes(teller, source.log, offset)
