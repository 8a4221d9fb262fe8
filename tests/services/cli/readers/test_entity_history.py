"""`tailrace story` reads no more than it needs, and tells the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.services.cli.readers.entity_history import new_teller, unless_known, whole
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import Effects
from tailrace.services.history.entity_history.event_annotator import Teller, Told
from tailrace.services.history.log_source import open_source
from tailrace.services.history.state_index.index import HistoryIndex

from ..commands.test_story import exported


def test_causes_and_effects_begin_at_the_nearest_mark(tmp_path: Path) -> None:
    file = exported(tmp_path / "log.avro", "a_task_fails")
    with open_source(file) as source:
        source.index = HistoryIndex(source.log, source.cluster, directory=tmp_path / "index", interval=8)
        end = source.log.end()
        teller = new_teller(concerned=False)
        told: list[Told] = []
        whole(source, teller, end, told.append)
        for offset in (0, 7, 8, 30, end - 1):
            heard: list[int] = []
            found: list[Effects] = []

            def hear(
                knows: Teller, each: Told, heard: list[int] = heard, found: list[Effects] = found
            ) -> None:
                if not found:
                    found.append(Effects(each.offset, knows))
                heard.append(each.offset)
                found[0].add(each)

            behind = unless_known(source, offset - 1, end, hear)
            assert cause_chains.why(behind, source.log, offset) == cause_chains.why(
                teller, source.log, offset
            )
            first = heard[0]
            assert heard == list(range(first, end))
            assert first <= offset < first + 8 or offset == 0
            expected = Effects(first, teller)
            for each in told:
                expected.add(each)
            assert found[0].tree() == expected.tree()


@pytest.mark.parametrize("offset", [0, 59])
def test_where_no_index_can_be_all_is_read(offset: int, tmp_path: Path) -> None:
    file = exported(tmp_path / "log.avro", "a_task_fails")
    (tmp_path / "index").write_text("is no directory")
    with open_source(file) as source:
        source.index = HistoryIndex(source.log, source.cluster, directory=tmp_path / "index", interval=8)
        teller = new_teller(concerned=False)
        whole(source, teller, offset + 1, lambda _: None)
        for _ in range(2):
            found = cause_chains.why(unless_known(source, offset, offset + 1), source.log, offset)
            assert found == cause_chains.why(teller, source.log, offset)
