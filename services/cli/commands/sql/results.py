"""Formats the results of queries in rows and columns."""

from __future__ import annotations

import csv
import datetime
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ...render.formatting import format_duration
from ...render.output import print_progress, print_result, print_table

if TYPE_CHECKING:
    import pyarrow as pa

    from ....history.sql.queries import Queries

_MOST = 1_000
"""The number of rows in the text output."""
_LONGEST = 200
"""The length of a cell in the text output."""
_MICROSECOND = datetime.timedelta(microseconds=1)


class ResultFormat(StrEnum):
    """The format of the rows on stdout."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def print_rows(queries: Queries, statement: str, form: ResultFormat) -> None:
    """Asks, and prints the answer on stdout. Raises what `Queries.run` raises."""
    found = queries.run(statement, _MOST + 1 if form is ResultFormat.TEXT else None)
    if found is not None:
        print_answer(found, form)


def print_answer(found: pa.Table, form: ResultFormat) -> None:
    """On stdout."""
    names, columns = _unique(found.column_names), [_values(column) for column in found.columns]
    rows = zip(*columns, strict=True)
    match form:
        case ResultFormat.TEXT:
            shown = [[_cell(value) for value in row] for row in rows]
            print_table("", names, shown[:_MOST])
            if len(shown) > _MOST:
                print_progress(f"these are the first {_MOST:,} rows: -o json or csv prints all, LIMIT fewer")
        case ResultFormat.JSON:
            for row in rows:
                print_result(_json(dict(zip(names, row, strict=True))))
        case ResultFormat.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(names)
            writer.writerows([_field(value) for value in row] for row in rows)
            sys.stdout.flush()


def list_tables(wanted: Sequence[str]) -> None:
    """The tables and their own columns; or all columns of those that are wanted. Raises NoSuchTable."""
    from ....history.sql.tables import LOG, UNREADABLE, sql_types, tables
    from ....history.sql.tables import table as find

    if wanted:
        rows = [
            [table.name, column, kind]
            for table in map(find, wanted)
            for column, kind in sql_types(table).items()
        ]
        print_table("", ["table", "column", "type"], rows)
        return
    print_table(
        "",
        ["table", "columns (of events: besides those of log)"],
        [
            [name, ", ".join(table.columns.names if name in (LOG, UNREADABLE) else table.fields)]
            for name, table in tables().items()
        ],
    )


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    return values


def _unique(names: Sequence[str]) -> list[str]:
    """SELECT a.x, b.x has two columns of one name."""
    found: list[str] = []
    for name in names:
        number = 1
        while (called := name if number == 1 else f"{name}_{number}") in found:
            number += 1
        found.append(called)
    return found


def _cell(value: Any) -> str:
    """For people: times as local ones."""
    match value:
        case None:
            return "NULL"
        case datetime.datetime():
            return value.astimezone().replace(tzinfo=None).isoformat(" ", "milliseconds")
        case datetime.timedelta():
            sign = "-" if value.days < 0 else ""
            return f"{sign}{format_duration(abs(value) // _MICROSECOND)}"
        case bytes():
            text = f"{len(value):,} bytes {value[:16].hex(' ')}"
        case float():
            text = f"{value:.6g}" if abs(value) < 1e15 else str(value)
        case _:
            text = _field(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _field(value: Any) -> str:
    """For machines: what is no plain value as JSON, nothing for null."""
    if value is None or isinstance(value, str):
        return value or ""
    text = _json(value)
    return text[1:-1] if text.startswith('"') else text


def _json(value: Any) -> str:
    """Times in UTC, bytes in base64."""
    import msgspec

    return msgspec.json.encode(_plain(value), enc_hook=str).decode()


def _plain(value: Any) -> Any:
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(datetime.UTC)
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
