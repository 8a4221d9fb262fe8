"""A log that is not the one of the cluster's snapshots is refused, and accepted only on request."""

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
    log.append([Event(each.header, each.body) for each in history(LONG)[:10]])
    return log


def longer_with_the_same_ids() -> MemoryEventLog:
    log = MemoryEventLog()
    log.append([Event(replace(each.header, time=each.header.time + 1), each.body) for each in history(LONG)])
    return log


LOST: list[Callable[[], MemoryEventLog]] = [empty, shorter, longer_with_the_same_ids]


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotStore:
    """Two snapshots of the log of LONG."""
    snapshots = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    for end in (LAST // 2, LAST - 5):
        create_snapshot(create_log(LONG), snapshots, end)
    return snapshots


def tear(snapshots: SnapshotStore, offset: int) -> None:
    file = Path(snapshots.uri_of(offset))
    file.write_bytes(file.read_bytes()[:-100])


def test_the_log_of_the_snapshots_is_taken(snapshots: SnapshotStore) -> None:
    check_log(create_log(LONG), snapshots, accept=False)
    assert len(snapshots.offsets()) == 2


@pytest.mark.parametrize("other", LOST)
def test_another_log_is_refused_in_one_line(
    snapshots: SnapshotStore, other: Callable[[], MemoryEventLog]
) -> None:
    with pytest.raises(LogReplaced, match=r"accept-new-log=true") as refused:
        check_log(other(), snapshots, accept=False)
    assert snapshots.uri_of(LAST - 6) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(snapshots.offsets()) == 2


@pytest.mark.parametrize("other", LOST)
def test_once_it_is_accepted_it_is_refused_no_more(
    snapshots: SnapshotStore, other: Callable[[], MemoryEventLog]
) -> None:
    log = other()
    with capture_logs() as lines:
        check_log(log, snapshots, accept=True)
    assert [each["event"] for each in lines] == ["deletes a snapshot of another log"] * 2
    assert snapshots.offsets() == []
    check_log(log, snapshots, accept=False)


def test_snapshots_of_another_release_tell_of_the_log_too(
    snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "schema_fingerprint", lambda: "of another release")
    with pytest.raises(LogReplaced):
        check_log(empty(), snapshots, accept=False)


def test_a_damaged_snapshot_tells_nothing_and_an_older_one_is_asked(snapshots: SnapshotStore) -> None:
    tear(snapshots, LAST - 6)
    check_log(create_log(LONG), snapshots, accept=False)
    with pytest.raises(LogReplaced, match=str(LAST // 2 - 1)):
        check_log(empty(), snapshots, accept=False)
    tear(snapshots, LAST // 2 - 1)
    check_log(empty(), snapshots, accept=False)


def test_a_log_whose_head_is_gone_is_the_same(snapshots: SnapshotStore) -> None:
    log = create_log(LONG)
    log.truncate(LAST - 5)
    check_log(log, snapshots, accept=False)
