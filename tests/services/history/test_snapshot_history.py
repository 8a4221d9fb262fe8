"""A fold that goes on from a snapshot and its history tells the same as one of the whole log, wherever it begins.

What is wrong with either costs time only: then the log is read from its first event.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tailrace.infra.storage.errors import CheckpointError
from tailrace.infra.storage.storage import Storage
from tailrace.schemas.event import Event
from tailrace.services.history import HistoryProjection
from tailrace.services.history import job_history_store as module
from tailrace.services.history.cluster_view import checkpoints, jobs, statuses, workers
from tailrace.services.history.job_history_store import JobHistoryStore
from tailrace.services.history.leaders import leaders
from tailrace.services.history.snapshot_history import create_snapshot_with_history, store_history
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.store import SnapshotStore

from ..simulated_cluster.cluster import Cluster
from ..snapshots.simulated_logs import HISTORIES, LONG, create_log, history
from . import test_checkpoint_history

LAST = len(history(LONG)) - 1


class Kept:
    """Storage of a cluster."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.snapshots = SnapshotStore(Storage.open(str(base / "snapshots")), "c")
        self.histories = JobHistoryStore(Storage.open(str(base / "history")))

    def take(self, log: MemoryEventLog, end: int | None = None) -> None:
        create_snapshot_with_history(log, self.snapshots, self.histories, end)

    def fold(self, log: MemoryEventLog, end: int | None = None) -> tuple[HistoryProjection, int]:
        """A fold to the end, and how many events it has read for that."""
        fold = HistoryProjection()
        return fold, len(list(fold.read(log, end, self.snapshots, self.histories)))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.fixture
def log() -> MemoryEventLog:
    return create_log(LONG)


def seen(fold: HistoryProjection) -> dict[str, Any]:
    """All that commands show of it."""
    return {
        "jobs": jobs(fold),
        "statuses": statuses(fold.replica),
        "checkpoints": [checkpoints(fold, each.job_id) for each in jobs(fold)],
        "workers": workers(fold.replica),
        "leaders": leaders(fold.replica),
        "offset": fold.replica.offset,
        "submitted": fold.submitted,
        "ended": fold.ended,
    }


def whole(log: MemoryEventLog, end: int | None = None) -> dict[str, Any]:
    fold = HistoryProjection()
    list(fold.read(log, end))
    return seen(fold)


def stories() -> list[str | int | Callable[[], Cluster]]:
    return [*HISTORIES, *test_checkpoint_history.STORIES]


def log_of_story(story: str | int | Callable[[], Cluster]) -> MemoryEventLog:
    if isinstance(story, str | int):
        return create_log(story)
    log = MemoryEventLog(Codec("t.log"))
    log.append([Event(record.header, record.body) for record in story().log])
    return log


@pytest.mark.parametrize("story", stories(), ids=lambda story: getattr(story, "__name__", str(story)))
def test_from_any_snapshot_it_tells_the_same_as_from_the_first_event(
    story: str | int | Callable[[], Cluster], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = log_of_story(story)

    @settings(max_examples=4, deadline=None)
    @given(st.lists(st.integers(1, log.end()), min_size=1, max_size=3))
    def same(ends: list[int]) -> None:
        kept = Kept(tmp_path_factory.mktemp("kept"))
        end = max(ends)
        for cut in sorted(set(ends) - {end}) or [1]:
            kept.take(log, cut)
        fold, read = kept.fold(log, end)
        assert seen(fold) == whole(log, end)
        assert read == end - (max(set(ends) - {end}, default=1))

    same()


def restarting(log: MemoryEventLog) -> list[int]:
    """Offsets behind which a job restarts."""
    fold = HistoryProjection()
    return [
        entry.record.offset
        for entry in fold.read(log)
        if any(each.restarting is not None for each in jobs(fold))
    ]


def test_why_a_job_restarts_is_known_though_it_failed_before_the_snapshot(kept: Kept) -> None:
    log, offsets = next((log, found) for log in map(log_of_story, stories()) if (found := restarting(log)))
    failed = offsets[0]
    kept.take(log, failed + 1)
    fold, read = kept.fold(log, failed + 1)
    assert any(each.restarting is not None for each in jobs(fold))
    assert (seen(fold), read) == (whole(log, failed + 1), 0)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [damaged, gone, Path.touch], ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("of", ["history", "snapshots"])
@pytest.mark.parametrize("older", [True, False])
def test_what_is_not_fit_costs_time_only(
    kept: Kept, log: MemoryEventLog, harm: Callable[[Path], None], of: str, older: bool
) -> None:
    if older:
        kept.take(log, LAST // 2)
    kept.take(log, LAST - 5)
    harm(max((kept.base / of).iterdir()))
    with capture_logs() as said:
        fold, read = kept.fold(log)
    assert seen(fold) == whole(log)
    fit = harm is Path.touch
    assert read == log.end() - (LAST - 5 if fit else LAST // 2 if older else 0)
    assert len(said) == (of == "snapshots" and harm is damaged)


def test_a_history_of_another_log_is_none(kept: Kept, log: MemoryEventLog) -> None:
    kept.take(log, 20)
    file = next((kept.base / "history").iterdir()).read_bytes()
    other = create_log("a job" if "a job" in HISTORIES else HISTORIES[0])
    again = Kept(kept.base / "other")
    create_snapshot(other, again.snapshots, 20)
    again.histories.retain(())
    (again.base / "history").mkdir(exist_ok=True)
    (again.base / "history" / f"{19:020}.history").write_bytes(file)
    fold, read = again.fold(other)
    assert (seen(fold), read) == (whole(other), other.end())


def test_one_that_another_release_wrote_is_none(
    kept: Kept, log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.take(log, 20)
    monkeypatch.setattr(module, "_fingerprint", lambda: "another")
    assert kept.fold(log)[1] == log.end()


def test_histories_go_with_their_snapshots(kept: Kept, log: MemoryEventLog) -> None:
    for end in (10, 20, 30, 40):
        kept.take(log, end)
    assert kept.histories.offsets() == kept.snapshots.offsets() == [39, 29]


def test_of_a_log_whose_head_is_gone_what_was_before_is_still_known(kept: Kept, log: MemoryEventLog) -> None:
    expected = whole(log)
    kept.take(log, LAST // 2)
    log.truncate(LAST // 2)
    kept.take(log)
    fold, read = kept.fold(log)
    assert (seen(fold), read) == (expected, 0)


def test_where_nothing_of_it_is_known_nothing_is_kept(kept: Kept, log: MemoryEventLog) -> None:
    create_snapshot(log, kept.snapshots, LAST // 2)
    log.truncate(LAST // 2)
    kept.take(log)
    assert kept.histories.offsets() == []
    fold, _ = kept.fold(log)
    assert (fold.whole, statuses(fold.replica)) == (False, whole(create_log(LONG))["statuses"])


def test_a_snapshot_is_taken_although_its_history_cannot_be_kept(
    kept: Kept, log: MemoryEventLog, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no directory")
    histories = JobHistoryStore(Storage.open(str(tmp_path / "file" / "history")))
    with pytest.raises(CheckpointError):
        store_history(log, kept.snapshots, histories, LAST)
    with capture_logs() as said:
        taken = create_snapshot_with_history(log, kept.snapshots, histories)
    assert taken is not None
    assert kept.snapshots.offsets() == [taken.offset]
    assert [each["event"] for each in said] == ["no history is kept beside a snapshot"]
