"""A snapshot is due by bytes or age, for the leader only, and not before the next one is due."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.everyone import SnapshotTaken
from tailrace.schemas.types import Header
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.snapshots.builder import SnapshotInfo
from tailrace.services.snapshots.scheduler import LogProgress, SnapshotFailed, SnapshotScheduler

SECOND = 1_000_000
MINUTE = 60 * SECOND


class Master:
    """The view of a scheduler on its process; tests move the log and the clock."""

    def __init__(self, *, max_bytes: int = 1_000, max_age: int = 0, since: int | None = None) -> None:
        self.now = 100 * MINUTE
        self.at = LogProgress(-1, 0)
        self.leads = True
        self.fails = False
        self.ends: list[int] = []
        self.sent: list[OutgoingEvent] = []
        self.keeper = SnapshotScheduler(
            self._take,
            max_bytes=max_bytes,
            max_age=max_age,
            progress=lambda: self.at,
            leads=lambda: self.leads,
            say=self.sent.append,
            clock=lambda: self.now,
            since=since,
        )

    def _take(self, end: int) -> SnapshotInfo:
        self.ends.append(end)
        if self.fails:
            raise SnapshotFailed("the disk is full")
        return SnapshotInfo(offset=end - 1, uri="u", size=9, schema_fingerprint="f", state_hash="h")

    def grow(self, events: int, size: int) -> None:
        self.at = LogProgress(self.at.offset + events, self.at.bytes_read + events * size)

    def read_back(self) -> None:
        """Reads back from the log the events that were sent."""
        for owed in self.sent:
            assert isinstance(owed.body, SnapshotTaken)
            self.receive(owed.body)
        self.sent.clear()

    def receive(self, body: SnapshotTaken) -> None:
        self.grow(1, 100)
        header = Header(event_id="x", time=self.now, sender="dispatcher", sender_epoch=1, recipient=EVERYONE)
        self.keeper.on_snapshot_created(Record(self.at.offset, header, body), body)


def test_snapshot_is_taken_when_log_has_grown_by_bytes() -> None:
    master = Master(max_bytes=1_000)
    master.grow(9, 100)
    assert master.keeper.create_if_due() is None
    master.grow(1, 100)
    assert master.keeper.create_if_due() is not None
    assert master.ends == [10]
    (event,) = master.sent
    assert (event.recipient, event.body) == (
        EVERYONE,
        SnapshotTaken(offset=9, uri="u", size=9, schema_fingerprint="f", state_hash="h"),
    )
    assert master.keeper.create_if_due() is None
    master.read_back()
    master.grow(8, 100)
    assert master.keeper.create_if_due() is None
    master.grow(1, 100)
    assert master.keeper.create_if_due() is not None


def test_growth_during_snapshot_counts_for_next_one() -> None:
    master = Master(max_bytes=1_000)
    master.grow(10, 100)
    master.keeper.create_if_due()
    master.grow(9, 100)
    master.read_back()
    assert master.keeper.create_if_due() is not None


def test_snapshot_is_taken_when_last_one_is_old_and_log_has_grown() -> None:
    master = Master(max_bytes=0, max_age=60 * MINUTE)
    master.grow(1, 100)
    assert master.keeper.create_if_due() is None
    master.now += 60 * MINUTE
    assert master.keeper.create_if_due() is not None
    master.read_back()
    master.now += 600 * MINUTE
    assert master.keeper.create_if_due() is None, "its own SnapshotTaken is nothing new"
    master.grow(1, 100)
    assert master.keeper.create_if_due() is not None


def test_age_of_recovered_snapshot_counts() -> None:
    master = Master(max_bytes=0, max_age=60 * MINUTE, since=30 * MINUTE)
    master.grow(1, 100)
    assert master.keeper.create_if_due() is not None


def test_only_leader_takes_snapshots_and_standby_counts_from_its_report() -> None:
    master = Master(max_bytes=1_000)
    master.leads = False
    master.grow(50, 100)
    assert master.keeper.create_if_due() is None
    master.receive(SnapshotTaken(offset=40, uri="u", size=9, schema_fingerprint="f", state_hash="h"))
    master.leads = True
    assert master.keeper.create_if_due() is None
    master.grow(10, 100)
    assert master.keeper.create_if_due() is not None


def test_failed_snapshot_is_logged_and_retried_later() -> None:
    master = Master(max_bytes=1_000)
    master.grow(10, 100)
    master.fails = True
    with capture_logs() as reports:
        assert master.keeper.create_if_due() is None
        assert master.keeper.create_if_due() is None
    assert [report["error"] for report in reports] == ["the disk is full"]
    assert (master.ends, master.sent) == ([10], [])
    master.fails = False
    master.now += MINUTE
    assert master.keeper.create_if_due() is not None


@pytest.mark.parametrize(("max_bytes", "max_age"), [(0, 0), (0, MINUTE), (1_000, 0)])
def test_disabled_condition_triggers_no_snapshot(max_bytes: int, max_age: int) -> None:
    master = Master(max_bytes=max_bytes, max_age=max_age)
    master.grow(1_000, 1_000)
    assert (master.keeper.due_reason(master.now) is not None) is bool(max_bytes)
    assert (master.keeper.due_reason(master.now + MINUTE) is not None) is bool(max_bytes or max_age)
