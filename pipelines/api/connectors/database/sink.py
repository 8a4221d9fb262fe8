"""A table of a SQL database as a sink (Flink's JdbcSink).

The id of a transaction is in a table of the same database, and is written in the database's transaction with the rows:
so each transaction has its effect once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from ....functions import RuntimeContext, TransactionalSink
from ...checks import is_text
from ...durations import timedelta_ms
from .connection import Database, check_column, check_names, field_names, read_table, refusal


class DatabaseSink(TransactionalSink[Any]):
    """Writes rows into a table, each record exactly once (Flink's JdbcSink).

    A record is a dataclass, a NamedTuple or a dictionary, with the columns as fields. With `key`, the names of the
    columns of a unique index, a row replaces the one with its key (upsert); without, it is inserted. A record whose
    field `delete_field` is true deletes the row with its key; that field is no column.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        key: Sequence[str] = (),
        delete_field: str | None = None,
        password_file: str | None = None,
        schema: str | None = None,
        transactions_table: str = "tailrace_transactions",
        keep_transactions: timedelta = timedelta(days=30),
        roll_records: int = 10_000,
        roll_interval: timedelta = timedelta(seconds=1),
    ) -> None:
        """`transactions_table` has the ids of committed transactions, for `keep_transactions`; the sink creates it.

        Raises ProgramError.
        """
        check_names("DatabaseSink", table=table, transactions_table=transactions_table)
        if isinstance(key, str) or not all(map(is_text, key)):
            raise refusal("DatabaseSink", f"key is {key!r}, not a list of columns")
        if delete_field is not None and not key:
            raise refusal("DatabaseSink", "delete_field needs a key")
        self._database = Database("DatabaseSink", url, password_file)
        self._table_name, self._schema = table, schema
        self._key = tuple(key)
        self._delete_field = delete_field
        self._transactions_name = transactions_table
        self._keep_ms = timedelta_ms("keep_transactions", keep_transactions, operator="DatabaseSink")
        self.roll_records = roll_records
        self.roll_interval = roll_interval
        self._engine: Any = None

    def open(self, context: RuntimeContext) -> None:
        import sqlalchemy as sql

        self._engine = self._database.connect()
        self._table = read_table(self._engine, self._table_name, self._schema)
        for name in self._key:
            check_column(self._table, name)
        self._transactions = sql.Table(
            self._transactions_name,
            sql.MetaData(),
            sql.Column("transaction_id", sql.String(100), primary_key=True),
            sql.Column("committed_at_ms", sql.BigInteger, nullable=False),
            schema=self._schema,
        )
        self._create_transactions()
        old = self._transactions.c.committed_at_ms < _now_ms() - self._keep_ms
        with self._engine.begin() as connection:
            connection.execute(sql.delete(self._transactions).where(old))

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        import sqlalchemy as sql

        row = {"transaction_id": transaction_id, "committed_at_ms": _now_ms()}
        with self._engine.connect() as connection, connection.begin() as transaction:
            try:
                connection.execute(sql.insert(self._transactions), row)
            except sql.exc.IntegrityError:
                transaction.rollback()  # it is committed already
                return
            self._write(connection, list(map(self._fields_of, records)))

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _create_transactions(self) -> None:
        """Creates the table of ids, unless another subtask is faster."""
        import sqlalchemy as sql

        try:
            self._transactions.metadata.create_all(self._engine)
        except sql.exc.SQLAlchemyError:
            if not sql.inspect(self._engine).has_table(self._transactions_name, schema=self._schema):
                raise

    def _write(self, connection: Any, rows: list[Mapping[str, Any]]) -> None:
        if not self._key:
            self._insert(connection, rows)
            return
        removed: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            key, values = self._key_of(row), dict(row)
            if self._delete_field is not None and values.pop(self._delete_field, False):
                removed[key] = row
                last.pop(key, None)
            else:
                # A row without some columns changes the others only, as in a transaction of its own.
                last[key] = {**last.get(key, {}), **values}
        # In one order in all subtasks, so that two that write the same rows do not wait for each other.
        self._delete(connection, [removed[key] for key in sorted(removed, key=repr)])
        self._upsert(connection, [last[key] for key in sorted(last, key=repr)])

    def _insert(self, connection: Any, rows: Iterable[Mapping[str, Any]]) -> None:
        import sqlalchemy as sql

        for some in _with_same_fields(rows):
            connection.execute(sql.insert(self._known(some[0])), some)

    def _delete(self, connection: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        import sqlalchemy as sql

        if rows:
            keys = [{f"key_{name}": row[name] for name in self._key} for row in rows]
            connection.execute(sql.delete(self._table).where(self._has_key()), keys)

    def _upsert(self, connection: Any, rows: Iterable[Mapping[str, Any]]) -> None:
        insert = _insert_of(connection.dialect.name)
        for some in _with_same_fields(rows):
            table = self._known(some[0])
            others = [name for name in some[0] if name not in self._key]
            if insert is None:
                self._update_or_insert(connection, some, others)
                continue
            statement = insert(table)
            if others:
                new = {name: statement.excluded[name] for name in others}
                statement = statement.on_conflict_do_update(index_elements=list(self._key), set_=new)
            else:
                statement = statement.on_conflict_do_nothing(index_elements=list(self._key))
            connection.execute(statement, some)

    def _update_or_insert(
        self, connection: Any, rows: Sequence[Mapping[str, Any]], others: Sequence[str]
    ) -> None:
        """Upserts rows in a database without a statement for it that is known here."""
        import sqlalchemy as sql

        for row in rows:
            key = {f"key_{name}": row[name] for name in self._key}
            if others:
                new = {name: row[name] for name in others}
                found = connection.execute(
                    sql.update(self._table).where(self._has_key()).values(new), key
                ).rowcount
            else:
                found = len(connection.execute(sql.select(self._table).where(self._has_key()), key).all())
            if not found:
                connection.execute(sql.insert(self._table), row)

    def _has_key(self) -> Any:
        import sqlalchemy as sql

        return sql.and_(*(self._table.c[name] == sql.bindparam(f"key_{name}") for name in self._key))

    def _fields_of(self, record: Any) -> Mapping[str, Any]:
        """Returns the fields of a record by name. Raises TypeError."""
        if isinstance(record, Mapping):
            return record
        names = field_names(type(record))
        if not names:
            raise TypeError(
                f"a row is a dataclass, a NamedTuple or a dictionary, not {type(record).__name__} {record!r}"
            )
        if self._delete_field not in (None, *names):
            raise TypeError(f"the record {record!r} has no field {self._delete_field}, which is delete_field")
        return {name: getattr(record, name) for name in names}

    def _key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        for name in self._key:
            if name not in row:
                raise TypeError(f"the record {row!r} has no field {name}, which is a column of the key")
        return tuple(row[name] for name in self._key)

    def _known(self, row: Mapping[str, Any]) -> Any:
        """Returns the table. Raises RuntimeError if it lacks a column of the row."""
        for name in row:
            check_column(self._table, name)
        return self._table


def _insert_of(dialect: str) -> Any:
    """Returns the insert of a dialect with ON CONFLICT, or None."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert
    return None


def _with_same_fields(rows: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Returns the rows in groups that one statement may write."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return list(groups.values())


def _now_ms() -> int:
    return round(time.time() * 1000)
