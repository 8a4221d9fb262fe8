"""Processes start without a usable snapshot on a log whose head was deleted: from the archive."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tailrace.infra.storage.storage import Storage
from tailrace.schemas.event import Event
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import TASK_EXECUTOR
from tailrace.services.history.retention.archived_log import ArchivedLog
from tailrace.services.history.retention.archiver import archive_log, archive_of
from tailrace.services.history.retention.log_archive import ClusterArchive
from tailrace.services.log import Codec, LogTruncated
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.processes.snapshots import fold_archive
from tailrace.services.snapshots.builder import all_roles, create_snapshot
from tailrace.services.snapshots.recovery import restore_newest
from tailrace.services.snapshots.state_hash import StateHasher, hash_all
from tailrace.services.snapshots.store import SnapshotStore
from tailrace.services.task_executor import TaskExecutor

from .snapshots.simulated_logs import LONG, history

HISTORY = history(LONG)


def create_log(*, garbage_at: int | None = None) -> MemoryEventLog:
    log = MemoryEventLog(Codec("c.log"), topic="c.log")
    for record in HISTORY:
        if record.offset == garbage_at:
            log.append_values([b"garbage"])
        log.append([Event(record.header, record.body)])
    return log


def cut(log: MemoryEventLog, directory: Path, first: int) -> ArchivedLog:
    archive = ClusterArchive(Storage.open(str(directory / "archive")), "c")
    found = archive_of(log, archive)
    assert found is not None
    for end in (first // 2, first + 1):
        archive_log(log, found, end)
    log.truncate(first)
    return ArchivedLog(log, archive)


def follow(replica: Replica, log: MemoryEventLog) -> str:
    """Reads the topic as the host of a process does."""
    for batch in read_to_end(log, replica.offset + 1):
        for record in batch:
            replica.apply(record)
    return hash_all(StateHasher(replica).hashes())


def state_of(log: MemoryEventLog) -> str:
    return follow(all_roles(), log)


@pytest.mark.parametrize("snapshots", ["none", "damaged", "too old"])
def test_master_rebuilds_its_state_from_archive(tmp_path: Path, snapshots: str) -> None:
    store = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    log, expected = create_log(), state_of(create_log())
    if snapshots != "none":
        taken = create_snapshot(log, store, 60 if snapshots == "too old" else 250)
        assert taken is not None
        if snapshots == "damaged":
            Path(taken.uri).write_bytes(b"damaged")
    archived = cut(log, tmp_path, 200)
    replica = all_roles()
    with capture_logs() as lines:
        restore_newest(replica, archived, store)
        fold_archive(replica, archived)
    assert "the state is rebuilt from the archive" in lines[-1]["event"]
    assert follow(replica, log) == expected


def test_rebuilt_state_continues_after_garbage_before_the_topic(tmp_path: Path) -> None:
    log, expected = create_log(garbage_at=199), state_of(create_log(garbage_at=199))
    archived = cut(log, tmp_path, 200)
    replica = all_roles()
    fold_archive(replica, archived)
    assert follow(replica, log) == expected


def test_snapshot_that_reaches_the_topic_needs_no_archive(tmp_path: Path) -> None:
    store = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    log, expected = create_log(), state_of(create_log())
    create_snapshot(log, store, 250)
    archived = cut(log, tmp_path, 200)
    for file in (tmp_path / "archive").glob("*/*"):
        file.unlink()
    replica = all_roles()
    restore_newest(replica, archived, store)
    fold_archive(replica, archived)
    assert follow(replica, log) == expected


def test_topic_without_snapshot_and_archive_is_refused(tmp_path: Path) -> None:
    log = create_log()
    archived = cut(log, tmp_path, 200)
    for file in (tmp_path / "archive").glob("*/*"):
        file.unlink()
    with pytest.raises(LogTruncated):
        fold_archive(all_roles(), archived)


def test_task_executor_rebuilds_its_own_state_from_archive(tmp_path: Path) -> None:
    """A TaskExecutor that starts after a cut has the state of one that has read the whole log."""
    log = create_log()
    addresses = [address for address in full(create_log()).states if address.startswith(TASK_EXECUTOR)]
    archived = cut(log, tmp_path, 200)
    assert addresses
    for address in [*addresses, f"{TASK_EXECUTOR}/new"]:
        states = []
        for source in (archived, ArchivedLog(create_log(), ClusterArchive(Storage.open(str(tmp_path)), "c"))):
            replica = Replica([TaskExecutor()], only=lambda found, own=address: found == own)  # type: ignore[misc]
            fold_archive(replica, source)
            for batch in read_to_end(source.live, replica.offset + 1):
                for record in batch:
                    replica.apply(record)
            states.append((replica.states.get(address), replica.leadership))
        assert states[0] == states[1]


def full(log: MemoryEventLog) -> Replica:
    replica = all_roles()
    follow(replica, log)
    return replica
