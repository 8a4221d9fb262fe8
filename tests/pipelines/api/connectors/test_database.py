"""DatabaseSource and DatabaseSink on SQLite files. tests/integration/test_postgres.py has PostgreSQL."""

from __future__ import annotations

import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from connectors import build_one, open_source, operator_config
from database_tables import (
    CHANGES,
    LEFT,
    ORDERS,
    Order,
    Tables,
    check_sinks,
    check_sources,
    write_orders_with_kills,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import DatabaseSink, DatabaseSource, ProgramError, StreamExecutionEnvironment
from tailrace.pipelines.api.connectors.database import sink as sink_module
from tailrace.pipelines.api.connectors.database.connection import Database
from tailrace.pipelines.functions import RuntimeContext
from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.testing.memory import cluster as memory_cluster
from tailrace.testing import check_source

CONTEXT: RuntimeContext = TaskContext()


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(f"sqlite:///{tmp_path / 'orders.db'}")


def test_contracts_hold(tables: Tables) -> None:
    check_sinks(tables)
    check_sources(tables)


def test_rows_are_exact_after_kill_at_each_step(tables: Tables, tmp_path: Path) -> None:
    kills = write_orders_with_kills(tables, tmp_path / "changelog")
    assert kills > 10


def test_upserts_without_statement_of_database_are_exact(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "_insert_of", lambda dialect: None)
    sink = DatabaseSink(tables.url, "stock", key=["id"], delete_field="gone")
    sink.open(CONTEXT)
    for number in range(2):
        sink.commit(f"t{number}", CHANGES[number * 9 : number * 9 + 9])
    sink.close()
    assert Counter(tables.rows(tables.stock)) == Counter(LEFT)


@pytest.mark.parametrize("seed", range(3))
def test_job_copies_table_with_crashes(tables: Tables, seed: int) -> None:
    tables.fill()
    env = StreamExecutionEnvironment().set_parallelism(1 + seed)
    source = DatabaseSource(
        tables.url, "stock", "id", output_type=Order, splits=4, lower_bound=0, upper_bound=40
    )
    env.from_source(source).rebalance().sink_to(DatabaseSink(tables.url, "orders", roll_records=7))
    memory_cluster.run(env.get_job_graph(), seed=seed, crashes=6)
    assert Counter(tables.rows(tables.orders)) == Counter(ORDERS)


def test_unbounded_source_reads_rows_that_appear(tables: Tables) -> None:
    source = DatabaseSource(
        tables.url, "stock", "id", output_type=Order, bounded=False, poll_interval=timedelta(seconds=3)
    )
    assert check_source(source) == []
    opened = open_source(operator_config("custom_source", source))
    assert opened.poll(10).wait_s == 3
    tables.fill()
    assert check_source(source) == ORDERS


def test_dictionaries_with_different_columns_are_written(tables: Tables) -> None:
    sink = DatabaseSink(tables.url, "stock", key=["id"])
    sink.open(CONTEXT)
    sink.commit("t0", [{"id": 1, "customer": "ann", "amount": 2.0}, {"id": 2, "customer": "bob"}])
    sink.commit("t1", [{"id": 1, "customer": "eve"}])
    sink.close()
    assert tables.rows(tables.stock) == [Order(1, "eve", 2.0), Order(2, "bob", None)]


rows = st.fixed_dictionaries(
    {"id": st.integers(0, 2), "customer": st.sampled_from("ab")},
    optional={"amount": st.sampled_from([None, 1.5, 2.5]), "gone": st.booleans()},
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(rows, min_size=1, max_size=5), max_size=5), st.booleans())
def test_rows_do_not_depend_on_how_they_are_divided_into_transactions(
    transactions: list[list[dict[str, Any]]], has_statement: bool
) -> None:
    """Also if they have some of the columns only, and after a deletion of their key."""
    each = [[row] for rows in transactions for row in rows]
    assert written(transactions, has_statement) == written(each, has_statement)


def written(transactions: list[list[dict[str, Any]]], has_statement: bool) -> list[Order]:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        if not has_statement:
            patch.setattr(sink_module, "_insert_of", lambda dialect: None)
        tables = Tables(f"sqlite:///{directory}/stock.db")
        sink = DatabaseSink(tables.url, "stock", key=["id"], delete_field="gone")
        sink.open(CONTEXT)
        for number, transaction in enumerate(transactions):
            sink.commit(f"t{number}", transaction)
        sink.close()
        found = tables.rows(tables.stock)
        tables.engine.dispose()
        return sorted(found, key=lambda order: order.id)


def test_record_without_delete_field_is_refused(tables: Tables) -> None:
    sink = DatabaseSink(tables.url, "stock", key=["id"], delete_field="gone")
    sink.open(CONTEXT)
    with pytest.raises(TypeError, match=r"the record Order\(.*\) has no field gone, which is delete_field"):
        sink.commit("t0", ORDERS[:1])
    sink.close()


def test_old_ids_are_deleted(tables: Tables) -> None:
    sink = DatabaseSink(tables.url, "orders", keep_transactions=timedelta(milliseconds=1))
    for number in range(2):
        sink.open(CONTEXT)
        sink.commit(f"t{number}", ORDERS[:1])
        sink.close()
    with tables.engine.connect() as connection:
        assert connection.execute(
            sql.text("SELECT transaction_id FROM tailrace_transactions")
        ).scalars().all() == ["t1"]


@pytest.mark.parametrize(
    ("create", "reason"),
    [
        (lambda: DatabaseSink("postgresql://a:b@h/d", "t"), "its URL has a password, which would stay"),
        (
            lambda: DatabaseSource("postgresql://a@h/d?password=b", "t", "id"),
            "its URL has a password, which would",
        ),
        (lambda: DatabaseSink("h", "t"), "expected a URL of SQLAlchemy, such as"),
        (lambda: DatabaseSink("sqlite://", ""), "table is '', not a name"),
        (lambda: DatabaseSink("sqlite://", "t", key="id"), "key is 'id', not a list of columns"),
        (lambda: DatabaseSink("sqlite://", "t", delete_field="gone"), "delete_field needs a key"),
        (
            lambda: DatabaseSource("sqlite://", "t", "id", splits=2),
            "2 splits need a lower_bound and an upper_bound",
        ),
        (
            lambda: DatabaseSource("sqlite://", "t", "id", output_type=int),
            "<class 'int'>, not a dataclass or NamedTuple",
        ),
    ],
)
def test_wrong_parameter_is_refused(create: Any, reason: str) -> None:
    with pytest.raises(ProgramError) as raised:
        create()
    assert reason in str(raised.value)


def test_error_names_what_is_missing(tables: Tables) -> None:
    for sink, record, reason in (
        (DatabaseSink(tables.url, "none"), ORDERS[0], "has no table none: create it"),
        (
            DatabaseSink(tables.url, "stock", key=["no"]),
            ORDERS[0],
            "the table stock has no column no: it has id, cust",
        ),
        (
            DatabaseSink(tables.url, "orders"),
            {"id": 1, "size": 2},
            "the table orders has no column size: it has id",
        ),
        (
            DatabaseSink(tables.url, "stock", key=["id"]),
            {"customer": "ann"},
            "has no field id, which is a column of",
        ),
        (
            DatabaseSink(tables.url, "orders"),
            7,
            "a row is a dataclass, a NamedTuple or a dictionary, not int 7",
        ),
    ):
        operator, _ = build_one(operator_config("transactional_sink", sink, roll_records=1, roll_ms=1))
        with pytest.raises(UserCodeError) as raised:
            _write(operator, record)
        assert reason in str(raised.value.__cause__)


def _write(operator: Any, record: Any) -> None:
    operator.open()
    operator.process(Batch([0], [record]))
    list(operator.take_changes())
    operator.committed()


def test_password_comes_from_file_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\nsecond line\n")
    database = Database("DatabaseSink", "postgresql+psycopg://bob@h/d", str(file))
    engine = database.connect()
    assert engine.url.password == "s3cret"
    assert "s3cret" not in f"{engine.url} {vars(database)}"
    file.write_text("")
    with pytest.raises(RuntimeError, match=r"the first line of .* is empty"):
        database.connect()
