"""The history at an offset is the same from the index, from a kept history, and from a fold of the whole log."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.services.history import HistoryProjection
from tailrace.services.history.indexed_history import history_at
from tailrace.services.history.log_source import LogSource
from tailrace.services.history.state_index.index import StateIndex

from ..snapshots.simulated_logs import LONG, create_log, history

SEEDS = [1, 3, LONG]


def known(fold: HistoryProjection) -> Mapping[str, Any]:
    """Returns all that a projection knows: its states, and what they do not have."""
    past = fold.past()
    return {
        "offset": fold.replica.offset,
        "states": dict(fold.replica.states),
        "leadership": fold.replica.leadership,
        "active": set(fold.replica.active_addresses),
        "graphs": {job_id: fold.executions.graph(job_id) for job_id in past.executions},
        **{field: getattr(past, field) for field in past.__struct_fields__},
    }


@functools.cache
def folded(seed: int, offset: int) -> Mapping[str, Any]:
    """Returns what a fold of the log up to an offset knows."""
    fold = HistoryProjection()
    for record in history(seed)[: offset + 1]:
        fold.apply(record)
    return known(fold)


def open_source(seed: int, directory: str | Path, interval: int) -> LogSource:
    source = LogSource(create_log(seed), "c")
    source.index = StateIndex(source.log, "c", directory=Path(directory), interval=interval)
    return source


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_history_at_offset_is_that_of_whole_fold_after_any_queries(seed: int, data: st.DataObject) -> None:
    interval = data.draw(st.integers(1, 60))
    offsets = st.integers(0, len(history(seed)) - 1)
    with tempfile.TemporaryDirectory() as directory:
        for offset in data.draw(st.lists(offsets, min_size=2, max_size=6)):
            with open_source(seed, directory, interval) as source:
                fold = history_at(source, offset)
                assert known(fold) == folded(seed, offset)


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_history_and_its_copy_continue_from_index_like_whole_fold(seed: int, data: st.DataObject) -> None:
    """Also if neither was looked at before, so that nothing is decoded; and the one does not change the other."""
    records = history(seed)
    offset = data.draw(st.integers(0, len(records) - 1))
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(2):
            with open_source(seed, directory, 20) as source:
                fold = history_at(source, offset)
        copied = fold.copy()
        for record in records[offset + 1 :]:
            copied.apply(record)
        assert known(copied) == folded(seed, len(records) - 1)
        assert known(fold) == folded(seed, offset)
        for record in records[offset + 1 :]:
            fold.apply(record)
        assert known(fold) == folded(seed, len(records) - 1)


def test_index_grown_with_queries_equals_index_built_at_once(tmp_path: Path) -> None:
    end = len(history(LONG)) - 1
    for name, offsets in (("grown", range(7, end, 31)), ("at-once", [end])):
        for offset in [*offsets, end]:
            with open_source(LONG, tmp_path / name, 20) as source:
                history_at(source, offset)
    contents = []
    for name in ("grown", "at-once"):
        (directory,) = (tmp_path / name).iterdir()
        contents.append({file.name: file.read_bytes() for file in directory.iterdir()})
    assert contents[0] == contents[1]
    assert sum(name.endswith(".history") for name in contents[0]) == (end + 1) // 20


def test_damaged_or_missing_history_costs_a_fold_and_no_answer(tmp_path: Path) -> None:
    end = len(history(LONG)) - 1
    for damage in ("truncate", "remove", "none"):
        with open_source(LONG, tmp_path, 20) as source:
            assert known(history_at(source, end)) == folded(LONG, end)
        (directory,) = tmp_path.iterdir()
        victim = sorted(directory.glob("*.history"))[-2]
        if damage == "truncate":
            victim.write_bytes(victim.read_bytes()[:-3])
        elif damage == "remove":
            victim.unlink()
