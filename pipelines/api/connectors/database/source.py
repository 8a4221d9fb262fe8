"""A table of a SQL database as a source, bounded or unbounded (Flink's JDBC source)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar, overload

from ....functions import (
    RuntimeContext,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
)
from ...checks import is_whole
from ...durations import timedelta_ms
from .connection import Database, check_column, check_names, field_names, read_table, refusal

T = TypeVar("T", covariant=True)


class DatabaseSource(Source[T]):
    """Reads the rows of a table in the order of a key: a column with unique values, such as the primary key.

    A record is the dataclass or NamedTuple that `output_type` declares, with the columns as fields, or a dictionary.
    With `splits` above 1, ranges of an integer key are read side by side: they divide lower_bound to upper_bound
    evenly; the first and the last one are open (as in Spark). An unbounded source goes on with the rows that appear
    behind the last key, and asks for them each `poll_interval`.
    """

    @overload
    def __init__(
        self: DatabaseSource[dict[str, Any]],
        url: str,
        table: str,
        key: str,
        *,
        splits: int = 1,
        lower_bound: int | None = None,
        upper_bound: int | None = None,
        bounded: bool = True,
        poll_interval: timedelta = timedelta(seconds=1),
        password_file: str | None = None,
        schema: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        url: str,
        table: str,
        key: str,
        *,
        output_type: type[T],
        splits: int = 1,
        lower_bound: int | None = None,
        upper_bound: int | None = None,
        bounded: bool = True,
        poll_interval: timedelta = timedelta(seconds=1),
        password_file: str | None = None,
        schema: str | None = None,
    ) -> None: ...
    def __init__(
        self,
        url: str,
        table: str,
        key: str,
        *,
        output_type: type[Any] | None = None,
        splits: int = 1,
        lower_bound: int | None = None,
        upper_bound: int | None = None,
        bounded: bool = True,
        poll_interval: timedelta = timedelta(seconds=1),
        password_file: str | None = None,
        schema: str | None = None,
    ) -> None:
        """Raises ProgramError."""
        check_names("DatabaseSource", table=table, key=key)
        if not is_whole(splits, 1, 100_000):
            raise refusal("DatabaseSource", f"splits is {splits!r}, not an integer of 1 to 100000")
        if splits > 1 and not (
            type(lower_bound) is int and type(upper_bound) is int and lower_bound + splits <= upper_bound
        ):
            raise refusal(
                "DatabaseSource",
                f"{splits} splits need a lower_bound and an upper_bound of the key, integers that far apart at least",
            )
        if output_type is not None and not field_names(output_type):
            raise refusal("DatabaseSource", f"output_type is {output_type!r}, not a dataclass or NamedTuple")
        self._database = Database("DatabaseSource", url, password_file)
        self._table_name, self._schema, self._key = table, schema, key
        self._splits, self._bounds = splits, (lower_bound or 0, upper_bound or 0)
        self._wait_s = timedelta_ms("poll_interval", poll_interval, operator="DatabaseSource") / 1000
        self.output_type = output_type
        self.bounded = bounded
        self._engine: Any = None

    def open(self, context: RuntimeContext) -> None:
        self._engine = self._database.connect()
        self._table = read_table(self._engine, self._table_name, self._schema)
        for name in (self._key, *field_names(self.output_type)):
            check_column(self._table, name)

    def splits(self) -> Iterable[SourceSplit]:
        lower, upper = self._bounds
        count = self._splits
        bounds = [lower + (upper - lower) * number // count for number in range(1, count)]
        return [
            SourceSplit(str(number), limits)
            for number, limits in enumerate(zip([None, *bounds], [*bounds, None], strict=True))
        ]

    def split_number(self, split: SourceSplit) -> int:
        return int(split.split_id)

    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[Any]:
        return _RowReader(self._read, split.value)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _read(self, limits: tuple[int | None, int | None], position: Any, limit: int) -> SourceRecords[Any]:
        import sqlalchemy as sql

        key, fields = self._table.c[self._key], field_names(self.output_type)
        columns = [self._table.c[name] for name in fields] or list(self._table.c)
        query = sql.select(*columns, key.label("key_of_row")).order_by(key).limit(limit)
        first, end = limits
        if position is not None:
            query = query.where(key > position)
        elif first is not None:
            query = query.where(key >= first)
        if end is not None:
            query = query.where(key < end)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        names = fields or self._table.c.keys()
        create: Callable[..., Any] = dict if self.output_type is None else self.output_type  # type: ignore[assignment]
        records = [create(**dict(zip(names, row, strict=False))) for row in rows]
        position = rows[-1][-1] if rows else position
        return SourceRecords(
            records, position, has_ended=self.bounded and len(rows) < limit, wait_s=self._wait_s
        )


class _RowReader(SourceReader[Any]):
    """Reads a range of keys. The position is the last key."""

    def __init__(
        self, read: Callable[..., SourceRecords[Any]], limits: tuple[int | None, int | None]
    ) -> None:
        self._read = read
        self._limits = limits

    def poll(self, position: Any, limit: int) -> SourceRecords[Any]:
        return self._read(self._limits, position, limit)
