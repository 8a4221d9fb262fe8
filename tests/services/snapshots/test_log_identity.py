"""A log to which the cluster's snapshots do not belong is rejected, and accepted only on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tailrace.infra.storage.storage import Storage
from tailrace.schemas.event import Event
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots import store
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.log_identity import LogReplaced, check_log
from tailrace.services.snapshots.store import SnapshotStore

from .simulated_logs import LONG, create_log, history

LAST = len(history(LONG)) - 1


def empty() -> MemoryEventLog:
    return MemoryEventLog()


def shorter() -> MemoryEventLog:
    log = MemoryEventLog()
    log.append([Event(record.header, record.body) for record in history(LONG)[:10]])
    return log


def longer_with_the_same_ids() -> MemoryEventLog:
    log = MemoryEventLog()
    log.append(
        [Event(replace(record.header, time=record.header.time + 1), record.body) for record in history(LONG)]
    )
    return log


LOST: list[Callable[[], MemoryEventLog]] = [empty, shorter, longer_with_the_same_ids]


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotStore:
    """Returns two snapshots of the log of LONG."""
    snapshots = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    for end in (LAST // 2, LAST - 5):
        create_snapshot(create_log(LONG), snapshots, end)
    return snapshots


def tear(snapshots: SnapshotStore, offset: int) -> None:
    file = Path(snapshots.uri_of(offset))
    file.write_bytes(file.read_bytes()[:-100])


def test_log_of_snapshots_is_accepted(snapshots: SnapshotStore) -> None:
    check_log(create_log(LONG), snapshots, accept=False)
    assert len(snapshots.offsets()) == 2


@pytest.mark.parametrize("other", LOST)
def test_other_log_is_rejected_in_one_line(
    snapshots: SnapshotStore, other: Callable[[], MemoryEventLog]
) -> None:
    with pytest.raises(LogReplaced, match=r"accept-new-log=true") as refused:
        check_log(other(), snapshots, accept=False)
    assert snapshots.uri_of(LAST - 6) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(snapshots.offsets()) == 2


@pytest.mark.parametrize("other", LOST)
def test_log_accepted_on_request_is_not_rejected_again(
    snapshots: SnapshotStore, other: Callable[[], MemoryEventLog]
) -> None:
    log = other()
    with capture_logs() as lines:
        check_log(log, snapshots, accept=True)
    assert [line["event"] for line in lines] == ["deletes a snapshot of another log"] * 2
    assert snapshots.offsets() == []
    check_log(log, snapshots, accept=False)


def test_snapshots_of_other_release_identify_log_too(
    snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "schema_fingerprint", lambda: "of another release")
    with pytest.raises(LogReplaced):
        check_log(empty(), snapshots, accept=False)


def test_damaged_snapshot_is_skipped_for_older_one(snapshots: SnapshotStore) -> None:
    tear(snapshots, LAST - 6)
    check_log(create_log(LONG), snapshots, accept=False)
    with pytest.raises(LogReplaced, match=str(LAST // 2 - 1)):
        check_log(empty(), snapshots, accept=False)
    tear(snapshots, LAST // 2 - 1)
    check_log(empty(), snapshots, accept=False)


def test_log_with_deleted_head_is_the_same_log(snapshots: SnapshotStore) -> None:
    log = create_log(LONG)
    log.truncate(LAST - 5)
    check_log(log, snapshots, accept=False)
