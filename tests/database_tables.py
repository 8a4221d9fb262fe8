"""Tables for the tests of DatabaseSource and DatabaseSink, in any database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from killed_sinks import write_with_kills

from tailrace.pipelines.api import DatabaseSink, DatabaseSource
from tailrace.testing import check_sink, check_source


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    amount: float | None


@dataclass(frozen=True)
class Change:
    id: int
    customer: str
    amount: float | None
    gone: bool = False


ORDERS = [
    Order(number, f"customer {number % 5}", None if number % 7 == 0 else number / 4) for number in range(40)
]
CHANGES = [
    Change(number % 6, f"customer {number}", number / 2, gone=number % 6 == 4 or number == 12)
    for number in range(18)
]
LEFT = [Order(n, f"customer {n + 12}", (n + 12) / 2) for n in (1, 2, 3, 5)]
"""The rows after the changes: 0 and 4 are deleted by their last ones."""


class Tables:
    """The table `orders` and an upsert table `stock` of the same columns."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sql.create_engine(url)
        metadata = sql.MetaData()
        self.stock = _table("stock", metadata, primary_key=True)
        # Without a unique index: a row that is written twice is there twice.
        self.orders = _table("orders", metadata, primary_key=False)
        metadata.create_all(self.engine)

    def rows(self, table: sql.Table) -> list[Order]:
        with self.engine.connect() as connection:
            return [Order(row.id, row.customer, row.amount) for row in connection.execute(sql.select(table))]

    def clear(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(sql.delete(self.stock))
            connection.execute(sql.delete(self.orders))

    def fill(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(sql.insert(self.stock), [vars(order) for order in ORDERS])


def _table(name: str, metadata: sql.MetaData, *, primary_key: bool) -> sql.Table:
    return sql.Table(
        name,
        metadata,
        sql.Column("id", sql.Integer, primary_key=primary_key, autoincrement=False),
        sql.Column("customer", sql.String(100), nullable=False),
        sql.Column("amount", sql.Float),
    )


def check_sinks(tables: Tables) -> None:
    """Checks the sink with and without a key."""
    check_sink(DatabaseSink(tables.url, "orders"), lambda: tables.rows(tables.orders), ORDERS)
    upserts = DatabaseSink(tables.url, "stock", key=["id"], delete_field="gone")
    check_sink(
        upserts, lambda: tables.rows(tables.stock), CHANGES, expected=LEFT, clear=tables.clear, timeout_s=60
    )


def check_sources(tables: Tables) -> None:
    """Checks the source with and without ranges."""
    tables.clear()
    tables.fill()
    found = check_source(DatabaseSource(tables.url, "stock", "id", output_type=Order), timeout_s=60)
    assert found == ORDERS
    ranges = DatabaseSource(tables.url, "stock", "id", splits=3, lower_bound=5, upper_bound=20)
    assert [Order(**row) for row in check_source(ranges, timeout_s=60)] == ORDERS


def write_orders_with_kills(tables: Tables, changelog: Path) -> int:
    """Kills processes also before and behind the commit in the database. Returns the number of kills."""
    tables.clear()
    tables.engine.dispose()  # a process that is forked has connections of its own

    def create(step: Callable[[], None]) -> DatabaseSink:
        return SteppingSink(tables.url, step)

    kills = write_with_kills(create, ORDERS, changelog)
    assert Counter(tables.rows(tables.orders)) == Counter(ORDERS)
    return kills


class SteppingSink(DatabaseSink):
    """Calls `step` before and behind the rows, and behind the commit."""

    def __init__(self, url: str, step: Callable[[], None]) -> None:
        super().__init__(url, "orders")
        self._step = step

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        super().commit(transaction_id, records)
        self._step()

    def _write(self, connection: Any, rows: Any) -> None:
        self._step()
        super()._write(connection, rows)
        self._step()
