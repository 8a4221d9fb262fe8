"""Files that are torn, changed, foreign, or of another release: told in one line, with the place."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import avro as schemas
from tailrace.schemas.event import Record
from tailrace.services.history.archive import avro_file, avro_header
from tailrace.services.history.archive.errors import (
    ArchiveError,
    CorruptArchive,
    NotAnArchive,
    UnknownEventType,
)
from tailrace.services.history.archive.exporter import EventSelection, ExportError, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.archive.importer import check
from tailrace.services.history.archive.manifest import ArchiveManifest
from tailrace.services.history.archive.record_schema import schema_text
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import history
from .archive_files import (
    CLUSTER,
    FORMATS,
    create_log,
    describe_items,
    export_files,
    file_name,
    items,
    read,
    with_foreign,
)

SCENARIO = "a_job_finishes"


class Intact:
    """A file before it is harmed."""

    def __init__(self, path: Path) -> None:
        log = with_foreign(history(SCENARIO))
        export_files(log, path)
        self.path = path
        self.data = path.read_bytes()
        self.held = describe_items(items(log, 0, log.end()))

    def harmed(self, data: bytes) -> None:
        """What becomes of the file with these bytes: either it is as it was, or what is wrong is told."""
        path = self.path.with_name(f"harmed-{self.path.name}")
        path.write_bytes(data)
        try:
            found = read(path)
        except ArchiveError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error)
            if isinstance(error, CorruptArchive) and error.last_good is not None:
                assert f"--to {error.last_good}" in str(error)
                assert describe_items(read(path, 0, error.last_good + 1)) == self.held[: error.last_good + 1]
        else:
            assert describe_items(found) == self.held


@pytest.fixture(scope="module", params=FORMATS)
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Intact]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_file, "_BLOCK", 2_000)
        yield Intact(tmp_path_factory.mktemp("intact") / file_name(request.param))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_byte_that_has_changed_is_found(intact: Intact, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(intact.data) - 1), "place")
    flipped = data.draw(st.integers(1, 255), "flipped")
    harmed = bytearray(intact.data)
    harmed[place] ^= flipped
    intact.harmed(bytes(harmed))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_that_is_torn_off_is_found(intact: Intact, data: st.DataObject) -> None:
    intact.harmed(intact.data[: data.draw(st.integers(0, len(intact.data) - 1))])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_stretch_that_is_lost_is_found(intact: Intact, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(intact.data) - 1))
    end = data.draw(st.integers(begin, len(intact.data)))
    intact.harmed(intact.data[:begin] + intact.data[end:])


def test_a_file_that_is_damaged_in_its_middle_tells_where_and_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    intact = Intact(path)
    lines = intact.data.splitlines(keepends=True)
    lines[21] = lines[21].replace(b'"sender":"', b'"sender":"x')
    path.write_bytes(b"".join(lines))
    with pytest.raises(CorruptArchive) as raised:
        read(path)
    at = sum(map(len, lines[:21]))
    assert str(raised.value) == (
        f"{path} is damaged at byte {at:,} (line 22): the line's checksum is another; the last good offset is 19, "
        "and --to 19 (or --at) reads up to there; for the rest take another copy, or export again"
    )
    assert describe_items(read(path, 0, 20)) == intact.held[:20]
    with FileLog.open(path) as file, pytest.raises(CorruptArchive):
        check(file)


def test_the_block_of_an_avro_file_that_is_damaged_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_file, "_BLOCK", 2_000)
    intact = Intact(tmp_path / "a.avro")
    sync = intact.data[-16:]
    blocks = intact.data.split(sync)
    blocks[3] = blocks[3][:-40] + bytes(40)
    intact.path.write_bytes(sync.join(blocks))
    with pytest.raises(CorruptArchive, match=r"\(block 3\).*the last good offset is \d+") as raised:
        read(intact.path)
    good = raised.value.last_good
    assert good is not None
    assert describe_items(read(intact.path, 0, good + 1)) == intact.held[: good + 1]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"GIF89a...", "neither Avro .* nor JSON lines .* nor Parquet"),
        (b'{"offset": 0}\n', "its first line does not begin with"),
        (b"PAR1PAR1", "its foot"),
    ],
)
def test_what_is_no_export_is_said_to_be_none(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=why):
        FileLog.open(path)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="No such file"):
        FileLog.open(tmp_path / "nowhere.avro")
    with pytest.raises(NotAnArchive, match="Is a directory"):
        FileLog.open(tmp_path)


def test_an_avro_file_of_something_else_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "other.avro"
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "A", "fields": []}, [{}])
    with pytest.raises(NotAnArchive, match="not of a log: it has no tailrace"):
        FileLog.open(path)


def test_a_file_of_a_later_format_asks_for_a_later_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    export_files(create_log(SCENARIO), path)
    monkeypatch.setattr("tailrace.services.history.archive.manifest.FORMAT", 0)
    with pytest.raises(NotAnArchive, match="is of format 1, and this release reads 0 and earlier: upgrade"):
        FileLog.open(path)


class TestOtherReleases:
    """A file whose schemas are not ours: fields that were added since, and types that are not known yet."""

    def test_an_older_schema_is_resolved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = create_log(SCENARIO)
        schema = json.loads(schema_text())
        # As an earlier release had it: `endpoints` came later; and the last field was one that is gone since.
        leader = _branch(schema, "LeaderElected")
        leader["fields"][-1] = {"name": "old", "type": "string", "default": ""}
        path = tmp_path / "old.avro"
        _rewritten(create_log(SCENARIO), path, schema, {"old": "what it said then"}, monkeypatch)
        for found, item in zip(read(path), items(log, 0, log.end()), strict=True):
            assert isinstance(found, Record)
            assert isinstance(item, Record)
            assert found.header == item.header
            if type(item.body).__name__ == "LeaderElected":
                assert found.body.endpoints == {}  # type: ignore[attr-defined]
            else:
                assert found.body == item.body

    def test_an_unknown_type_of_event_is_told_with_its_offset(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        schema = json.loads(schema_text())
        _branch(schema, "SlotsAccepted")["name"] = "SlotsApplauded"
        path = tmp_path / "new.avro"
        log = create_log(SCENARIO)
        names = {"tailrace.task_executor.SlotsAccepted": "tailrace.task_executor.SlotsApplauded"}
        _rewritten(log, path, schema, {}, monkeypatch, names)
        first = next(
            each.offset
            for each in items(log, 0, log.end())
            if isinstance(each, Record) and type(each.body).__name__ == "SlotsAccepted"
        )
        with pytest.raises(
            UnknownEventType, match=f"'tailrace.task_executor.SlotsApplauded' at offset {first}"
        ):
            read(path)
        assert describe_items(read(path, 0, 2)) == describe_items(items(log, 0, 2))

    def test_a_line_of_json_that_lacks_a_field_has_its_default(self, tmp_path: Path) -> None:
        path = tmp_path / "old.jsonl"
        log = create_log(SCENARIO)
        export_files(log, path)
        head, *lines = path.read_bytes().splitlines()
        older = [line.rpartition(b',"check"')[0].replace(b'"origin":null,', b"") for line in lines]
        assert older != [line.rpartition(b',"check"')[0] for line in lines]
        path.write_bytes(b"\n".join([head, *map(_with_check, older)]))
        assert describe_items(read(path)) == describe_items(items(log, 0, log.end()))

    def test_a_parquet_file_that_lacks_a_column_has_its_default(self, tmp_path: Path) -> None:
        path = tmp_path / "old.parquet"
        log = create_log(SCENARIO)
        export_files(log, path)
        _rewritten_table(path, lambda table: table.drop_columns(["traceparent"]))
        assert describe_items(read(path)) == describe_items(items(log, 0, log.end()))

    def test_an_unknown_type_in_parquet_is_told_too(self, tmp_path: Path) -> None:
        path = tmp_path / "new.parquet"
        log = create_log(SCENARIO)
        export_files(log, path)

        def renamed(table: pa.Table) -> pa.Table:
            types = table.column("type").to_pylist()
            types[5] = "task_executor.Applaud"
            return table.set_column(1, "type", pa.array(types))

        _rewritten_table(path, renamed)
        with pytest.raises(
            UnknownEventType, match=r"'task_executor\.Applaud' at offset 5, which this release"
        ):
            read(path)
        assert describe_items(read(path, 0, 5)) == describe_items(items(log, 0, 5))

    def test_an_unknown_type_in_json_is_told_too(self, tmp_path: Path) -> None:
        path = tmp_path / "new.jsonl"
        export_files(create_log(SCENARIO), path)
        lines = path.read_bytes().split(b"\n")
        line = lines[3].rpartition(b',"check"')[0].replace(b'"type":"', b'"type":"other.')
        lines[3] = _with_check(line)
        path.write_bytes(b"\n".join(lines))
        with pytest.raises(UnknownEventType, match="at offset 2, which this release does not know"):
            read(path)


def test_a_file_that_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    log = create_log(SCENARIO)
    with pytest.raises(ExportError, match="No such file or directory"):
        export_files(log, tmp_path / "nowhere" / "a.avro")
    (tmp_path / "a.avro").mkdir()
    with pytest.raises(ExportError, match="Is a directory"):
        export_files(log, tmp_path / "a.avro")
    assert [each.name for each in tmp_path.iterdir()] == ["a.avro"]


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_that_is_interrupted_leaves_what_was_there(kind: ArchiveFormat, tmp_path: Path) -> None:
    log = create_log(SCENARIO)
    path = tmp_path / file_name(kind)
    export_files(log, path)
    before = path.read_bytes()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(log, CLUSTER, EventSelection(0, 30), path, kind, on_progress=interrupt)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _branch(schema: dict[str, Any], name: str) -> dict[str, Any]:
    union = next(each["type"] for each in schema["fields"] if each["name"] == "event")
    found: dict[str, Any] = next(each for each in union if isinstance(each, dict) and each["name"] == name)
    return found


def _rewritten(
    log: MemoryEventLog,
    path: Path,
    schema: dict[str, Any],
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    names: dict[str, str] | None = None,
) -> None:
    """The log as a release with that schema would have exported it: in one block, written by fastavro."""
    union = next(each["type"] for each in schema["fields"] if each["name"] == "event")
    full = [f"{each['namespace']}.{each['name']}" for each in union if isinstance(each, dict)]
    parsed = fastavro.parse_schema(schemas.without_logical_types(json.loads(json.dumps(schema))))
    text = json.dumps(schema)
    entries = []
    for item in items(log, 0, log.end()):
        assert isinstance(item, Record)
        name = (names or {}).get(item.body.AVRO_NAME, item.body.AVRO_NAME)
        assert name in full
        event = {"header": msgspec.to_builtins(item.header), **more}
        event |= msgspec.to_builtins(item.body, builtin_types=(bytes,))
        stream = io.BytesIO()
        entry = {"offset": item.offset, "value": None, "event": (name, event), "check": None}
        fastavro.schemaless_writer(stream, parsed, entry)
        entries.append(stream.getvalue()[:-1])
    monkeypatch.setattr(avro_header, "schema_text", lambda: text)
    with path.open("wb") as file:
        description = ArchiveManifest(cluster=CLUSTER, last=len(entries) - 1, entries=len(entries))
        writer = avro_file.AvroWriter(file, description)
        writer._entries = entries
        writer.finish(description)


def _rewritten_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """A Parquet file as another release would have exported it."""
    whole = pq.ParquetFile(path)
    metadata = whole.metadata.metadata | {b"tailrace.schema": b"another"}
    table = change(pq.read_table(path))
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.add_key_value_metadata(metadata)
        writer.write_table(table)


def _with_check(line: bytes) -> bytes:
    return line + b',"check":"%08x"}' % zlib.crc32(line)
