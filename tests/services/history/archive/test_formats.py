"""An archive has what was written, readable from any offset on; other programs read all formats."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas.client import JobFinished
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import Header, JobStatus
from tailrace.services.history.archive.errors import NotAnArchive, PartialArchive
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.memory import MemoryEventLog

from ....schemas.strategies import events
from ...snapshots.simulated_logs import LONG, WALKS, history
from .archive_files import (
    create_log,
    describe_items,
    export_files,
    items,
    read,
    with_foreign,
)


@pytest.mark.parametrize("seed", WALKS)
def test_file_has_same_events_as_log(seed: int, tmp_path: Path) -> None:
    log = with_foreign(history(seed))
    path = tmp_path / "history.avro"
    description = export_files(log, path)
    assert describe_items(read(path)) == describe_items(items(log, 0, log.end()))
    assert (description.first, description.last, description.entries) == (0, log.end() - 1, log.end())
    assert description.unreadable == sum(not isinstance(entry, Record) for entry in items(log, 0, log.end()))
    assert description.whole
    with FileLog.open(path) as file:
        assert file.description == description


@settings(max_examples=20, deadline=None)
@given(drawn_events=st.lists(events(), max_size=8))
def test_any_event_survives_round_trip(drawn_events: list[Event]) -> None:
    log = MemoryEventLog(Codec("any.log"))
    log.append(drawn_events)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.avro"
        export_files(log, path)
        assert [
            Event(entry.header, entry.body) for entry in read(path) if isinstance(entry, Record)
        ] == drawn_events


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324])
def test_any_number_survives_round_trip(number: float, tmp_path: Path) -> None:
    header = Header(event_id="e", time=1, sender="dispatcher", sender_epoch=1, recipient="client/a")
    body = JobFinished(job_id="j", status=JobStatus.FINISHED, accumulators={"a": number})
    log = MemoryEventLog(Codec("any.log"))
    log.append([Event(header, body)])
    path = tmp_path / "history.avro"
    export_files(log, path)
    (entry,) = read(path)
    assert isinstance(entry, Record)
    assert Codec("").encode(Event(entry.header, entry.body)) == Codec("").encode(Event(header, body))


def test_file_is_read_from_any_offset_to_any_offset(tmp_path: Path) -> None:
    log = with_foreign(history(LONG))
    path = tmp_path / "history.avro"
    export_files(log, path)
    whole = describe_items(items(log, 0, log.end()))
    for start in range(0, log.end() + 1, 1 + log.end() // 12):
        for end in (start, start + 1, log.end()):
            assert describe_items(read(path, start, end)) == whole[start:end]


def test_long_file_is_read_from_any_offset_on(tmp_path: Path) -> None:
    records = history(LONG)
    log = MemoryEventLog(Codec("long.log"))
    for _ in range(1 + 9_000 // len(records)):
        log.append([Event(record.header, record.body) for record in records])
    path = tmp_path / "history.avro"
    export_files(log, path)
    for start in (0, 1, 4_095, 4_096, log.end() // 2, log.end() - 1):
        assert describe_items(read(path, start, start + 3)) == describe_items(
            items(log, start, min(start + 3, log.end()))
        )


def test_empty_log_is_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "history.avro"
    export_files(MemoryEventLog(), path)
    assert read(path) == []
    with FileLog.open(path) as file:
        assert file.end() == 0


def test_same_log_gives_same_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a.avro", tmp_path / "b.avro"
    export_files(create_log(0), first)
    export_files(create_log(0), second)
    assert first.read_bytes() == second.read_bytes()


def test_selection_is_marked_and_cannot_be_folded(tmp_path: Path) -> None:
    log = with_foreign(history(0))
    path = tmp_path / "history.avro"
    description = export_files(log, path, EventSelection(5, log.end(), types=("LeaderElected",)))
    assert not description.whole
    assert description.selected == "from offset 5, of type LeaderElected"
    records = [
        entry
        for entry in items(log, 5, log.end())
        if isinstance(entry, Record) and type(entry.body).__name__ == "LeaderElected"
    ]
    assert read(path, selections=True) == records
    with pytest.raises(PartialArchive, match=r"a selection \(from offset 5, of type LeaderElected\)"):
        FileLog.open(path)


def test_prefix_counts_as_complete(tmp_path: Path) -> None:
    log = create_log(0)
    path = tmp_path / "history.avro"
    assert export_files(log, path, EventSelection(0, 20)).whole
    assert describe_items(read(path)) == describe_items(items(log, 0, 20))
    assert export_files(log, path, EventSelection(3, 20)).selected == "from offset 3"


def test_log_with_deleted_head_is_no_prefix(tmp_path: Path) -> None:
    log = create_log(0)
    log.truncate(10)
    path = tmp_path / "history.avro"
    assert (
        export_files(log, path, EventSelection(10, log.end())).selected
        == "from offset 10 (the log has none before)"
    )
    assert describe_items(read(path, 10, selections=True)) == describe_items(items(log, 10, log.end()))


def test_file_is_read_only(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    with FileLog.open(tmp_path / "a.avro") as file, pytest.raises(LogUnavailable, match="takes no events"):
        file.append([])


def test_other_avro_library_reads_avro_file(tmp_path: Path) -> None:
    log = with_foreign(history(0))
    export_files(log, tmp_path / "a.avro")
    with (tmp_path / "a.avro").open("rb") as file:
        results: list[Any] = list(fastavro.reader(file, return_record_name=True))
    for entry, item in zip(results, items(log, 0, log.end()), strict=True):
        assert entry["offset"] == item.offset
        if isinstance(item, Record):
            name, event = entry["event"]
            assert name == item.body.AVRO_NAME
            assert event["header"]["event_id"] == item.header.event_id
            assert event["header"]["time"].tzinfo is not None
        else:
            assert (entry["event"], entry["value"]) == (None, item.value)


@pytest.mark.parametrize("seed", WALKS)
def test_any_json_parser_reads_json_lines(seed: int, tmp_path: Path) -> None:
    log = with_foreign(history(seed))
    export_files(log, tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    for line, item in zip(lines, items(log, 0, log.end()), strict=True):
        if isinstance(item, Record):
            expected = {
                "offset": item.offset,
                "type": item.body.AVRO_NAME.removeprefix("tailrace."),
                "header": msgspec.to_builtins(item.header),
                "body": msgspec.to_builtins(item.body),
            }
            assert line == json.loads(msgspec.json.encode(expected))
        else:
            value = line["value"]
            assert line["offset"] == item.offset
            assert item.value == (None if value is None else base64.b64decode(value))


def test_other_parquet_library_reads_typed_columns(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == log.end()
    leaders = table.column("everyone_LeaderElected").drop_null().to_pylist()
    records = [entry for entry in items(log, 0, log.end()) if isinstance(entry, Record)]
    assert [leader["role"] for leader in leaders] == [
        record.body.role for record in records if isinstance(record.body, LeaderElected)
    ]
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"


def test_long_selection_with_long_name_is_described(tmp_path: Path) -> None:
    log = create_log(0)
    path = tmp_path / "history.avro"
    job = "\x00" * 1_000
    description = export(log, "c" * 249, EventSelection(0, log.end(), job=job), path, ArchiveFormat.AVRO)
    assert description.selected is not None
    assert read(path, selections=True) == []


@pytest.mark.parametrize(("name", "kind"), [("a.jsonl", "JSON"), ("a.parquet", "Parquet")])
def test_only_avro_format_can_be_read_back(name: str, kind: str, tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / name)
    with pytest.raises(NotAnArchive, match=f"is {kind}, which .* only the Avro format can be read as a log"):
        FileLog.open(tmp_path / name)
