"""Archive and topic together are the log that was not cut: for every reader, every cut, and every segment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.infra.storage.storage import Storage
from tailrace.schemas.event import Event, Record
from tailrace.services.history import HistoryProjection, state_at
from tailrace.services.history.archive.exporter import EventSelection, entries, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.archive.manifest import Item
from tailrace.services.history.log_position import LogPosition, first_offset
from tailrace.services.history.log_source import LogSource
from tailrace.services.history.replay.decision_check import DecisionCheck
from tailrace.services.history.retention.archived_log import ArchivedLog
from tailrace.services.history.retention.errors import LogNotContinued, MissingSegment
from tailrace.services.history.retention.log_archive import ClusterArchive
from tailrace.services.log import Codec, EventLog, LogTruncated
from tailrace.services.log.event_log import SKIPPED, Unreadable, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots.builder import all_roles

from ...snapshots.simulated_logs import HISTORIES, LONG, WALKS, history
from ..archive.archive_files import create_log, with_foreign
from .archives import CLUSTER, create_archive, cut, write_segments

EVENTS = 60
_numbers = itertools.count()


def described(items: Sequence[Item]) -> list[tuple[object, ...]]:
    """Returns all that readers see of entries; the topic has the keys of records, which nobody reads."""
    return [
        (item.offset, item)
        if isinstance(item, Record)
        else (item.offset, item.topic, item.reason, item.value, item.header)
        for item in items
    ]


def read_all(log: EventLog, start: int) -> list[tuple[object, ...]]:
    return described([item for items in entries(log, start, log.end()) for item in items])


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Returns ends of segments, the first offset of the topic, and an offset to read from."""
    end = with_foreign(history(LONG)[:EVENTS]).end()
    ends = sorted(draw(st.sets(st.integers(1, end), min_size=1, max_size=6)))
    return ends, draw(st.integers(0, ends[-1] - 1)), draw(st.integers(0, end))


@settings(max_examples=example_count(30), deadline=None)
@given(cuts())
def test_archive_and_topic_have_all_entries_of_uncut_log(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[list[int], int, int]
) -> None:
    ends, first, start = drawn
    log, uncut = with_foreign(history(LONG)[:EVENTS]), with_foreign(history(LONG)[:EVENTS])
    archived = cut(log, create_archive(tmp_path_factory.mktemp("cut")), ends, first)
    assert archived.end() == uncut.end()
    assert first_offset(archived) == 0
    assert read_all(archived, start) == read_all(uncut, start)


def sources(tmp_path: Path, name: str | int) -> tuple[LogSource, LogSource]:
    """Returns an uncut log, and one of which two thirds are only in the archive, in three segments."""
    log = create_log(name)
    end = log.end()
    ends = [end // 4, end // 2, max(1, 3 * end // 4)]
    archived = cut(log, create_archive(tmp_path), ends, max(0, ends[-1] - 1))
    return LogSource(create_log(name), CLUSTER), LogSource(archived, CLUSTER)


@pytest.mark.parametrize("name", HISTORIES)
def test_history_and_decisions_are_those_of_uncut_log(tmp_path: Path, name: str | int) -> None:
    uncut, archived = sources(tmp_path, name)
    lines = [
        [str(entry.as_data()) for entry in HistoryProjection().read(source.log)]
        for source in (uncut, archived)
    ]
    assert lines[0] == lines[1]
    counts = []
    for source in (uncut, archived):
        check = DecisionCheck(all_roles())
        differences = [
            found
            for batch in read_to_end(source.log)
            for record in batch
            for found in check.check_record(record)
        ]
        check.finish()
        counts.append((check.counts, differences))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", WALKS)
def test_states_positions_and_exports_are_those_of_uncut_log(tmp_path: Path, name: int) -> None:
    uncut, archived = sources(tmp_path, name)
    end = uncut.log.end()
    for offset in range(0, end, max(1, end // 12)):
        assert state_at(archived.log, offset) == state_at(uncut.log, offset)
        time = history(name)[offset].header.time
        position = LogPosition("then", time=time)
        assert archived.at(position) == uncut.at(position)
        assert archived.start(position) == uncut.start(position)
    files = [tmp_path / "uncut.avro", tmp_path / "archived.avro"]
    for source, file in zip((uncut, archived), files, strict=True):
        export(source.log, CLUSTER, EventSelection(0, end), file, ArchiveFormat.AVRO)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_reader_continues_in_archive_while_topic_is_cut(tmp_path: Path) -> None:
    log = create_log(LONG)
    archive = create_archive(tmp_path)
    archived = ArchivedLog(log, archive)
    end = log.end()
    tail = archived.tail(0)
    write_segments(log, archive, [end // 2, end - 2])
    log.truncate(end - 10)
    read = []
    while tail.position < end:
        read += tail.poll(0.0)
    assert [record.offset for record in read] == list(range(end))


def test_reader_filters_archived_events(tmp_path: Path) -> None:
    uncut, archived = sources(tmp_path, LONG)

    def concerns(_: str, recipient: str) -> bool:
        return recipient == "dispatcher"

    found = []
    for source in (uncut, archived):
        tail = source.log.tail(0, concerns=concerns)
        records = []
        while tail.position < source.log.end():
            records += tail.poll(0.0)
        found.append(records)
    assert found[0] == found[1]
    assert found[0]


def test_skipped_offset_is_skipped_in_archive_too(tmp_path: Path) -> None:
    log = create_log(LONG)
    archived = cut(log, create_archive(tmp_path), [50], 49)
    archived = ArchivedLog(log, create_archive(tmp_path), skipped=[7])
    reported: list[Unreadable] = []
    offsets = [
        record.offset
        for batch in read_to_end(archived, end=20, on_unreadable=reported.append)
        for record in batch
    ]
    assert offsets == [offset for offset in range(20) if offset != 7]
    assert [(value.offset, value.reason) for value in reported if value.offset < 20] == [(7, SKIPPED)]


def test_topic_without_archive_is_refused_as_before(tmp_path: Path) -> None:
    log = create_log(LONG)
    log.truncate(20)
    with pytest.raises(LogTruncated) as refused:
        ArchivedLog(log, create_archive(tmp_path)).tail(0)
    assert refused.value.first == 20


def test_archive_that_begins_later_is_the_beginning_of_the_log(tmp_path: Path) -> None:
    log = create_log(LONG)
    archive = create_archive(tmp_path)
    found = write_segments(log, archive, [20, 40, 60])
    log.truncate(50)
    for name in (f"{0:020d}-{19:020d}.json",):
        Path(found.uri_of(name)).unlink()
    assert first_offset(ArchivedLog(log, archive)) == 20


def test_archive_of_other_log_is_refused(tmp_path: Path) -> None:
    archive = create_archive(tmp_path)
    write_segments(create_log(LONG), archive, [60])
    other = create_log(next(walk for walk in WALKS if len(history(walk)) > 60 and walk != LONG))
    other.truncate(50)
    with pytest.raises(LogNotContinued, match="is of another log"):
        ArchivedLog(other, archive).tail(0)


def test_archive_of_earlier_log_that_ends_before_the_topic_is_passed_over(tmp_path: Path) -> None:
    archive = create_archive(tmp_path)
    earlier = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    earlier.append(
        [Event(replace(record.header, time=record.header.time + 1), record.body) for record in history(LONG)]
    )
    write_segments(earlier, archive, [10])
    log = create_log(LONG)
    uncut = read_all(create_log(LONG), 0)
    assert read_all(cut(log, archive, [40, 60], 50), 0) == uncut


def test_events_deleted_without_archive_are_named(tmp_path: Path) -> None:
    log = create_log(LONG)
    archive = create_archive(tmp_path)
    write_segments(log, archive, [30])
    log.truncate(50)
    with pytest.raises(MissingSegment, match=r"offsets 30 to 49 of the log is missing"):
        for _ in read_to_end(ArchivedLog(log, archive)):
            pass


def test_archive_of_empty_log_is_empty(tmp_path: Path) -> None:
    archived = ArchivedLog(MemoryEventLog(), create_archive(tmp_path))
    assert list(read_to_end(archived)) == []


def test_archive_may_be_on_an_object_store(tmp_path: Path) -> None:
    log = create_log(LONG)
    uncut = read_all(create_log(LONG), 0)
    archive = ClusterArchive(Storage.open(f"memory://archives/{tmp_path.name}"), CLUSTER)
    archived = cut(log, archive, [20, 40, 60], 50)
    assert read_all(archived, 0) == uncut
    found = archive.of_log(archive.log_ids()[0])
    assert [segment.last for segment in found.chain(0)] == [19, 39, 59]
    for segment in found.chain(0):
        found.verify(segment, entries=True)
    Storage.open(found.uri).delete(found.chain(0)[1].file)
    with pytest.raises(
        MissingSegment, match=r"memory://archives/.* with offsets 20 to 39 of the log is missing"
    ):
        read_all(archived, 0)
