"""Topics, snapshots and the archive are lost at random between restarts. A master never starts with a state that is not
that of the log, and refuses a log that is not the one of the cluster's snapshots or archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.infra.storage.storage import Storage
from tailrace.schemas.event import Event
from tailrace.services.core.replica import Replica
from tailrace.services.history.archive.errors import ArchiveError
from tailrace.services.history.log_position import first_offset
from tailrace.services.history.retention.archived_log import ArchivedLog
from tailrace.services.history.retention.cut import RetentionPolicy
from tailrace.services.history.retention.log_archive import ClusterArchive
from tailrace.services.history.retention.retention import apply_retention, find_oldest_snapshot
from tailrace.services.log import Codec, LogTruncated
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.processes.snapshots import restore_master
from tailrace.services.snapshots.builder import all_roles, create_snapshot
from tailrace.services.snapshots.log_identity import LogReplaced
from tailrace.services.snapshots.state_hash import StateHasher, hash_all
from tailrace.services.snapshots.store import SnapshotStore

from .snapshots.simulated_logs import LONG, history

HISTORY = history(LONG)
REFUSALS = (LogReplaced, LogTruncated, ArchiveError)
FAR = max(record.header.time for record in HISTORY) + 10**15


class Cluster:
    """A log with its storage, and what an observer knows about it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = SnapshotStore(Storage.open(str(directory / "snapshots")), "c")
        self.archive = ClusterArchive(Storage.open(str(directory / "archive")), "c")
        self.created = 0
        self.log = MemoryEventLog(Codec("c.log"), topic="c.log")
        self.events: list[Event] = []
        """All events of the log, also those that were deleted from the topic."""
        self.is_running = True
        """Whether a master has started since the last loss."""
        self.create()
        self.grow(20)

    @property
    def archived(self) -> ArchivedLog:
        return ArchivedLog(self.log, self.archive)

    def create(self) -> None:
        """Begins a log: its first event, and all after it, have times of their own."""
        self.created += 1
        self.log = MemoryEventLog(Codec("c.log"), topic="c.log")
        self.events = []
        self.grow(1)

    def grow(self, count: int) -> None:
        start = len(self.events)
        new = [
            Event(replace(record.header, time=record.header.time + self.created), record.body)
            for record in HISTORY[start : start + count]
        ]
        self.log.append(new)
        self.events += new

    def take_snapshot(self, _: int) -> None:
        if self.is_running:
            create_snapshot(self.archived, self.store)

    def retain(self, _: int) -> None:
        if self.is_running:
            oldest = find_oldest_snapshot(self.log, self.store)
            apply_retention(
                self.log, self.archive, oldest, RetentionPolicy(max_age=1), FAR, self.log.truncate
            )

    def lose_topic(self, _: int) -> None:
        self.is_running = False
        self.create()

    def lose_end(self, count: int) -> None:
        """The topic is restored from an older copy, and grows from there."""
        self.is_running = False
        kept = max(1, len(self.events) - count)
        self.created += 1
        first = min(first_offset(self.log), kept)
        self.log = MemoryEventLog(Codec("c.log"), topic="c.log")
        self.events = self.events[:kept]
        self.log.append(self.events)
        self.log.truncate(first)

    def lose_head(self, count: int) -> None:
        self.log.truncate(min(len(self.events) - 1, first_offset(self.log) + count))

    def lose_snapshots(self, count: int) -> None:
        for offset in self.store.offsets()[: count % 3]:
            self.store.delete(offset)

    def lose_segment(self, number: int) -> None:
        files = sorted((self.directory / "archive").glob("*/*"))
        if files:
            files[number % len(files)].unlink()

    def start(self, *, accept: bool = False) -> Replica:
        """Starts a master. Raises one of REFUSALS."""
        replica = all_roles()
        restore_master(replica, self.archived, self.store, accept=accept)
        for batch in read_to_end(self.log, replica.offset + 1):
            for record in batch:
                replica.apply(record)
        return replica

    def expected_state(self) -> str:
        log = MemoryEventLog(Codec("c.log"), topic="c.log")
        log.append(self.events)
        replica = all_roles()
        for batch in read_to_end(log):
            for record in batch:
                replica.apply(record)
        return hash_all(StateHasher(replica).hashes())

    def has_evidence_of_loss(self) -> bool:
        """Whether a snapshot has an offset at which the log has no event, or another one."""
        for offset in self.store.offsets()[:1]:
            header = self.store.header(offset)
            if offset >= len(self.events):
                return True
            there = self.events[offset].header
            return (there.event_id, there.time) != (header.event_id, header.time)
        return False


STEPS: list[Callable[[Cluster, int], None]] = [
    Cluster.grow,
    Cluster.take_snapshot,
    Cluster.retain,
    Cluster.lose_topic,
    Cluster.lose_end,
    Cluster.lose_head,
    Cluster.lose_snapshots,
    Cluster.lose_segment,
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 60)), max_size=10))
def test_master_starts_with_state_of_its_log_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, int]]
) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("lost"))
    for step, number in [*steps, (Cluster.grow, 1)]:
        try:
            step(cluster, number)
        except REFUSALS:
            assert step in (Cluster.take_snapshot, Cluster.retain)
        try:
            replica = cluster.start()
        except REFUSALS as error:
            assert "\n" not in str(error)
            cluster.is_running = False
            continue
        cluster.is_running = True
        assert not cluster.has_evidence_of_loss()
        assert hash_all(StateHasher(replica).hashes()) == cluster.expected_state()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster of which most events are in the archive only."""
    cluster = Cluster(tmp_path)
    cluster.grow(200)
    cluster.take_snapshot(0)
    cluster.retain(0)
    assert first_offset(cluster.log) > 0
    return cluster


def test_new_log_is_refused_because_of_archive_if_snapshots_are_lost_too(cluster: Cluster) -> None:
    cluster.lose_snapshots(2)
    cluster.lose_topic(0)
    with pytest.raises(LogReplaced, match=r"is a new log, and the archive .* is of another one") as refused:
        cluster.start()
    assert "accept-new-log=true" in str(refused.value)
    cluster.start(accept=True)
    # It is accepted for ever.
    cluster.start()
    cluster.grow(100)
    cluster.take_snapshot(0)
    cluster.retain(0)
    assert len(cluster.archive.log_ids()) == 2
    cluster.lose_snapshots(2)
    assert hash_all(StateHasher(cluster.start()).hashes()) == cluster.expected_state()


def test_log_that_ends_before_its_archive_is_refused(cluster: Cluster) -> None:
    cluster.lose_snapshots(2)
    cluster.lose_end(100)
    with pytest.raises((LogReplaced, ArchiveError), match=r"lost its end|other log"):
        cluster.start()


def test_log_with_other_events_than_archive_is_not_archived_further(cluster: Cluster) -> None:
    cluster.lose_end(cluster.log.end())
    cluster.grow(300)
    cluster.lose_snapshots(2)
    with pytest.raises(LogReplaced, match=r"is of another log|other events than its archive"):
        cluster.start()
