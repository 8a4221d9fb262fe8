"""An event that contradicts the key of its message is folded by no reader, whatever part of the log it reads."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tailrace.schemas import dispatcher
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.types import Header
from tailrace.services.history.archive.exporter import EventSelection, entries, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.archive.importer import check, import_file
from tailrace.services.log import Codec, Unreadable
from tailrace.services.log.event_log import AddressFilter, EventLog, read_to_end
from tailrace.services.log.memory import MemoryEventLog

SENDERS = ("resource_manager", "job_master/a", "task_executor/te-1")
RECIPIENTS = ("dispatcher", "task_executor/te-1", "task_executor/te-2", EVERYONE)
CODEC = Codec("keys")

addresses = st.tuples(st.sampled_from(SENDERS), st.sampled_from(RECIPIENTS))
messages = st.lists(st.tuples(addresses, st.none() | addresses), max_size=20)
"""The addresses in an event, and those in the key of its message; None: it has no key."""


def event(sender: str, recipient: str) -> Event:
    header = Header(event_id="e", time=1, sender=sender, sender_epoch=1, recipient=recipient)
    return Event(header, dispatcher.CancelJob(job_id="j"))


def log_of(written: list[tuple[tuple[str, str], tuple[str, str] | None]]) -> MemoryEventLog:
    log = MemoryEventLog()
    for own, key in written:
        if key is None:
            log.append_values([CODEC.encode(event(*own))])
        else:
            log.append_with_key(key, event(*own))
    return log


def read(log: EventLog, concerns: AddressFilter | None = None) -> tuple[list[Record], list[Unreadable]]:
    unreadable: list[Unreadable] = []
    tail, records = log.tail(0, concerns=concerns, on_unreadable=unreadable.append), []
    while tail.position < log.end():
        records += tail.poll(0.0)
    tail.close()
    return records, unreadable


@given(written=messages, reader=st.sampled_from(["task_executor/te-1", "task_executor/te-2", "dispatcher"]))
def test_reader_of_some_events_and_reader_of_all_agree(
    written: list[tuple[tuple[str, str], tuple[str, str] | None]], reader: str
) -> None:
    log, concerns = log_of(written), AddressFilter(frozenset({reader}))
    of_all, unreadable = read(log)
    of_some, _ = read(log, concerns)
    assert of_some == [each for each in of_all if concerns(each.header.sender, each.header.recipient)]
    false = [offset for offset, (own, key) in enumerate(written) if key not in (None, own)]
    assert [each.offset for each in unreadable] == false
    assert [each.offset for each in of_all] == [
        offset for offset in range(len(written)) if offset not in false
    ]


def test_contradiction_names_both_routes() -> None:
    log = log_of([(("resource_manager", "task_executor/te-1"), ("job_master/a", "task_executor/te-2"))])
    _, (unreadable,) = read(log)
    assert unreadable.reason == (
        "tailrace.dispatcher.CancelJob is from 'resource_manager' to 'task_executor/te-1', but the key of its message "
        "says from 'job_master/a' to 'task_executor/te-2'"
    )
    assert unreadable.value is not None
    assert unreadable.header is None


def test_reader_of_exported_or_imported_log_agrees(tmp_path: Path) -> None:
    hidden = ("resource_manager", "task_executor/te-1"), ("resource_manager", "task_executor/te-2")
    true = ("resource_manager", EVERYONE), ("resource_manager", EVERYONE)
    log, path, other = log_of([true, hidden, true]), tmp_path / "log.avro", MemoryEventLog()
    export(log, "c", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    expected, _ = read(log)
    with FileLog.open(path) as file:
        assert read(file)[0] == expected
        import_file(file, other, expected_hash=check(file))
        assert [each.offset for batch in entries(file, 0, 3) for each in batch] == [0, 1, 2]
    assert [record for batch in read_to_end(other) for record in batch] == expected
    with FileLog.open(path) as file:
        assert import_file(file, log, expected_hash=check(file)).written == 0
