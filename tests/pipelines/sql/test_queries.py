"""Queries over streams: SQLite has the same answers for the same rows."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from dataclasses import astuple, dataclass
from typing import Any

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import DataStream, ProgramError, StreamExecutionEnvironment, WatermarkStrategy

SECOND = 1_000


@dataclass(frozen=True)
class Order:
    user: str
    amount: int
    price: float
    note: str | None
    size: int | None
    at: int


ORDERS = st.lists(
    st.builds(
        Order,
        st.sampled_from(["ann", "bob", "eve"]),
        st.integers(-5, 5),
        st.integers(-8, 8).map(lambda n: n / 4),
        st.none() | st.sampled_from(["x", "y"]),
        st.none() | st.integers(0, 3),
        st.integers(0, 60).map(lambda n: n * 500),
    ),
    max_size=30,
)
QUERIES = {
    "rows": (
        "SELECT user, amount * 2 AS twice, note FROM orders WHERE amount > 1 AND note IS NOT NULL",
        None,
    ),
    "alias of a view": ("SELECT o.user AS who FROM orders AS o WHERE o.amount < 0", None),
    "all columns": ("SELECT * FROM orders WHERE size = 2 OR note = 'it''s'", None),
    "subquery": (
        "SELECT d + 1 AS e FROM (SELECT amount * 2 AS d FROM orders WHERE amount > 0) WHERE d > 2",
        None,
    ),
    "common table": (
        (
            "WITH large AS (SELECT user, amount FROM orders WHERE amount > 2), own AS (SELECT user FROM large)"
            " SELECT user FROM own UNION ALL SELECT upper(user) AS user FROM large"
        ),
        None,
    ),
    "aggregates of a key": (
        (
            "SELECT user, window.start AS begin, window.end AS stop, count(*) AS n, sum(amount) AS total,"
            " avg(price) AS mean, min(note) AS least, max(size) AS most, count(note) AS notes, sum(size) AS sizes"
            " FROM orders GROUP BY window(event_time, '5 seconds'), user"
        ),
        (
            "SELECT user, at / 5000 * 5000, at / 5000 * 5000 + 5000, count(*), sum(amount), avg(price),"
            " min(note), max(size), count(note), sum(size) FROM orders GROUP BY at / 5000, user"
        ),
    ),
    "several keys, which may be null": (
        "SELECT note, size, count(*) AS n FROM orders GROUP BY note, window(event_time, INTERVAL '10' SECONDS), size",
        "SELECT note, size, count(*) FROM orders GROUP BY at / 10000, note, size",
    ),
    "no key": (
        "SELECT window_start, count(*) AS n FROM orders WHERE amount > 0 GROUP BY window(event_time, '10 seconds')",
        "SELECT at / 10000 * 10000, count(*) FROM orders WHERE amount > 0 GROUP BY at / 10000",
    ),
    "expressions over and of aggregates": (
        (
            "SELECT amount % 2 = 0 AS is_even, sum(amount) + count(*) * 10 AS x,"
            " CASE WHEN max(price) > 0 THEN 'up' ELSE 'no' END AS y FROM orders"
            " GROUP BY amount % 2 = 0, window(event_time, '1 minute') HAVING count(*) > 2 AND sum(amount) < 9"
        ),
        (
            "SELECT amount % 2 = 0, sum(amount) + count(*) * 10, CASE WHEN max(price) > 0 THEN 'up' ELSE 'no' END"
            " FROM orders GROUP BY amount % 2 = 0 HAVING count(*) > 2 AND sum(amount) < 9"
        ),
    ),
    "sliding windows": (
        (
            "SELECT user, window_end AS stop, sum(amount) AS total FROM orders"
            " GROUP BY window(event_time, '10 seconds', '5 seconds'), user"
        ),
        (
            "SELECT user, (at / 5000 + s) * 5000, sum(amount) FROM orders, (SELECT 1 AS s UNION SELECT 2)"
            " GROUP BY at / 5000 + s, user"
        ),
    ),
    "an aggregate of aggregates": (
        (
            "SELECT count(*) AS users, max(total) AS most FROM"
            " (SELECT user, sum(amount) AS total FROM orders GROUP BY window(event_time, '5 seconds'), user)"
            " GROUP BY window(event_time, '5 seconds')"
        ),
        (
            "SELECT count(*), max(total) FROM (SELECT at / 5000 AS w, sum(amount) AS total FROM orders"
            " GROUP BY at / 5000, user) GROUP BY w"
        ),
    ),
}


def environment(orders: list[Order]) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(seconds=60).with_timestamp_assigner("at")
    stream = env.from_collection(orders, output_type=Order).assign_timestamps_and_watermarks(strategy)
    env.create_temporary_view("orders", stream)
    return env


def rows(stream: DataStream[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(record) if isinstance(record, tuple) else astuple(record)
        for record in stream.execute_and_collect()
    )


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=example_count(6))
@given(orders=ORDERS)
def test_answers_equal_those_of_sqlite(name: str, orders: list[Order]) -> None:
    query, other = QUERIES[name]
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (user TEXT, amount INT, price REAL, note TEXT, size INT, at INT)")
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", map(astuple, orders))
    assert rows(environment(orders).sql(query)) == Counter(database.execute(other or query).fetchall())
    database.close()


def test_sessions_end_after_their_gap() -> None:
    orders = [Order("ann", 1, 0, None, None, at * SECOND) for at in (1, 3, 9, 11, 30)]
    answer = environment(orders).sql(
        "SELECT user, window_start AS begin, window_end AS stop, count(*) AS n FROM orders"
        " GROUP BY user, session_window(event_time, '5 seconds')"
    )
    assert rows(answer) == Counter(
        [("ann", 1000, 8000, 2), ("ann", 9000, 16000, 2), ("ann", 30000, 35000, 1)]
    )


def test_result_has_names_and_types_and_is_a_view_itself() -> None:
    env = environment([Order("ann", 2, 0.5, None, None, 1)])
    totals = env.sql(
        "SELECT user, avg(amount) AS mean, max(size) AS size FROM orders GROUP BY user, window(event_time, '1 day')"
    )
    assert [(name, str(of)) for name, of in totals.record_type.columns()] == [
        ("user", "str"),
        ("mean", "float"),
        ("size", "int | None"),
    ]
    env.create_temporary_view("totals", totals)
    assert rows(env.sql("SELECT mean FROM totals")) == Counter([(2.0,)])
    assert all(map(math.isfinite, [record.mean for record in totals.execute_and_collect()]))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "'' is no query"),
        ("DELETE FROM orders", "DELETE is not possible over streams; a query is a SELECT"),
        ("SELECT user FROM orders; SELECT 1", "a query is one SELECT"),
        ("SELECT user FROM orders WHERE", "cannot read the query at 'WHERE', line 1"),
        ("SELECT 'a FROM orders", "a quote or a comment does not end"),
        ("SELECT user FROM nowhere", "there is no view nowhere; the views are orders"),
        ("SELECT 1 AS one", "the query has no FROM"),
        ("SELECT DISTINCT user FROM orders", "DISTINCT is not possible in a query over streams"),
        ("SELECT user FROM orders ORDER BY user", "ORDER BY is not possible"),
        ("SELECT user FROM orders LIMIT 3", "LIMIT is not possible"),
        (
            "SELECT a.user FROM orders a JOIN orders b ON a.user = b.user",
            "JOIN is not possible .*: use join, ",
        ),
        ("SELECT user FROM orders UNION SELECT user FROM orders", "write UNION ALL"),
        ("SELECT b.user FROM orders a", "there is no b in this query, only a"),
        ("SELECT nothing FROM orders", "has no column 'nothing'"),
        (
            "SELECT user FROM orders WHERE user IN (SELECT user FROM orders)",
            "a subquery is possible in FROM only",
        ),
        (
            "SELECT user FROM orders WHERE amount > (SELECT max(amount) FROM orders)",
            "a subquery is possible in",
        ),
        (
            "SELECT (SELECT max(amount) FROM orders) AS most FROM orders",
            "a subquery is possible in FROM only",
        ),
        (
            "SELECT count(*) AS n FROM orders",
            r"aggregates need one window, such as GROUP BY window\(event_time",
        ),
        ("SELECT user FROM orders GROUP BY user", "aggregates need one window"),
        ("SELECT user FROM orders WHERE count(*) > 1", "conditions on aggregates are in HAVING"),
        ("SELECT user, count(*) AS n FROM orders GROUP BY {w}", "user is neither in GROUP BY nor inside"),
        ("SELECT * FROM orders GROUP BY {w}, user", r"SELECT \* is not possible with GROUP BY"),
        ("SELECT count(*) FROM orders GROUP BY {w}", r"COUNT\(\*\) needs a name"),
        ("SELECT count(DISTINCT user) AS n FROM orders GROUP BY {w}", "one argument, without DISTINCT"),
        ("SELECT stddev(amount) AS n FROM orders GROUP BY {w}", "there is no aggregate STDDEV"),
        ("SELECT sum(user) AS n FROM orders GROUP BY {w}", r"sum\(`user`\) is of str"),
        ("SELECT sum(max(amount)) AS n FROM orders GROUP BY {w}", "an aggregate inside an aggregate"),
        ("SELECT count(*) AS n FROM orders GROUP BY 1, {w}", "GROUP BY 1: name a column"),
        ("SELECT count(*) AS n FROM orders GROUP BY window(at, '1 second')", "event_time or processing_time"),
        ("SELECT count(*) AS n FROM orders GROUP BY window(event_time, '1 year')", "'1 year' is no duration"),
        ("SELECT count(*) AS n FROM orders GROUP BY window(event_time)", "window takes a size"),
        (
            "SELECT count(*) AS n FROM orders GROUP BY tumble(event_time, '1 second')",
            "there is no function tumble",
        ),
        ("SELECT user FROM orders GROUP BY {w}, user WITH ROLLUP", "not possible"),
    ],
)
def test_query_that_is_not_possible_is_refused_in_one_line(query: str, reason: str) -> None:
    env = environment([])
    with pytest.raises(ProgramError, match=reason) as caught:
        env.sql(query.format(w="window(event_time, '1 second')"))
    assert "\n" not in str(caught.value)
    assert "test_queries.py:" in str(caught.value)


def test_stream_without_columns_is_no_view() -> None:
    env = StreamExecutionEnvironment()
    with pytest.raises(ProgramError, match="the records of the view v are pickled and have no columns"):
        env.create_temporary_view("v", env.from_collection([object()]))
    with pytest.raises(ProgramError, match="the view v is 3, not a stream"):
        env.create_temporary_view("v", 3)  # type: ignore[arg-type]
