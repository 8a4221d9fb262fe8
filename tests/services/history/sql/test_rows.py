"""The tables of a log have exactly its events with their values, whatever stores the log."""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Record
from tailrace.services.history.archive.errors import CorruptArchive, NotAnArchive
from tailrace.services.history.archive.exporter import EventSelection
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.log_position import LogPosition, PositionOutOfRange
from tailrace.services.history.sql.errors import NoSuchTable, SqlError
from tailrace.services.history.sql.scan import extent, rows
from tailrace.services.history.sql.tables import LOG, UNREADABLE, column_for, sql_types, table, tables
from tailrace.services.log import EventLog

from ...snapshots.simulated_logs import HISTORIES, LONG, history
from ..archive.archive_files import create_log, export_files, with_foreign

_HEADER = table(LOG).columns.names[2:]


def plain(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Returns the rows with times in microseconds."""
    results: list[dict[str, Any]] = []
    for batch in batches:
        times = pa.schema(
            [
                item.with_type(pa.int64()) if pa.types.is_timestamp(item.type) else item
                for item in batch.schema
            ]
        )
        results += batch.cast(times).to_pylist(maps_as_pydicts="strict")
    return results


def of_table(log: EventLog, name: str, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    return plain(list(rows(log, table(name), start, log.end() if end is None else end)))


def row_of(record: Record) -> dict[str, Any]:
    """Returns the expected row of an event, from msgspec alone."""
    body = as_lists(msgspec.to_builtins(record.body, builtin_types=(bytes,)))
    return {**header_of(record), **{column_for(field): value for field, value in body.items()}}


def as_lists(value: Any) -> Any:
    """Converts tuples to lists, as Arrow has them."""
    match value:
        case dict():
            return {key: as_lists(item) for key, item in value.items()}
        case list() | tuple():
            return [as_lists(element) for element in value]
        case _:
            return value


def header_of(record: Record) -> dict[str, Any]:
    header = msgspec.to_builtins(record.header)
    kind = record.body.AVRO_NAME.removeprefix("tailrace.")
    return {"offset": record.offset, "type": kind, **{name: header[name] for name in _HEADER}}


@functools.cache
def types_in(seed: int | str) -> Mapping[str, list[Record]]:
    """Returns by table the event types that it has."""
    result: dict[str, list[Record]] = {}
    for record in history(seed):
        name = record.body.AVRO_NAME.removeprefix("tailrace.").replace(".", "_")
        result.setdefault(name, []).append(record)
    return result


@pytest.mark.parametrize("name", HISTORIES)
def test_rows_of_all_tables_are_events_of_log(name: int | str) -> None:
    log = create_log(name)
    results = [row for type_ in types_in(name) for row in of_table(log, type_)]
    assert sorted(results, key=lambda row: row["offset"]) == [row_of(record) for record in history(name)]
    assert of_table(log, LOG) == [header_of(record) for record in history(name)]


def test_table_without_events_is_empty() -> None:
    log, output = create_log(LONG), types_in(LONG)
    silent = [table for table in tables() if table not in {LOG, *output}]
    assert len(silent) + len(output) + 1 == len(EVENTS) + 2
    assert [item for item in silent if of_table(log, item)] == []


@given(cuts=st.lists(st.integers(0, len(history(LONG)))), seed=st.just(LONG))
@settings(max_examples=20)
def test_offset_ranges_have_each_event_once(cuts: list[int], seed: int) -> None:
    log = create_log(seed)
    for name in (LOG, "job_master_UpdateTaskExecutionState"):
        places = [0, *sorted(cuts), log.end()]
        results = [row for a, b in itertools.pairwise(places) for row in of_table(log, name, a, b)]
        assert results == of_table(log, name)


def test_file_has_rows_of_its_log(tmp_path: Path) -> None:
    log = with_foreign(history(LONG))
    export_files(log, path := tmp_path / "history.avro")
    with FileLog.open(path) as file:
        for name in (LOG, UNREADABLE, *types_in(LONG)):
            assert of_table(file, name) == of_table(log, name), name


def test_undecodable_records_have_their_own_table() -> None:
    log = with_foreign(history(LONG))
    events = {row["offset"] for row in of_table(log, LOG)}
    others = of_table(log, UNREADABLE)
    assert others[0] == {"offset": 7, "value": b"no event"}
    assert others[-1] == {"offset": log.end() - 1, "value": b"the last one"}
    assert events | {other["offset"] for other in others} == set(range(log.end()))
    assert of_table(log, UNREADABLE, 7, 8) == others[:1]
    assert of_table(log, UNREADABLE, 8, 9) == []


@pytest.mark.parametrize("name", ["history.avro", "history.parquet"])
def test_file_ends_where_its_log_ends(name: str, tmp_path: Path) -> None:
    log = create_log(LONG)
    export_files(log, path := tmp_path / name)
    times = [record.header.time for record in history(LONG)]
    assert extent(path, None, None) == (0, log.end())
    assert extent(path, 7, "40") == (7, 41)
    for place in (0, 30, 200, log.end() - 1):
        moment = datetime.datetime.fromtimestamp(times[place] / 1e6, datetime.UTC).isoformat()
        begin = LogPosition.parse(moment).start(log)
        assert extent(path, moment, None) == (begin, log.end())
        assert extent(path, None, moment) == (0, LogPosition.parse(moment).at(log) + 1)
    with pytest.raises(PositionOutOfRange, match=f"offset {log.end()} is outside"):
        extent(path, None, log.end())
    with pytest.raises(SqlError, match=r"40 \(offset 40\) is after 7"):
        extent(path, 40, 7)


@pytest.mark.parametrize("name", ["history.avro", "history.parquet"])
def test_selection_starts_at_its_first_offset(name: str, tmp_path: Path) -> None:
    log = create_log(LONG)
    export_files(log, path := tmp_path / name, EventSelection(100, 200))
    assert extent(path, None, None) == (100, 200)


def test_parquet_file_that_spark_cannot_read_is_rejected(tmp_path: Path) -> None:
    export_files(create_log(LONG), path := tmp_path / "_h.parquet")
    with pytest.raises(NotAnArchive, match="rename it"):
        extent(path, None, None)
    pq.write_table(pa.table({"offset": [1]}), tmp_path / "other.parquet")
    with pytest.raises(NotAnArchive, match="not of a log"):
        extent(tmp_path / "other.parquet", None, None)
    (tmp_path / "torn.parquet").write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptArchive, match="its columns or its foot"):
        extent(tmp_path / "torn.parquet", None, None)


def test_empty_log_has_no_rows() -> None:
    log = with_foreign([])
    assert of_table(log, LOG, 0, 0) == []


def test_table_names_are_distinct_sql_identifiers() -> None:
    assert all(name.isidentifier() for name in tables())
    assert len({name.lower() for name in tables()}) == len(EVENTS) + 2
    for item in tables().values():
        columns = [name.lower() for name in item.columns.names]
        assert len(set(columns)) == len(columns), item.name


def test_field_with_name_of_header_column_is_renamed() -> None:
    assert table("everyone_snapshottaken").fields["body_offset"] == "offset"
    assert sql_types(table("everyone_SnapshotTaken"))["body_offset"] == "bigint"


def test_every_type_is_sql_type() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    for item in tables().values():
        assert to_arrow_schema(from_arrow_schema(item.columns), timezone="UTC").equals(item.columns), (
            item.name
        )


def test_unknown_table_is_rejected_with_similar_names() -> None:
    with pytest.raises(
        NoSuchTable, match="no table 'task_executor_SubmitTsk': did you mean task_executor_SubmitTask"
    ):
        table("task_executor_SubmitTsk")
    with pytest.raises(NoSuchTable, match="`tailrace sql --tables`"):
        table("zzz")
