"""Nothing is deleted from the topic that is not archived and verified, older than the retention, and older than the
oldest snapshot; interrupted and simultaneous runs lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.infra.storage.errors import StorageError
from tailrace.infra.storage.storage import Storage
from tailrace.schemas.event import Event
from tailrace.services.history import state_at
from tailrace.services.history.log_position import first_offset
from tailrace.services.history.retention.archived_log import ArchivedLog
from tailrace.services.history.retention.archiver import archive_log, archive_of, archive_through_snapshots
from tailrace.services.history.retention.cut import RetentionPolicy, find_outdated
from tailrace.services.history.retention.errors import (
    ArchiveUnavailable,
    DamagedSegment,
    LogNotContinued,
    MissingSegment,
)
from tailrace.services.history.retention.log_archive import ClusterArchive
from tailrace.services.history.retention.retention import (
    RetentionReport,
    apply_retention,
    delete_archived,
    find_oldest_snapshot,
)
from tailrace.services.history.retention.segment import Segment, SegmentRange, find_chain
from tailrace.services.log import Codec
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.store import SnapshotStore

from ...snapshots.simulated_logs import LONG, create_log, history
from .archives import CLUSTER, create_archive

HISTORY = history(LONG)
FAR_FUTURE = max(record.header.time for record in HISTORY) + 10**12
KEEP_NOTHING = RetentionPolicy(max_age=1)


def create_store(directory: Path) -> SnapshotStore:
    return SnapshotStore(Storage.open(str(directory / "snapshots")), CLUSTER)


def run(
    log: MemoryEventLog, archive: ClusterArchive, store: SnapshotStore, policy: RetentionPolicy = KEEP_NOTHING
) -> RetentionReport | None:
    return apply_retention(log, archive, find_oldest_snapshot(log, store), policy, FAR_FUTURE, log.truncate)


def segments() -> st.SearchStrategy[list[Segment]]:
    """Segments that follow each other, of any size and time."""

    def build(parts: list[tuple[int, int, int]]) -> list[Segment]:
        found, start = [], 0
        for length, size, time in parts:
            found.append(
                Segment(
                    cluster="c",
                    log_id="l",
                    first=start,
                    last=start + length - 1,
                    entries=length,
                    file="f",
                    bytes=1,
                    sha256="",
                    log_bytes=size,
                    first_time=time,
                    last_time=time,
                )
            )
            start += length
        return found

    return st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99), st.integers(0, 99)), max_size=8).map(
        build
    )


limits = st.none() | st.integers(0, 200)


@given(segments(), st.integers(0, 80), limits, limits, st.integers(0, 300))
def test_outdated_segments_are_old_or_too_many_and_below_snapshot(
    found: list[Segment], snapshot: int, max_age: int | None, max_bytes: int | None, now: int
) -> None:
    policy = RetentionPolicy(max_age, max_bytes)
    outdated = find_outdated(found, snapshot, policy, now)
    assert outdated == found[: len(outdated)]
    kept = found[len(outdated) :]
    for place, segment in enumerate(outdated):
        assert segment.last <= snapshot
        is_old = max_age is not None and segment.last_time is not None and segment.last_time < now - max_age
        assert is_old or (max_bytes is not None and sum(s.log_bytes for s in found[place:]) > max_bytes)
    if kept and kept[0].last <= snapshot:
        assert max_bytes is None or sum(segment.log_bytes for segment in kept) <= max_bytes
        assert max_age is None or kept[0].last_time is None or kept[0].last_time >= now - max_age


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda pair: pair[0] <= pair[1])))
def test_chain_covers_offsets_without_gap(pairs: set[tuple[int, int]]) -> None:
    ranges = [SegmentRange(*pair) for pair in pairs]
    covered = {offset for found in ranges for offset in range(found.first, found.last + 1)}
    end = next(offset for offset in range(32) if offset not in covered)
    chain = find_chain(ranges, 0)
    assert (chain[-1].last + 1 if chain else 0) == end
    assert {offset for found in chain for offset in range(found.first, found.last + 1)} == set(range(end))


def test_old_events_are_archived_and_deleted_below_oldest_snapshot(tmp_path: Path) -> None:
    log, archive, store = create_log(LONG), create_archive(tmp_path), create_store(tmp_path)
    assert run(log, archive, store) is None
    for end in (100, 200):
        create_snapshot(log, store, end)
    report = run(log, archive, store)
    # The snapshot's own event stays, and is in both.
    assert report == RetentionReport(segments=1, archived=100, first=99, deleted=99)
    assert first_offset(log) == 99
    create_snapshot(log, store, 300)
    report = run(log, archive, store)
    assert report == RetentionReport(segments=1, archived=200, first=199, deleted=100)
    assert first_offset(log) == 199
    assert run(log, archive, store) == RetentionReport(segments=0, archived=200, first=199, deleted=0)


@settings(max_examples=example_count(10))
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.booleans(), st.none() | st.integers(0, 400), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from((1, 4 << 10, 1 << 20)),
)
def test_topic_archived_by_hand_is_cut_at_oldest_snapshot(
    steps: list[tuple[int, bool, int | None, bool]], segment_bytes: int
) -> None:
    """Each step: events are added, a snapshot is taken or not, and the log is archived up to some offset, then cut or
    not."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setitem(archive_log.__kwdefaults__, "segment_bytes", segment_bytes)
        archive, store = create_archive(Path(directory)), create_store(Path(directory))
        log = MemoryEventLog(Codec("histories.log"), topic="histories.log")
        for count, takes_snapshot, to, cuts in [*steps, (1, True, None, True)]:
            added = HISTORY[log.end() : log.end() + count]
            log.append([Event(record.header, record.body) for record in added])
            if takes_snapshot:
                create_snapshot(log, store)
            end = log.end() if to is None else min(log.end(), to)
            found = archive_of(log, archive)
            assert found is not None
            archive_through_snapshots(log, found, end, store.offsets())
            if cuts and (snapshots := store.offsets()):
                oldest = min(*snapshots, end)
                delete_archived(log, found, oldest, RetentionPolicy(max_bytes=0), 0, log.truncate)
        assert first_offset(log) == min(store.offsets())
        whole = [record for batch in read_to_end(ArchivedLog(log, archive)) for record in batch]
        assert whole == list(HISTORY[: len(whole)])
        assert len(whole) == log.end()


def test_young_events_stay(tmp_path: Path) -> None:
    log, archive, store = create_log(LONG), create_archive(tmp_path), create_store(tmp_path)
    for end in (100, 200, 300):
        create_snapshot(log, store, end)
        run(log, archive, store, RetentionPolicy(max_age=FAR_FUTURE))
    assert first_offset(log) == 0


def missing(path: Path) -> None:
    path.unlink()


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "error", "why"),
    [
        (missing, MissingSegment, "is missing"),
        (shorter, DamagedSegment, "bytes instead of"),
        (changed, DamagedSegment, "its SHA-256 is another"),
    ],
)
def test_nothing_is_deleted_while_segment_is_missing_or_damaged(
    tmp_path: Path, harm: Callable[[Path], None], error: type[Exception], why: str
) -> None:
    log, archive, store = create_log(LONG), create_archive(tmp_path), create_store(tmp_path)
    create_snapshot(log, store, 100)
    create_snapshot(log, store, 200)
    found = archive_of(log, archive)
    assert found is not None
    for end in (50, 100):
        archive_log(log, found, end)
    (file,) = (tmp_path / "archive").glob(f"*/{0:020d}-*.avro")
    harm(file)
    with pytest.raises(error, match=why) as refused:
        run(log, archive, store)
    assert str(file) in str(refused.value)
    assert "offsets 0 to 49 " in str(refused.value)
    assert "\n" not in str(refused.value)
    assert first_offset(log) == 0


@pytest.mark.parametrize("harm", [missing, shorter, changed])
def test_reader_names_missing_or_damaged_segment(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    log, archive, store = create_log(LONG), create_archive(tmp_path), create_store(tmp_path)
    for end in (100, 200, 300):
        create_snapshot(log, store, end)
        run(log, archive, store)
    (file,) = (tmp_path / "archive").glob(f"*/{0:020d}-{99:020d}-*.avro")
    harm(file)
    with pytest.raises((MissingSegment, DamagedSegment), match="offsets 0 to 99 of the log") as refused:
        list(read_to_end(ArchivedLog(log, archive)))
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_log_that_has_lost_unarchived_events_is_not_archived_further(tmp_path: Path) -> None:
    log, archive, store = create_log(LONG), create_archive(tmp_path), create_store(tmp_path)
    create_snapshot(log, store, 100)
    run(log, archive, store)
    for end in (200, 300):
        create_snapshot(log, store, end)
    log.truncate(150)
    with pytest.raises(LogNotContinued, match="begins at offset 150, but its archive"):
        run(log, archive, store)


class Unreliable(Storage):
    """A storage that fails at a write, before or after it has happened."""

    def __init__(self, uri: str, failing: int, *, happens: bool) -> None:
        super().__init__(uri)
        self.failing = failing
        self.happens = happens

    def write_atomically(self, path: str, data: bytes) -> None:
        self.failing -= 1
        if self.failing != 0 or self.happens:
            super().write_atomically(path, data)
        if self.failing == 0:
            raise StorageError(f"{path}: unreliable")


class UnreliableArchive(ClusterArchive):
    def __init__(self, directory: Path, failing: int, *, happens: bool) -> None:
        self.storage = Unreliable(str(directory / "archive"), failing, happens=happens)
        super().__init__(self.storage, CLUSTER)

    def of_log(self, log_id: str):  # type: ignore[no-untyped-def]
        found = super().of_log(log_id)
        whole = Unreliable(found.uri, self.storage.failing, happens=self.storage.happens)
        found._storage = whole
        return found


@settings(max_examples=example_count(15), deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 80), st.integers(0, 4), st.booleans(), st.sampled_from([1, 10**15])),
        min_size=2,
        max_size=8,
    ),
    deleted=st.sets(st.integers(0, 7), max_size=2),
)
def test_no_event_is_lost_by_interrupted_runs(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int, bool, int]],
    deleted: set[int],
) -> None:
    """A log grows, snapshots are taken and lost, and runs fail at any write; the log with its archive stays whole."""
    directory = tmp_path_factory.mktemp("runs")
    log, store = MemoryEventLog(Codec("c1.log"), topic="c1.log"), create_store(directory)
    for number, (count, failing, happens, age) in enumerate(steps):
        start = log.end()
        log.append([Event(record.header, record.body) for record in HISTORY[start : start + count]])
        archived = ArchivedLog(log, create_archive(directory))
        create_snapshot(archived, store)
        if number in deleted:
            store.delete(store.offsets()[0])
        archive = UnreliableArchive(directory, failing, happens=happens)
        try:
            run(log, archive, store, RetentionPolicy(max_age=age))
        except ArchiveUnavailable:
            assert failing
        offsets = store.offsets()
        assert not offsets or first_offset(log) <= min(offsets)
        read = [record for batch in read_to_end(archived) for record in batch]
        assert [(record.offset, record.header.event_id) for record in read] == [
            (record.offset, record.header.event_id) for record in HISTORY[: log.end()]
        ]
    assert state_at(ArchivedLog(log, create_archive(directory)), store=store) == state_at(
        create_log(LONG), log.end() - 1
    )
