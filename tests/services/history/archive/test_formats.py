"""Exported files, in each format: what is read is what was written, from any offset on, and others can read it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas.client import JobFinished
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import Header, JobStatus
from tailrace.services.history.archive.errors import PartialArchive
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.memory import MemoryEventLog

from ....schemas.strategies import events
from ...snapshots.simulated_logs import LONG, WALKS, history
from .archive_files import (
    FORMATS,
    create_log,
    describe_items,
    export_files,
    file_name,
    items,
    read,
    with_foreign,
)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("seed", WALKS)
def test_a_file_holds_what_the_log_held(seed: int, kind: ArchiveFormat, tmp_path: Path) -> None:
    log = with_foreign(history(seed))
    path = tmp_path / file_name(kind)
    description = export_files(log, path)
    assert describe_items(read(path)) == describe_items(items(log, 0, log.end()))
    assert (description.first, description.last, description.entries) == (0, log.end() - 1, log.end())
    assert description.unreadable == sum(not isinstance(each, Record) for each in items(log, 0, log.end()))
    assert description.whole
    with FileLog.open(path) as file:
        assert file.description == description


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=20, deadline=None)
@given(said=st.lists(events(), max_size=8))
def test_whatever_can_be_said_can_be_written_and_read(kind: ArchiveFormat, said: list[Event]) -> None:
    log = MemoryEventLog(Codec("any.log"))
    log.append(said)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file_name(kind)
        export_files(log, path)
        assert [Event(each.header, each.body) for each in read(path) if isinstance(each, Record)] == said


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324])
def test_numbers_that_json_has_no_word_for_are_kept(
    number: float, kind: ArchiveFormat, tmp_path: Path
) -> None:
    header = Header(event_id="e", time=1, sender="dispatcher", sender_epoch=1, recipient="client/a")
    body = JobFinished(job_id="j", status=JobStatus.FINISHED, accumulators={"a": number})
    log = MemoryEventLog(Codec("any.log"))
    log.append([Event(header, body)])
    path = tmp_path / file_name(kind)
    export_files(log, path)
    (found,) = read(path)
    assert isinstance(found, Record)
    assert Codec("").encode(Event(found.header, found.body)) == Codec("").encode(Event(header, body))


@pytest.mark.parametrize("kind", FORMATS)
def test_reading_begins_at_any_offset_and_ends_before_any(kind: ArchiveFormat, tmp_path: Path) -> None:
    log = with_foreign(history(LONG))
    path = tmp_path / file_name(kind)
    export_files(log, path)
    whole = describe_items(items(log, 0, log.end()))
    for start in range(0, log.end() + 1, 1 + log.end() // 12):
        for end in (start, start + 1, log.end()):
            assert describe_items(read(path, start, end)) == whole[start:end]


@pytest.mark.parametrize("kind", FORMATS)
def test_long_files_are_read_from_any_offset_on(kind: ArchiveFormat, tmp_path: Path) -> None:
    records = history(LONG)
    log = MemoryEventLog(Codec("long.log"))
    for _ in range(1 + 9_000 // len(records)):
        log.append([Event(each.header, each.body) for each in records])
    path = tmp_path / file_name(kind)
    export_files(log, path)
    for start in (0, 1, 4_095, 4_096, log.end() // 2, log.end() - 1):
        assert describe_items(read(path, start, start + 3)) == describe_items(
            items(log, start, min(start + 3, log.end()))
        )


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_log_is_a_file_too(kind: ArchiveFormat, tmp_path: Path) -> None:
    path = tmp_path / file_name(kind)
    export_files(MemoryEventLog(), path)
    assert read(path) == []
    with FileLog.open(path) as file:
        assert file.end() == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_log_gives_the_same_file(kind: ArchiveFormat, tmp_path: Path) -> None:
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    export_files(create_log(0), first)
    export_files(create_log(0), second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_selection_is_marked_and_is_no_log_to_fold(kind: ArchiveFormat, tmp_path: Path) -> None:
    log = with_foreign(history(0))
    path = tmp_path / file_name(kind)
    description = export_files(log, path, EventSelection(5, log.end(), types=("LeaderElected",)))
    assert not description.whole
    assert description.selected == "from offset 5, of type LeaderElected"
    kept = [
        each
        for each in items(log, 5, log.end())
        if isinstance(each, Record) and type(each.body).__name__ == "LeaderElected"
    ]
    assert read(path, selections=True) == kept
    with pytest.raises(PartialArchive, match=r"a selection \(from offset 5, of type LeaderElected\)"):
        FileLog.open(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_beginning_is_whole(kind: ArchiveFormat, tmp_path: Path) -> None:
    log = create_log(0)
    path = tmp_path / file_name(kind)
    assert export_files(log, path, EventSelection(0, 20)).whole
    assert describe_items(read(path)) == describe_items(items(log, 0, 20))
    assert export_files(log, path, EventSelection(3, 20)).selected == "from offset 3"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_log_whose_head_is_gone_is_no_beginning(kind: ArchiveFormat, tmp_path: Path) -> None:
    log = create_log(0)
    log.truncate(10)
    path = tmp_path / file_name(kind)
    assert (
        export_files(log, path, EventSelection(10, log.end())).selected
        == "from offset 10 (the log has none before)"
    )
    assert describe_items(read(path, 10, selections=True)) == describe_items(items(log, 10, log.end()))


def test_nothing_is_appended_to_a_file(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    with FileLog.open(tmp_path / "a.avro") as file, pytest.raises(LogUnavailable, match="takes no events"):
        file.append([])


def test_any_avro_tool_reads_the_avro_file(tmp_path: Path) -> None:
    log = with_foreign(history(0))
    export_files(log, tmp_path / "a.avro")
    with (tmp_path / "a.avro").open("rb") as file:
        found: list[Any] = list(fastavro.reader(file, return_record_name=True))
    for entry, item in zip(found, items(log, 0, log.end()), strict=True):
        assert entry["offset"] == item.offset
        if isinstance(item, Record):
            name, event = entry["event"]
            assert name == item.body.AVRO_NAME
            assert event["header"]["event_id"] == item.header.event_id
            assert event["header"]["time"].tzinfo is not None
        else:
            assert (entry["event"], entry["value"]) == (None, item.value)


def test_any_program_reads_the_lines_of_json(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.jsonl")
    head, *lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert (head["cluster"], head["entries"]) == ("c1", log.end())
    for line, item in zip(lines, items(log, 0, log.end()), strict=True):
        assert isinstance(item, Record)
        assert line["offset"] == item.offset
        assert f"tailrace.{line['type']}" == item.body.AVRO_NAME
        assert line["header"]["sender"] == item.header.sender


def test_any_parquet_tool_reads_typed_columns(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == log.end()
    leaders = table.column("everyone_LeaderElected").drop_null().to_pylist()
    said = [each for each in items(log, 0, log.end()) if isinstance(each, Record)]
    assert [each["role"] for each in leaders] == [
        each.body.role for each in said if isinstance(each.body, LeaderElected)
    ]
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_long_selection_of_a_long_name_is_described(kind: ArchiveFormat, tmp_path: Path) -> None:
    log = create_log(0)
    path = tmp_path / file_name(kind)
    job = "\x00" * 1_000
    description = export(log, "c" * 249, EventSelection(0, log.end(), job=job), path, kind)
    assert description.selected is not None
    assert read(path, selections=True) == []
