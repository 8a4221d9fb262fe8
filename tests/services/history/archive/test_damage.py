"""Truncated, changed, foreign or newer files are reported in one line with the position."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import avro as schemas
from tailrace.schemas.event import Record
from tailrace.services.history.archive import avro_file
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
    create_log,
    damage_block,
    describe_items,
    export_files,
    items,
    read,
    with_foreign,
)

SCENARIO = "a_job_finishes"


class Intact:
    """A file before it is damaged."""

    def __init__(self, path: Path) -> None:
        log = with_foreign(history(SCENARIO))
        export_files(log, path)
        self.path = path
        self.data = path.read_bytes()
        self.held = describe_items(items(log, 0, log.end()))

    def harmed(self, data: bytes) -> None:
        """Writes the file with these bytes and reads it: it is unchanged, or the damage is reported."""
        path = self.path.with_name(f"harmed-{self.path.name}")
        path.write_bytes(data)
        try:
            entries = read(path)
        except ArchiveError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error)
            if isinstance(error, CorruptArchive) and error.last_good is not None:
                assert f"--to {error.last_good}" in str(error)
                assert describe_items(read(path, 0, error.last_good + 1)) == self.held[: error.last_good + 1]
        else:
            assert describe_items(entries) == self.held


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Intact]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_file, "_BLOCK", 2_000)
        yield Intact(tmp_path_factory.mktemp("intact") / "history.avro")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_changed_byte_is_detected(intact: Intact, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(intact.data) - 1), "place")
    flipped = data.draw(st.integers(1, 255), "flipped")
    harmed = bytearray(intact.data)
    harmed[place] ^= flipped
    intact.harmed(bytes(harmed))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_truncated_file_is_detected(intact: Intact, data: st.DataObject) -> None:
    intact.harmed(intact.data[: data.draw(st.integers(0, len(intact.data) - 1))])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_missing_block_is_detected(intact: Intact, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(intact.data) - 1))
    end = data.draw(st.integers(begin, len(intact.data)))
    intact.harmed(intact.data[:begin] + intact.data[end:])


def test_damaged_block_of_avro_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_file, "_BLOCK", 2_000)
    intact = Intact(tmp_path / "a.avro")
    begin = damage_block(intact.path, 3)
    with pytest.raises(CorruptArchive) as raised:
        read(intact.path)
    good = raised.value.last_good
    match = re.fullmatch(
        rf"{intact.path} is damaged at byte ([\d,]+) \(block 3\): .+; the last good offset is {good}, and --to {good} "
        r"\(or --at\) reads up to there; for the rest take another copy, or export again",
        str(raised.value),
    )
    assert match is not None
    assert good is not None
    assert begin < int(match[1].replace(",", "")) < begin + 20
    assert describe_items(read(intact.path, 0, good + 1)) == intact.held[: good + 1]
    with FileLog.open(intact.path) as file, pytest.raises(CorruptArchive):
        check(file)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"GIF89a...", "no exported log in the Avro format"),
        (b'{"offset": 0}\n', "is JSON, .* only the Avro format can be read"),
        (b"PAR1PAR1", "is Parquet, .* only the Avro format can be read"),
        (b"Obj\x01", r"damaged at byte 0 \(its header\)"),
    ],
)
def test_file_that_is_no_export_is_reported(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=why):
        FileLog.open(path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="No such file"):
        FileLog.open(tmp_path / "nowhere.avro")
    with pytest.raises(NotAnArchive, match="Is a directory"):
        FileLog.open(tmp_path)


def test_other_avro_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "other.avro"
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "A", "fields": []}, [{}])
    with pytest.raises(NotAnArchive, match="not of a log: it has no tailrace"):
        FileLog.open(path)


def test_file_of_later_format_requires_later_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.avro"
    export_files(create_log(SCENARIO), path)
    monkeypatch.setattr("tailrace.services.history.archive.manifest.FORMAT", 1)
    with pytest.raises(NotAnArchive, match="is of format 2, and this release reads 1 and earlier: upgrade"):
        FileLog.open(path)


class TestOtherReleases:
    """A file with the schemas of another release: fields that were added since, and unknown types."""

    def test_older_schema_is_resolved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = create_log(SCENARIO)
        schema = json.loads(schema_text())
        # As an earlier release had it: `endpoints` came later; and the last field was one that is gone since.
        leader = _branch(schema, "LeaderElected")
        leader["fields"][-1] = {"name": "old", "type": "string", "default": ""}
        path = tmp_path / "old.avro"
        _rewritten(create_log(SCENARIO), path, schema, {"old": "what it said then"}, monkeypatch)
        for entry, item in zip(read(path), items(log, 0, log.end()), strict=True):
            assert isinstance(entry, Record)
            assert isinstance(item, Record)
            assert entry.header == item.header
            if type(item.body).__name__ == "LeaderElected":
                assert entry.body.endpoints == {}  # type: ignore[attr-defined]
            else:
                assert entry.body == item.body

    def test_unknown_event_type_is_reported_with_offset(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        schema = json.loads(schema_text())
        _branch(schema, "SlotsAccepted")["name"] = "SlotsApplauded"
        path = tmp_path / "new.avro"
        log = create_log(SCENARIO)
        names = {"tailrace.task_executor.SlotsAccepted": "tailrace.task_executor.SlotsApplauded"}
        _rewritten(log, path, schema, {}, monkeypatch, names)
        first = next(
            entry.offset
            for entry in items(log, 0, log.end())
            if isinstance(entry, Record) and type(entry.body).__name__ == "SlotsAccepted"
        )
        with pytest.raises(
            UnknownEventType, match=f"'tailrace.task_executor.SlotsApplauded' at offset {first}"
        ):
            read(path)
        assert describe_items(read(path, 0, 2)) == describe_items(items(log, 0, 2))


def test_failed_export_leaves_no_file(tmp_path: Path) -> None:
    log = create_log(SCENARIO)
    with pytest.raises(ExportError, match="No such file or directory"):
        export_files(log, tmp_path / "nowhere" / "a.avro")
    (tmp_path / "a.avro").mkdir()
    with pytest.raises(ExportError, match="Is a directory"):
        export_files(log, tmp_path / "a.avro")
    assert [path.name for path in tmp_path.iterdir()] == ["a.avro"]


@pytest.mark.parametrize("kind", ArchiveFormat)
def test_interrupted_export_keeps_existing_file(kind: ArchiveFormat, tmp_path: Path) -> None:
    log = create_log(SCENARIO)
    path = tmp_path / f"history.{kind}"
    export_files(log, path)
    before = path.read_bytes()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(log, CLUSTER, EventSelection(0, 30), path, kind, on_progress=interrupt)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _branch(schema: dict[str, Any], name: str) -> dict[str, Any]:
    union = next(item["type"] for item in schema["fields"] if item["name"] == "event")
    result: dict[str, Any] = next(
        element for element in union if isinstance(element, dict) and element["name"] == name
    )
    return result


def _rewritten(
    log: MemoryEventLog,
    path: Path,
    schema: dict[str, Any],
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    names: dict[str, str] | None = None,
) -> None:
    """Returns the log as a release with that schema exports it: in one block, written by fastavro."""
    union = next(item["type"] for item in schema["fields"] if item["name"] == "event")
    full = [f"{element['namespace']}.{element['name']}" for element in union if isinstance(element, dict)]
    parsed = fastavro.parse_schema(schemas.without_logical_types(json.loads(json.dumps(schema))))
    text = json.dumps(schema)
    entries = []
    for item in items(log, 0, log.end()):
        assert isinstance(item, Record)
        name = (names or {}).get(item.body.AVRO_NAME, item.body.AVRO_NAME)
        assert name in full
        event = {"header": msgspec.to_builtins(item.header), **more}
        event |= msgspec.to_builtins(item.body, builtin_types=(bytes,))
        entry = {"offset": item.offset, "value": None, "event": (name, event), "check": None}
        entries.append(entry)
    stream = io.BytesIO()
    for entry in entries:
        fastavro.schemaless_writer(stream, parsed, entry)
    description = ArchiveManifest(cluster=CLUSTER, last=len(entries) - 1, entries=len(entries))
    monkeypatch.setattr(avro_file, "schema_text", lambda: text)
    monkeypatch.setattr(avro_file, "schema_digest", lambda: "another")
    with path.open("wb") as file:
        avro_file.write_header(file, description)
        # The last entry's `check` follows.
        file.write(avro_file._packed(len(entries), stream.getvalue()[:-1], CLUSTER))
