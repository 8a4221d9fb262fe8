"""Recovery uses the newest usable snapshot, and logs one line for each unusable one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from tailrace.infra.storage.storage import Storage
from tailrace.schemas.event import Event
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import DISPATCHER
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.history import HistoryProjection
from tailrace.services.history.cluster_view import jobs
from tailrace.services.log import Codec, LogTruncated
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots import snapshot_file, store
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.encoding import state_types
from tailrace.services.snapshots.recovery import (
    read_newest_client_view,
    read_newest_leadership,
    restore_newest,
)
from tailrace.services.snapshots.state_hash import StateHasher, hash_all
from tailrace.services.snapshots.store import SnapshotStore
from tailrace.services.snapshots.type_description import describe

from .simulated_logs import LONG, create_log, create_quiet_replica, history

LAST = len(history(LONG)) - 1


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")


@pytest.fixture
def log() -> MemoryEventLog:
    return create_log(LONG)


def path(snapshots: SnapshotStore, offset: int) -> Path:
    return Path(snapshots.uri_of(offset))


def started(log: MemoryEventLog, snapshots: SnapshotStore) -> tuple[Replica, int, list[str]]:
    """Returns a replica at the end of the log, the offset at which it started, and the log lines."""
    replica = create_quiet_replica()
    with capture_logs() as events:
        header = restore_newest(replica, log, snapshots)
    tail = log.tail(replica.offset + 1)
    while tail.position < log.end():
        for record in tail.poll(0):
            replica.apply(record)
    lines = [
        f"{event['event']}: {event.get('snapshot', '')} {event.get('reason', event.get('error'))}"
        for event in events
    ]
    return replica, -1 if header is None else header.offset, lines


def hash_of(replica: Replica) -> str:
    return hash_all(StateHasher(replica).hashes())


def whole_way() -> str:
    replica = create_quiet_replica()
    for record in history(LONG):
        replica.apply(record)
    return hash_of(replica)


def test_log_is_read_from_start_without_snapshots(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    replica, start, events = started(log, snapshots)
    assert (start, events, hash_of(replica)) == (-1, [], whole_way())


def test_newest_snapshot_is_used(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    for end in (10, LAST // 2, LAST - 5):
        create_snapshot(log, snapshots, end)
    replica, start, events = started(log, snapshots)
    assert (start, events, hash_of(replica)) == (LAST - 6, [], whole_way())


def test_snapshot_of_whole_log_needs_no_replay(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    snapshot = create_snapshot(log, snapshots)
    replica, start, _ = started(log, snapshots)
    assert snapshot is not None
    assert (start, hash_of(replica)) == (LAST, whole_way())
    assert snapshot.state_hash == whole_way()


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def replaced(file: Path) -> None:
    file.write_text("hello")


def of_another_offset(file: Path) -> None:
    file.write_bytes(min(file.parent.iterdir()).read_bytes())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (tear, "it is truncated or damaged"),
        (empty, "it is empty"),
        (replaced, "it is no snapshot"),
        (of_another_offset, "it is of offset"),
    ],
)
def test_unusable_snapshot_is_skipped_in_one_line_for_older_one(
    log: MemoryEventLog, snapshots: SnapshotStore, damage: Callable[[Path], Any], reason: str
) -> None:
    create_snapshot(log, snapshots, LAST // 2)
    create_snapshot(log, snapshots, LAST - 5)
    damage(path(snapshots, LAST - 6))
    replica, start, events = started(log, snapshots)
    assert (start, hash_of(replica)) == (LAST // 2 - 1, whole_way())
    assert len(events) == 1
    assert f"skipped an unusable snapshot: {snapshots.uri_of(LAST - 6)} {reason}" in events[0]
    assert "\n" not in events[0]


def test_log_is_read_from_start_if_all_snapshots_are_unusable(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    for end in (LAST // 2, LAST - 5):
        create_snapshot(log, snapshots, end)
    for offset in snapshots.offsets():
        tear(path(snapshots, offset))
    replica, start, events = started(log, snapshots)
    assert (start, len(events), hash_of(replica)) == (-1, 2, whole_way())


def test_snapshot_of_other_cluster_is_skipped(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    create_snapshot(log, SnapshotStore(Storage.open(snapshots.uri), "other"), LAST - 5)
    _, start, events = started(log, snapshots)
    assert start == -1
    assert "it belongs to cluster 'other'" in events[0]


def test_snapshot_of_other_release_is_migrated(
    log: MemoryEventLog, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    monkeypatch.setattr(store, "schema_fingerprint", lambda: "0" * 16)
    _, start, events = started(log, snapshots)
    assert (start, events) == (LAST - 6, [])


def test_snapshot_that_needs_unknown_step_is_skipped(
    log: MemoryEventLog, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    monkeypatch.setattr(store, "schema_fingerprint", lambda: "0" * 16)
    types = {**state_types(), "dispatcher": Other}
    monkeypatch.setattr(snapshot_file, "own_types", lambda: describe(types))
    _, start, events = started(log, snapshots)
    assert start == -1
    assert "has no step to read them" in events[0]
    assert "Other.needed is new and has no default" in events[0]
    assert "\n" not in events[0]


class Other(msgspec.Struct, frozen=True):
    needed: int


def test_snapshot_newer_than_log_is_skipped(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    create_snapshot(log, snapshots, LAST // 2)
    create_snapshot(log, snapshots)
    shorter = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    shorter.append([Event(record.header, record.body) for record in history(LONG)[:-1]])
    _, start, events = started(shorter, snapshots)
    assert start == LAST // 2 - 1
    assert f"it is newer than histories.log, which ends before offset {LAST}" in events[0]


def test_snapshot_of_other_log_with_same_name_is_skipped(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    create_snapshot(log, snapshots, 10)
    other = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    event_id = history(LONG)[9].header.event_id
    first = next(seed for seed in itertools.count(1) if history(seed)[9].header.event_id != event_id)
    for name in (first, LONG):
        other.append([Event(record.header, record.body) for record in history(name)])
    _, start, events = started(other, snapshots)
    assert start == -1
    assert "has another event at offset 9: it is of another log" in events[0]


@pytest.mark.parametrize("behind", [0, 1])
def test_head_of_log_before_snapshot_may_be_deleted(
    log: MemoryEventLog, snapshots: SnapshotStore, behind: int
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    log.truncate(LAST - 6 + behind)
    replica, start, events = started(log, snapshots)
    assert (start, events, hash_of(replica)) == (LAST - 6, [], whole_way())


def test_gap_between_snapshot_and_log_is_rejected(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    log.truncate(LAST - 4)
    with pytest.raises(LogTruncated, match=f"begins at offset {LAST - 4}, but offset {LAST - 5} is needed"):
        restore_newest(create_quiet_replica(), log, snapshots)


def test_log_with_deleted_head_and_no_snapshot_is_rejected(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    tear(path(snapshots, LAST - 6))
    log.truncate(5)
    with pytest.raises(LogTruncated, match="begins at offset 5, but offset 0 is needed"):
        started(log, snapshots)


def test_unresponsive_storage_is_not_waited_for(log: MemoryEventLog) -> None:
    nowhere = SnapshotStore(Storage.open("nothing-of-this-name://host/x"), "c")
    replica, start, events = started(log, nowhere)
    assert (start, hash_of(replica)) == (-1, whole_way())
    assert events[0].startswith("no snapshots: the log is read from its start:")


def test_newest_snapshot_and_its_base_are_retained(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    for end in (10, 20, 30):
        create_snapshot(log, snapshots, end)
    assert snapshots.offsets() == [29, 19]
    tear(path(snapshots, 29))
    create_snapshot(log, snapshots, 40)
    assert snapshots.offsets() == [39, 19]


def test_existing_snapshot_is_not_taken_again(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    first, second = create_snapshot(log, snapshots, 10), create_snapshot(log, snapshots, 10)
    assert first is not None
    assert second is not None
    assert (first.fresh, second.fresh) == (True, False)
    assert (first.offset, first.uri, first.size, first.state_hash) == (
        second.offset,
        second.uri,
        second.size,
        second.state_hash,
    )


def test_empty_log_has_no_snapshot(snapshots: SnapshotStore) -> None:
    assert create_snapshot(MemoryEventLog(), snapshots) is None
    assert snapshots.offsets() == []


def test_leaders_are_known_from_snapshot_and_later_events(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    assert read_newest_leadership(log, snapshots) == (LeadershipState(), 0)
    create_snapshot(log, snapshots, LAST - 5)
    replica = create_quiet_replica()
    for record in history(LONG)[: LAST - 5]:
        replica.apply(record)
    assert read_newest_leadership(log, snapshots) == (replica.leadership, LAST - 5)
    dispatcher = replica.states[DISPATCHER]
    assert isinstance(dispatcher, DispatcherState)
    assert dispatcher.configuration
    assert read_newest_client_view(log, snapshots) == (replica.leadership, dispatcher.configuration, LAST - 5)
    path(snapshots, LAST - 6).write_bytes(b"x")
    with capture_logs() as events:
        assert read_newest_leadership(log, snapshots) == (LeadershipState(), 0)
    assert events == [], "clients print what they were asked for, and nothing else"


def test_history_of_log_with_deleted_head_starts_after_snapshot(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    log.truncate(10)
    with pytest.raises(LogTruncated):
        list(HistoryProjection().read(log))
    fold = HistoryProjection()
    reports = [entry.record.offset for entry in fold.read(log, store=snapshots)]
    assert reports == list(range(LAST - 5, LAST + 1))
    assert hash_of(fold.replica) == whole_way()
    assert {view.job_id for view in jobs(fold)} == set(fold.replica.states["dispatcher"].jobs)


def test_history_of_complete_log_is_complete(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    create_snapshot(log, snapshots)
    assert len(list(HistoryProjection().read(log, store=snapshots))) == LAST + 1
