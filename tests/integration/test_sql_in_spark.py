"""An expression means the same in Spark, and Spark drops only messages whose condition is not true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from example_count import example_count
from graphs import operator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipelines.sql_expressions import ORDER, Expression, Order, conditions, expressions, orders, same

from tailrace.infra.jars import spark_jars
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.runtime.formats import ValueFormat, create_reader
from tailrace.pipelines.runtime.formats.format import FormatKind
from tailrace.pipelines.runtime.spark.message_condition import DROPPED, PARSED, create_condition
from tailrace.pipelines.runtime.spark.session import start_session
from tailrace.pipelines.sql.checking import check_types
from tailrace.pipelines.sql.spark import to_spark
from tailrace.pipelines.sql.syntax import parse_expression
from tailrace.pipelines.types import Scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
AT_ONCE = 12
"""The expressions of one query: Spark compiles each query."""
TEXT = Scalar("str")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"), spark_jars(), 640)
    yield session
    session.stop()


messages = st.builds(
    lambda order, changes: {**order._asdict(), **changes},
    orders,
    st.dictionaries(
        st.sampled_from(Order._fields),
        st.sampled_from([None, 1, "1", 1.5, True, 1 << 64, "NaN", [], {}]),
        max_size=1,
    ),
)
bytes_of_messages = st.one_of(
    messages.map(lambda message: json.dumps(message).encode()),
    st.sampled_from(
        [b"", b"{", b"null", b"[]", b"\xff", b"{} x", b'{"amount": 1'],
    ),
)


@settings(max_examples=example_count(2), suppress_health_check=[*HealthCheck])
@given(
    of=st.lists(expressions, min_size=AT_ONCE, max_size=AT_ONCE),
    rows=st.lists(orders, min_size=4, max_size=8),
)
def test_expressions_have_same_values_in_spark(
    spark: SparkSession, of: list[Expression], rows: list[Order]
) -> None:
    nodes = [check_types(parse_expression(expression.text), ORDER) for expression in of]
    columns = {name: f"`{name}`" for name in Order._fields}
    table = pa.table(ORDER.to_columns(rows), schema=ORDER.schema())
    frame = spark.createDataFrame(table).coalesce(1)
    written = [(e, sql) for e, node in zip(of, nodes, strict=True) if (sql := to_spark(node, columns))]
    assert len(written) == len(of)
    found = frame.selectExpr(*(f"{sql} AS c{i}" for i, (_, sql) in enumerate(written))).collect()
    for i, (expression, sql) in enumerate(written):
        expected = [expression.meaning(row) for row in rows]
        assert all(map(same, [row[i] for row in found], expected)), (expression.text, sql, expected, found)


@settings(max_examples=example_count(2), suppress_health_check=[*HealthCheck])
@given(
    of=st.lists(conditions(2), min_size=2, max_size=2),
    values=st.lists(bytes_of_messages, min_size=6, max_size=12),
)
def test_spark_drops_messages_whose_condition_is_not_true(
    spark: SparkSession, of: list[Expression], values: list[bytes]
) -> None:
    read = create_reader(ValueFormat(FormatKind.JSON), ORDER)
    for expression in of:
        where = operator("w", OperatorKind.WHERE, parameters=json.dumps({"condition": expression.text}))
        condition = create_condition(ValueFormat(FormatKind.JSON), ORDER, [where])
        if condition is None:
            continue
        dropped = _dropped(spark, condition, values)
        for value, is_dropped in zip(values, dropped, strict=True):
            record = _record(read, value)
            if record is not None:
                assert is_dropped is (expression.meaning(record) is not True), (expression.text, value)


def test_text_that_is_no_utf8_is_not_dropped(spark: SparkSession) -> None:
    where = operator("w", OperatorKind.WHERE, parameters='{"condition": "contains(value, \'error\')"}')
    condition = create_condition(ValueFormat(FormatKind.TEXT), TEXT, [where])
    assert condition is not None
    values = [b"an error", b"fine", b"", b"\xff fine", None]
    assert _dropped(spark, condition, values) == [False, True, True, False, False]


def _dropped(spark: SparkSession, condition: Any, values: list[bytes | None] | list[bytes]) -> list[bool]:
    frame = spark.createDataFrame(pa.table({"value": pa.array(values, pa.binary())})).coalesce(1)
    parsed = [] if condition.parsed is None else [f"{condition.parsed} AS {PARSED}"]
    rows = frame.selectExpr("value", *parsed).selectExpr("value", f"{condition.drops} AS {DROPPED}").collect()
    assert [None if row.value is None else bytes(row.value) for row in rows] == values
    return [row.dropped for row in rows]


def _record(reader: Any, value: bytes) -> Order | None:
    """Returns the record; None if the message is unreadable."""
    try:
        (record,) = reader.read(pa.array([0]), pa.array([value], pa.binary())).values
    except Exception:
        return None
    assert isinstance(record, Order)
    return record
