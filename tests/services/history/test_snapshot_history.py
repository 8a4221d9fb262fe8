"""A projection from a snapshot and its history equals one of the whole log, from any snapshot.

An unusable snapshot or history only costs time: the log is then read from its first event.
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
from tailrace.services.history.cluster_view import checkpoints, jobs, leaders, statuses, workers
from tailrace.services.history.job_history_store import JobHistoryStore
from tailrace.services.history.snapshot_history import create_snapshot_with_history, store_history
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.store import SnapshotStore

from ..simulated_cluster.cluster import Cluster
from ..snapshots.simulated_logs import HISTORIES, LONG, create_log, history
from . import test_checkpoint_history

LAST = len(history(LONG)) - 1


class ProjectionStorage:
    """The storage of a cluster."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.snapshots = SnapshotStore(Storage.open(str(base / "snapshots")), "c")
        self.histories = JobHistoryStore(Storage.open(str(base / "history")))

    def take(self, log: MemoryEventLog, end: int | None = None) -> None:
        create_snapshot_with_history(log, self.snapshots, self.histories, end)

    def fold(self, log: MemoryEventLog, end: int | None = None) -> tuple[HistoryProjection, int]:
        """Returns the projection of the whole log, and how many events were read for it."""
        fold = HistoryProjection()
        return fold, len(list(fold.read(log, end, self.snapshots, self.histories)))


@pytest.fixture
def storage(tmp_path: Path) -> ProjectionStorage:
    return ProjectionStorage(tmp_path)


@pytest.fixture
def log() -> MemoryEventLog:
    return create_log(LONG)


def visible(fold: HistoryProjection) -> dict[str, Any]:
    """Returns everything that commands show of it."""
    return {
        "jobs": jobs(fold),
        "statuses": statuses(fold.replica),
        "checkpoints": [checkpoints(fold, job.job_id) for job in jobs(fold)],
        "workers": workers(fold.replica),
        "leaders": leaders(fold.replica),
        "offset": fold.replica.offset,
        "submitted": fold.submitted,
        "ended": fold.ended,
    }


def whole_projection(log: MemoryEventLog, end: int | None = None) -> dict[str, Any]:
    fold = HistoryProjection()
    list(fold.read(log, end))
    return visible(fold)


def stories() -> list[str | int | Callable[[], Cluster]]:
    return [*HISTORIES, *test_checkpoint_history.STORIES]


def log_of_story(story: str | int | Callable[[], Cluster]) -> MemoryEventLog:
    if isinstance(story, str | int):
        return create_log(story)
    log = MemoryEventLog(Codec("t.log"))
    log.append([Event(record.header, record.body) for record in story().log])
    return log


@pytest.mark.parametrize("story", stories(), ids=lambda story: getattr(story, "__name__", str(story)))
def test_projection_from_any_snapshot_equals_projection_from_first_event(
    story: str | int | Callable[[], Cluster], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = log_of_story(story)

    @settings(max_examples=4, deadline=None)
    @given(st.lists(st.integers(1, log.end()), min_size=1, max_size=3))
    def same(ends: list[int]) -> None:
        storage = ProjectionStorage(tmp_path_factory.mktemp("kept"))
        end = max(ends)
        for cut in sorted(set(ends) - {end}) or [1]:
            storage.take(log, cut)
        fold, read = storage.fold(log, end)
        assert visible(fold) == whole_projection(log, end)
        assert read == end - (max(set(ends) - {end}, default=1))

    same()


def restarting(log: MemoryEventLog) -> list[int]:
    """Returns the offsets after which a job restarts."""
    fold = HistoryProjection()
    return [
        entry.record.offset
        for entry in fold.read(log)
        if any(job.restarting is not None for job in jobs(fold))
    ]


def test_cause_of_restart_is_known_if_failure_is_before_snapshot(storage: ProjectionStorage) -> None:
    log, offsets = next(
        (log, results) for log in map(log_of_story, stories()) if (results := restarting(log))
    )
    failed = offsets[0]
    storage.take(log, failed + 1)
    fold, read = storage.fold(log, failed + 1)
    assert any(job.restarting is not None for job in jobs(fold))
    assert (visible(fold), read) == (whole_projection(log, failed + 1), 0)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def deleted(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [damaged, deleted, Path.touch], ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("of", ["history", "snapshots"])
@pytest.mark.parametrize("older", [True, False])
def test_unusable_history_only_costs_time(
    storage: ProjectionStorage, log: MemoryEventLog, harm: Callable[[Path], None], of: str, older: bool
) -> None:
    if older:
        storage.take(log, LAST // 2)
    storage.take(log, LAST - 5)
    harm(max((storage.base / of).iterdir()))
    with capture_logs() as events:
        fold, read = storage.fold(log)
    assert visible(fold) == whole_projection(log)
    fit = harm is Path.touch
    assert read == log.end() - (LAST - 5 if fit else LAST // 2 if older else 0)
    assert len(events) == (of == "snapshots" and harm is damaged)


def test_history_of_other_log_is_ignored(storage: ProjectionStorage, log: MemoryEventLog) -> None:
    storage.take(log, 20)
    file = next((storage.base / "history").iterdir()).read_bytes()
    other = create_log("a job" if "a job" in HISTORIES else HISTORIES[0])
    again = ProjectionStorage(storage.base / "other")
    create_snapshot(other, again.snapshots, 20)
    again.histories.retain(())
    (again.base / "history").mkdir(exist_ok=True)
    (again.base / "history" / f"{19:020}.history").write_bytes(file)
    fold, read = again.fold(other)
    assert (visible(fold), read) == (whole_projection(other), other.end())


def test_history_of_other_release_is_ignored(
    storage: ProjectionStorage, log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.take(log, 20)
    monkeypatch.setattr(module, "_fingerprint", lambda: "another")
    assert storage.fold(log)[1] == log.end()


def test_histories_are_deleted_with_their_snapshots(storage: ProjectionStorage, log: MemoryEventLog) -> None:
    for end in (10, 20, 30, 40):
        storage.take(log, end)
    assert storage.histories.offsets() == storage.snapshots.offsets() == [39, 29]


def test_history_covers_deleted_head_of_log(storage: ProjectionStorage, log: MemoryEventLog) -> None:
    expected = whole_projection(log)
    storage.take(log, LAST // 2)
    log.truncate(LAST // 2)
    storage.take(log)
    fold, read = storage.fold(log)
    assert (visible(fold), read) == (expected, 0)


def test_unknown_history_is_not_stored(storage: ProjectionStorage, log: MemoryEventLog) -> None:
    create_snapshot(log, storage.snapshots, LAST // 2)
    log.truncate(LAST // 2)
    storage.take(log)
    assert storage.histories.offsets() == []
    fold, _ = storage.fold(log)
    assert (fold.whole, statuses(fold.replica)) == (False, whole_projection(create_log(LONG))["statuses"])


def test_snapshot_is_taken_even_if_history_cannot_be_stored(
    storage: ProjectionStorage, log: MemoryEventLog, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no directory")
    histories = JobHistoryStore(Storage.open(str(tmp_path / "file" / "history")))
    with pytest.raises(CheckpointError):
        store_history(log, storage.snapshots, histories, LAST)
    with capture_logs() as events:
        snapshot = create_snapshot_with_history(log, storage.snapshots, histories)
    assert snapshot is not None
    assert storage.snapshots.offsets() == [snapshot.offset]
    assert [event["event"] for event in events] == ["cannot store the job history beside a snapshot"]
