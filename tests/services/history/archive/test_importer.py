"""Export and import preserve events, offsets and state; a partial import is always noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas.event import Event
from tailrace.services.history.archive.errors import CorruptArchive, PartialArchive
from tailrace.services.history.archive.exporter import EventSelection
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.importer import (
    ImportFailed,
    ImportResult,
    check,
    import_file,
    state_hash,
)
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import HISTORIES, WALKS, history
from .archive_files import create_log, describe_items, export_files, items, with_foreign


def imported(path: Path, into: MemoryEventLog) -> ImportResult:
    """Runs `tailrace log import`."""
    with FileLog.open(path) as file:
        return import_file(file, into, expected_hash=check(file))


def new_log() -> MemoryEventLog:
    return MemoryEventLog(Codec("c2.log"), topic="c2.log")


@pytest.mark.parametrize("name", HISTORIES)
def test_imported_log_equals_exported_one(name: str | int, tmp_path: Path) -> None:
    log, other = with_foreign(history(name)), new_log()
    path = tmp_path / "history.avro"
    export_files(log, path)
    result = imported(path, other)
    assert describe_items(items(other, 0, other.end())) == describe_items(items(log, 0, log.end()))
    assert result == ImportResult(log.end(), log.end(), state_hash(log))
    assert state_hash(other) == state_hash(log)


@pytest.mark.parametrize("name", WALKS)
def test_export_of_imported_log_equals_original_file(name: int, tmp_path: Path) -> None:
    export_files(create_log(name), tmp_path / "a.avro")
    other = new_log()
    imported(tmp_path / "a.avro", other)
    export_files(other, tmp_path / "b.avro")
    assert (tmp_path / "b.avro").read_bytes() == (tmp_path / "a.avro").read_bytes()


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_interrupted_import_continues(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    log, other = with_foreign(history(1)), new_log()
    path = tmp_path_factory.mktemp("half") / "history.avro"
    export_files(log, path)
    whole = items(log, 0, log.end())
    there = data.draw(st.integers(0, len(whole)), "there")
    other.append_all(
        [
            getattr(entry, "value", None) if not hasattr(entry, "body") else _event(entry)
            for entry in whole[:there]
        ]
    )
    assert imported(path, other) == ImportResult(len(whole), len(whole) - there, state_hash(log))
    assert describe_items(items(other, 0, other.end())) == describe_items(whole)


def test_complete_import_is_not_repeated(tmp_path: Path) -> None:
    log, other = create_log(0), new_log()
    export_files(log, tmp_path / "a.avro")
    imported(tmp_path / "a.avro", other)
    assert imported(tmp_path / "a.avro", other).written == 0
    assert other.end() == log.end()


def test_log_with_other_content_is_left_alone(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    other = create_log(1)
    before = describe_items(items(other, 0, other.end()))
    with pytest.raises(
        ImportFailed, match=r"c1.log is not the beginning of .*: it (has another event at|has \d+)"
    ):
        imported(tmp_path / "a.avro", other)
    assert describe_items(items(other, 0, other.end())) == before


def test_log_that_has_grown_is_left_alone(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.avro", EventSelection(0, 20))
    with pytest.raises(
        ImportFailed, match=f"it has {log.end():,} entries, the file 20; import into a cluster id"
    ):
        imported(tmp_path / "a.avro", log)


def test_log_with_deleted_head_is_left_alone(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    log = create_log(0)
    log.truncate(5)
    with pytest.raises(ImportFailed, match="begins at offset 5"):
        imported(tmp_path / "a.avro", log)


def test_log_with_undecodable_value_in_place_of_event_is_other_log(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    other = new_log()
    other.append_values([b"foreign"])
    with pytest.raises(ImportFailed, match="has another event at offset 0"):
        imported(tmp_path / "a.avro", other)


def test_nothing_of_damaged_file_is_imported(tmp_path: Path) -> None:
    """Some bytes of a file have no meaning, so that the same events are read."""
    whole, path = create_log(0), tmp_path / "history.avro"
    export_files(whole, path)
    data = path.read_bytes()
    refused = 0
    for part in range(1, 10):
        damaged = bytearray(data)
        damaged[len(data) * part // 10] ^= 1
        path.write_bytes(damaged)
        other = new_log()
        try:
            imported(path, other)
        except CorruptArchive:
            refused += 1
            assert other.end() == 0
        else:
            assert describe_items(items(other, 0, other.end())) == describe_items(
                items(whole, 0, whole.end())
            )
    assert refused


def test_selection_cannot_be_imported(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.avro", EventSelection(0, log.end(), types=("LeaderElected",)))
    with pytest.raises(
        PartialArchive, match="nor can it be imported; export without --from, --job and --type"
    ):
        imported(tmp_path / "a.avro", new_log())


def test_gap_is_rejected_with_position(tmp_path: Path) -> None:
    path, other = tmp_path / "history.avro", new_log()
    description = export_files(_WithGap(create_log(0)), path)
    assert (description.whole, description.gaps) == (True, 1)
    with pytest.raises(ImportFailed, match="no entry for offset 7, and the next is 8"):
        imported(path, other)
    assert other.end() == 0


def test_concurrent_writer_is_detected(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.avro")

    class Crowded(MemoryEventLog):
        def append_all(self, entries: object) -> list[int]:
            self.append_values([b"me too"])
            return super().append_all(entries)  # type: ignore[arg-type]

    with pytest.raises(
        ImportFailed, match=r"somebody else writes to c2\.log: what was to get offset 0 got 1"
    ):
        imported(tmp_path / "a.avro", Crowded(Codec("c2.log"), topic="c2.log"))


class _WithGap(MemoryEventLog):
    """A log where offset 7 has a transaction marker."""

    def __init__(self, log: MemoryEventLog) -> None:
        super().__init__(Codec("gap.log"), topic="gap.log")
        self._entries = list(log._entries)

    def tail(self, start: int, **more: object) -> object:  # type: ignore[override]
        result = super().tail(start, **more)  # type: ignore[arg-type]
        poll = result.poll
        result.poll = lambda timeout: [record for record in poll(timeout) if record.offset != 7]  # type: ignore[method-assign]
        return result


def _event(item: object) -> Event:
    return Event(item.header, item.body)  # type: ignore[attr-defined]
