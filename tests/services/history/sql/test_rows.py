"""The tables of a log hold its events and nothing else, with the events' values, whatever keeps the log."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Record
from tailrace.services.history.archive.exporter import EventSelection
from tailrace.services.history.sql.errors import NoSuchTable
from tailrace.services.history.sql.scan import ScanOrigin, first_entry, rows
from tailrace.services.history.sql.tables import LOG, UNREADABLE, column_for, sql_types, table, tables
from tailrace.services.log import EventLog

from ...snapshots.simulated_logs import HISTORIES, LONG, history
from ..archive.archive_files import FORMATS, create_log, export_files, file_name, with_foreign

_HEADER = table(LOG).columns.names[2:]


def plain(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows, times in microseconds."""
    found: list[dict[str, Any]] = []
    for batch in batches:
        times = pa.schema(
            [
                each.with_type(pa.int64()) if pa.types.is_timestamp(each.type) else each
                for each in batch.schema
            ]
        )
        found += batch.cast(times).to_pylist(maps_as_pydicts="strict")
    return found


def of_table(log: EventLog, name: str, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    return plain(list(rows(log, table(name), start, log.end() if end is None else end)))


def row_of(record: Record) -> dict[str, Any]:
    """What an event's row is to be, by msgspec alone."""
    body = as_lists(msgspec.to_builtins(record.body, builtin_types=(bytes,)))
    return {**header_of(record), **{column_for(field): value for field, value in body.items()}}


def as_lists(value: Any) -> Any:
    """Arrow has lists where events have tuples."""
    match value:
        case dict():
            return {key: as_lists(each) for key, each in value.items()}
        case list() | tuple():
            return [as_lists(each) for each in value]
        case _:
            return value


def header_of(record: Record) -> dict[str, Any]:
    header = msgspec.to_builtins(record.header)
    kind = record.body.AVRO_NAME.removeprefix("tailrace.")
    return {"offset": record.offset, "type": kind, **{name: header[name] for name in _HEADER}}


@functools.cache
def types_in(seed: int | str) -> Mapping[str, list[Record]]:
    """Table -> the events that are to be in it."""
    found: dict[str, list[Record]] = {}
    for record in history(seed):
        name = record.body.AVRO_NAME.removeprefix("tailrace.").replace(".", "_")
        found.setdefault(name, []).append(record)
    return found


@pytest.mark.parametrize("name", HISTORIES)
def test_the_rows_of_all_tables_are_the_events(name: int | str) -> None:
    log = create_log(name)
    found = [row for each in types_in(name) for row in of_table(log, each)]
    assert sorted(found, key=lambda row: row["offset"]) == [row_of(each) for each in history(name)]
    assert of_table(log, LOG) == [header_of(each) for each in history(name)]


def test_a_table_whose_events_were_never_said_is_empty() -> None:
    log, said = create_log(LONG), types_in(LONG)
    silent = [each for each in tables() if each not in {LOG, *said}]
    assert len(silent) + len(said) + 1 == len(EVENTS) + 2
    assert [each for each in silent if of_table(log, each)] == []


@given(cuts=st.lists(st.integers(0, len(history(LONG)))), seed=st.just(LONG))
@settings(max_examples=20)
def test_ranges_of_offsets_hold_each_event_once(cuts: list[int], seed: int) -> None:
    log = create_log(seed)
    for name in (LOG, "job_master_UpdateTaskExecutionState"):
        places = [0, *sorted(cuts), log.end()]
        found = [row for a, b in itertools.pairwise(places) for row in of_table(log, name, a, b)]
        assert found == of_table(log, name)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_has_the_rows_of_its_log(kind: Any, tmp_path: Path) -> None:
    log = with_foreign(history(LONG))
    export_files(log, path := tmp_path / file_name(kind))
    file = ScanOrigin.from_source(path).open()
    try:
        for name in (LOG, UNREADABLE, *types_in(LONG)):
            assert of_table(file, name) == of_table(log, name), name
    finally:
        file.close()


def test_what_is_no_event_has_a_table_of_its_own() -> None:
    log = with_foreign(history(LONG))
    events = {each["offset"] for each in of_table(log, LOG)}
    others = of_table(log, UNREADABLE)
    assert others[0] == {"offset": 7, "value": b"no event"}
    assert others[-1] == {"offset": log.end() - 1, "value": b"the last one"}
    assert events | {each["offset"] for each in others} == set(range(log.end()))
    assert of_table(log, UNREADABLE, 7, 8) == others[:1]
    assert of_table(log, UNREADABLE, 8, 9) == []


def test_a_selection_begins_where_it_begins(tmp_path: Path) -> None:
    log = create_log(LONG)
    export_files(log, path := tmp_path / "history.avro", EventSelection(100, 200))
    file = ScanOrigin.from_source(path).open()
    try:
        assert first_entry(file) == 100
        assert of_table(file, LOG, 100) == of_table(log, LOG, 100, 200)
    finally:
        file.close()


def test_an_empty_log_has_no_rows() -> None:
    log = with_foreign([])
    assert of_table(log, LOG, 0, 0) == []


def test_names_are_words_that_sql_tells_apart() -> None:
    assert all(name.isidentifier() for name in tables())
    assert len({name.lower() for name in tables()}) == len(EVENTS) + 2
    for each in tables().values():
        columns = [name.lower() for name in each.columns.names]
        assert len(set(columns)) == len(columns), each.name


def test_a_field_that_is_called_like_a_column_of_the_header_is_told_apart() -> None:
    assert table("everyone_snapshottaken").fields["body_offset"] == "offset"
    assert sql_types(table("everyone_SnapshotTaken"))["body_offset"] == "bigint"


def test_every_type_is_one_of_sql() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    for each in tables().values():
        assert to_arrow_schema(from_arrow_schema(each.columns), timezone="UTC").equals(each.columns), (
            each.name
        )


def test_an_unknown_table_is_told_with_what_is_like_it() -> None:
    with pytest.raises(
        NoSuchTable, match="no table 'task_executor_SubmitTsk': did you mean task_executor_SubmitTask"
    ):
        table("task_executor_SubmitTsk")
    with pytest.raises(NoSuchTable, match="`tailrace sql --tables`"):
        table("zzz")
