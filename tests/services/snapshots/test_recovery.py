"""Start-up: the newest snapshot that is fit, and one line for each that is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from tailrace.services.snapshots import fingerprint, store
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.recovery import (
    read_newest_client_view,
    read_newest_leadership,
    restore_newest,
)
from tailrace.services.snapshots.state_hash import StateHasher, hash_all
from tailrace.services.snapshots.store import SnapshotStore

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
    """A replica at the end of the log; the offset that it began with; what people were told."""
    replica = create_quiet_replica()
    with capture_logs() as said:
        header = restore_newest(replica, log, snapshots)
    tail = log.tail(replica.offset + 1)
    while tail.position < log.end():
        for record in tail.poll(0):
            replica.apply(record)
    lines = [
        f"{each['event']}: {each.get('snapshot', '')} {each.get('reason', each.get('error'))}"
        for each in said
    ]
    return replica, -1 if header is None else header.offset, lines


def hash_of(replica: Replica) -> str:
    return hash_all(StateHasher(replica).hashes())


def whole_way() -> str:
    replica = create_quiet_replica()
    for record in history(LONG):
        replica.apply(record)
    return hash_of(replica)


def test_without_any_the_log_is_read_from_its_start(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    replica, begun, said = started(log, snapshots)
    assert (begun, said, hash_of(replica)) == (-1, [], whole_way())


def test_the_newest_is_taken(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    for end in (10, LAST // 2, LAST - 5):
        create_snapshot(log, snapshots, end)
    replica, begun, said = started(log, snapshots)
    assert (begun, said, hash_of(replica)) == (LAST - 6, [], whole_way())


def test_one_of_the_whole_log_has_no_tail(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    taken = create_snapshot(log, snapshots)
    replica, begun, _ = started(log, snapshots)
    assert taken is not None
    assert (begun, hash_of(replica)) == (LAST, whole_way())
    assert taken.state_hash == whole_way()


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
        (tear, "it is torn or damaged"),
        (empty, "it is empty"),
        (replaced, "it is no snapshot"),
        (of_another_offset, "it is that of offset"),
    ],
)
def test_a_bad_one_is_set_aside_in_one_line_and_the_next_older_taken(
    log: MemoryEventLog, snapshots: SnapshotStore, damage: Callable[[Path], Any], reason: str
) -> None:
    create_snapshot(log, snapshots, LAST // 2)
    create_snapshot(log, snapshots, LAST - 5)
    damage(path(snapshots, LAST - 6))
    replica, begun, said = started(log, snapshots)
    assert (begun, hash_of(replica)) == (LAST // 2 - 1, whole_way())
    assert len(said) == 1
    assert f"skipped an unusable snapshot: {snapshots.uri_of(LAST - 6)} {reason}" in said[0]
    assert "\n" not in said[0]


def test_where_all_are_bad_the_log_is_read_from_its_start(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    for end in (LAST // 2, LAST - 5):
        create_snapshot(log, snapshots, end)
    for offset in snapshots.offsets():
        tear(path(snapshots, offset))
    replica, begun, said = started(log, snapshots)
    assert (begun, len(said), hash_of(replica)) == (-1, 2, whole_way())


def test_the_snapshot_of_another_cluster_is_set_aside(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    create_snapshot(log, SnapshotStore(Storage.open(snapshots.uri), "other"), LAST - 5)
    _, begun, said = started(log, snapshots)
    assert begun == -1
    assert "it is of cluster 'other'" in said[0]


def test_the_snapshot_of_another_release_is_set_aside(
    log: MemoryEventLog, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    monkeypatch.setattr(store, "schema_fingerprint", lambda: "0" * 16)
    _, begun, said = started(log, snapshots)
    assert begun == -1
    assert f"fingerprint {fingerprint.schema_fingerprint()}, not {'0' * 16}" in said[0]


def test_one_that_is_newer_than_the_log_is_set_aside(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    create_snapshot(log, snapshots, LAST // 2)
    create_snapshot(log, snapshots)
    shorter = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    shorter.append([Event(each.header, each.body) for each in history(LONG)[:-1]])
    _, begun, said = started(shorter, snapshots)
    assert begun == LAST // 2 - 1
    assert f"it is newer than histories.log, which ends before offset {LAST}" in said[0]


def test_one_of_another_log_of_the_same_name_is_set_aside(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    create_snapshot(log, snapshots, 10)
    other = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    for name in (1, LONG):
        other.append([Event(each.header, each.body) for each in history(name)])
    _, begun, said = started(other, snapshots)
    assert begun == -1
    assert "holds another event at offset 9: it is of another log" in said[0]


@pytest.mark.parametrize("behind", [0, 1])
def test_the_head_of_the_log_may_be_gone_up_to_the_snapshot(
    log: MemoryEventLog, snapshots: SnapshotStore, behind: int
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    log.truncate(LAST - 6 + behind)
    replica, begun, said = started(log, snapshots)
    assert (begun, said, hash_of(replica)) == (LAST - 6, [], whole_way())


def test_a_gap_between_snapshot_and_log_is_refused(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    log.truncate(LAST - 4)
    with pytest.raises(LogTruncated, match=f"begins at offset {LAST - 4}, but offset {LAST - 5} is needed"):
        restore_newest(create_quiet_replica(), log, snapshots)


def test_where_the_head_is_gone_a_log_without_a_snapshot_is_refused(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    tear(path(snapshots, LAST - 6))
    log.truncate(5)
    with pytest.raises(LogTruncated, match="begins at offset 5, but offset 0 is needed"):
        started(log, snapshots)


def test_storage_that_does_not_answer_is_not_waited_for(log: MemoryEventLog) -> None:
    nowhere = SnapshotStore(Storage.open("nothing-of-this-name://host/x"), "c")
    replica, begun, said = started(log, nowhere)
    assert (begun, hash_of(replica)) == (-1, whole_way())
    assert said[0].startswith("no snapshots: the log is read from its start:")


def test_the_newest_and_the_one_that_it_was_made_from_are_retained(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    for end in (10, 20, 30):
        create_snapshot(log, snapshots, end)
    assert snapshots.offsets() == [29, 19]
    tear(path(snapshots, 29))
    create_snapshot(log, snapshots, 40)
    assert snapshots.offsets() == [39, 19]


def test_what_is_there_is_not_taken_again(log: MemoryEventLog, snapshots: SnapshotStore) -> None:
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


def test_a_log_without_events_has_no_snapshot(snapshots: SnapshotStore) -> None:
    assert create_snapshot(MemoryEventLog(), snapshots) is None
    assert snapshots.offsets() == []


def test_who_leads_is_known_from_a_snapshot_and_what_follows(
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
    with capture_logs() as said:
        assert read_newest_leadership(log, snapshots) == (LeadershipState(), 0)
    assert said == [], "clients print what they were asked for, and nothing else"


def test_the_story_of_a_log_whose_head_is_gone_begins_behind_a_snapshot(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    create_snapshot(log, snapshots, LAST - 5)
    log.truncate(10)
    with pytest.raises(LogTruncated):
        list(HistoryProjection().read(log))
    fold = HistoryProjection()
    told = [entry.record.offset for entry in fold.read(log, store=snapshots)]
    assert told == list(range(LAST - 5, LAST + 1))
    assert hash_of(fold.replica) == whole_way()
    assert {view.job_id for view in jobs(fold)} == set(fold.replica.states["dispatcher"].jobs)


def test_as_long_as_the_head_is_there_the_story_is_whole(
    log: MemoryEventLog, snapshots: SnapshotStore
) -> None:
    create_snapshot(log, snapshots)
    assert len(list(HistoryProjection().read(log, store=snapshots))) == LAST + 1
