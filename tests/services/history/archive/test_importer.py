"""Export, import: the same events at the same offsets, and the same state; and never half of it unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas.event import Event
from tailrace.services.history.archive.errors import CorruptArchive, PartialArchive
from tailrace.services.history.archive.exporter import EventSelection
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
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
from .archive_files import FORMATS, create_log, describe_items, export_files, file_name, items, with_foreign


def imported(path: Path, into: MemoryEventLog) -> ImportResult:
    """What `tailrace log import` does."""
    with FileLog.open(path) as file:
        return import_file(file, into, checked=check(file))


def new_log() -> MemoryEventLog:
    return MemoryEventLog(Codec("c2.log"), topic="c2.log")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", HISTORIES)
def test_what_is_imported_is_what_was_exported(name: str | int, kind: ArchiveFormat, tmp_path: Path) -> None:
    log, other = with_foreign(history(name)), new_log()
    path = tmp_path / file_name(kind)
    export_files(log, path)
    done = imported(path, other)
    assert describe_items(items(other, 0, other.end())) == describe_items(items(log, 0, log.end()))
    assert done == ImportResult(log.end(), log.end(), state_hash(log))
    assert state_hash(other) == state_hash(log)


@pytest.mark.parametrize("name", WALKS)
def test_what_was_imported_is_exported_alike(name: int, tmp_path: Path) -> None:
    export_files(create_log(name), tmp_path / "a.avro")
    other = new_log()
    imported(tmp_path / "a.avro", other)
    export_files(other, tmp_path / "b.avro")
    assert (tmp_path / "b.avro").read_bytes() == (tmp_path / "a.avro").read_bytes()


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_an_import_that_was_interrupted_goes_on(
    kind: ArchiveFormat, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log, other = with_foreign(history(1)), new_log()
    path = tmp_path_factory.mktemp("half") / file_name(kind)
    export_files(log, path)
    whole = items(log, 0, log.end())
    there = data.draw(st.integers(0, len(whole)), "there")
    other.append_all(
        [
            getattr(each, "value", None) if not hasattr(each, "body") else _event(each)
            for each in whole[:there]
        ]
    )
    assert imported(path, other) == ImportResult(len(whole), len(whole) - there, state_hash(log))
    assert describe_items(items(other, 0, other.end())) == describe_items(whole)


def test_what_was_imported_already_is_left_as_it_is(tmp_path: Path) -> None:
    log, other = create_log(0), new_log()
    export_files(log, tmp_path / "a.avro")
    imported(tmp_path / "a.avro", other)
    assert imported(tmp_path / "a.avro", other).written == 0
    assert other.end() == log.end()


def test_a_log_that_holds_anything_else_is_left_alone(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    other = create_log(1)
    before = describe_items(items(other, 0, other.end()))
    with pytest.raises(
        ImportFailed, match=r"c1.log is not the beginning of .*: it (holds another event at|has \d+)"
    ):
        imported(tmp_path / "a.avro", other)
    assert describe_items(items(other, 0, other.end())) == before


def test_a_log_that_has_gone_on_is_left_alone(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.avro", EventSelection(0, 20))
    with pytest.raises(
        ImportFailed, match=f"it has {log.end():,} entries, the file 20; import into a cluster id"
    ):
        imported(tmp_path / "a.avro", log)


def test_a_log_whose_head_is_gone_is_left_alone(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    log = create_log(0)
    log.truncate(5)
    with pytest.raises(ImportFailed, match="begins at offset 5"):
        imported(tmp_path / "a.avro", log)


def test_a_value_that_is_no_event_where_the_file_has_one_is_another_log(tmp_path: Path) -> None:
    export_files(create_log(0), tmp_path / "a.avro")
    other = new_log()
    other.append_values([b"foreign"])
    with pytest.raises(ImportFailed, match="holds another event at offset 0"):
        imported(tmp_path / "a.avro", other)


@pytest.mark.parametrize("kind", FORMATS)
def test_of_a_damaged_file_nothing_is_imported(kind: ArchiveFormat, tmp_path: Path) -> None:
    """Some bytes of a file mean nothing, so that the same events are read."""
    whole, path = create_log(0), tmp_path / file_name(kind)
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


def test_a_selection_is_not_imported(tmp_path: Path) -> None:
    log = create_log(0)
    export_files(log, tmp_path / "a.avro", EventSelection(0, log.end(), types=("LeaderElected",)))
    with pytest.raises(
        PartialArchive, match="nor can it be imported; export without --from, --job and --type"
    ):
        imported(tmp_path / "a.avro", new_log())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_gap_is_refused_with_its_place(kind: ArchiveFormat, tmp_path: Path) -> None:
    path, other = tmp_path / file_name(kind), new_log()
    description = export_files(_WithGap(create_log(0)), path)
    assert (description.whole, description.gaps) == (True, 1)
    with pytest.raises(ImportFailed, match="no entry for offset 7, and the next is 8"):
        imported(path, other)
    assert other.end() == 0


def test_somebody_who_writes_meanwhile_is_noticed(tmp_path: Path) -> None:
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
    """A log where offset 7 has a transaction's marker."""

    def __init__(self, log: MemoryEventLog) -> None:
        super().__init__(Codec("gap.log"), topic="gap.log")
        self._values = list(log._values)

    def tail(self, start: int, **more: object) -> object:  # type: ignore[override]
        found = super().tail(start, **more)  # type: ignore[arg-type]
        poll = found.poll
        found.poll = lambda timeout: [each for each in poll(timeout) if each.offset != 7]  # type: ignore[method-assign]
        return found


def _event(item: object) -> Event:
    return Event(item.header, item.body)  # type: ignore[attr-defined]
