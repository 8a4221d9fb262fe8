"""An expression means the same as plain Python; a wrong one is refused in one line."""

from __future__ import annotations

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import StreamExecutionEnvironment
from tailrace.pipelines.api import ProgramError
from tailrace.pipelines.graph.chain import output_type
from tailrace.pipelines.runtime.operators.factory import build_prefix
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.sql.checking import check_types
from tailrace.pipelines.sql.evaluation import evaluate
from tailrace.pipelines.sql.syntax import parse_expression

from ..sql_expressions import ORDER, Expression, Order, conditions, expressions, ints, orders, same


@settings(max_examples=example_count(30))
@given(expressions, st.lists(orders, min_size=1, max_size=5))
def test_expression_has_value_of_plain_python(expression: Expression, rows: list[Order]) -> None:
    node = check_types(parse_expression(expression.text), ORDER)
    columns = dict(zip(Order._fields, ORDER.to_columns(rows), strict=True))
    values = evaluate(node, columns, len(rows)).to_pylist()
    expected = [expression.meaning(row) for row in rows]
    assert all(map(same, values, expected)), (expression.text, values, expected)


@settings(max_examples=example_count(20))
@given(
    before=conditions(2),
    made=ints(2),
    behind=conditions(1),
    rows=st.lists(orders, max_size=6),
    columnar=st.booleans(),
)
def test_program_in_sql_has_results_of_plain_python(
    before: Expression, made: Expression, behind: Expression, rows: list[Order], *, columnar: bool
) -> None:
    env = StreamExecutionEnvironment()
    stream = env.from_collection([Order("", 0, 0.0, True, None, None, None)], Order)
    stream.where(before.text).with_column("made", made.text).where(behind.text).select(
        "made, user, amount"
    ).print()
    (vertex,) = env.get_job_graph("sql").vertices
    prefix = build_prefix(
        [operator for operator in vertex.operators if operator.kind in ("where", "select")], ORDER
    )
    timestamps = list(range(len(rows)))
    batch = Batch(timestamps, list(rows))
    if columnar:
        batch = Batch.from_columns(batch.timestamp_column(), ORDER.to_columns(rows), ORDER)
    found = prefix.process(batch)
    expected = [
        (at, (made.meaning(row), row.user, row.amount))
        for at, row in enumerate(rows)
        if before.meaning(row) is True and behind.meaning(row) is True
    ]
    assert [*zip(found.timestamps, map(tuple, found.values), strict=True)] == expected
    assert output_type(vertex.operators[-2]).columns()[1] == ORDER.columns()[0]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("amout > 1", "Order has no column 'amout'; its columns: user, amount"),
        ("amount >", "cannot read 'amount >' at character 8"),
        ("amount = 'a'", "= has values of the types BIGINT, STRING"),
        ("amount + 1", "the condition 'amount + 1' is BIGINT, not BOOLEAN"),
        ("size(amount) > 1", "there is no function size; the functions are abs"),
        ("amount + user > 1", "+ takes BIGINT or DOUBLE, not STRING: the column user"),
        ("amount > 1 2", "cannot read 'amount > 1 2' at character 12"),
        ("user = 'a\\n'", "cannot read"),
        ("contains(user, note)", "the second argument of contains must be a text"),
        ("amount > 99999999999999999999", "has more than 64 bits"),
        ("amount > 1e999", "is not a DOUBLE"),
        ("NOT" * 3 + "(" * 5_000, "nested too deep"),
        ("amount > 0" + " + 1" * 4_000, "operations depend on each other"),
        ("amount" * 4_000, "more than 20000"),
        ("", "an expression is a text in Spark SQL"),
        ("amount > 1; DROP TABLE t", "it is not one expression"),
        ("amount > (SELECT 1)", "(SELECT 1) is not possible in an expression"),
        ("amount > 1 AS large", "the expression has a name, large"),
        ("order.amount > 1", "order.amount is not possible in an expression"),
        ("user = 'a", "a quote or a comment does not end"),
    ],
)
def test_wrong_condition_is_refused_in_one_line_with_place(condition: str, reason: str) -> None:
    stream = StreamExecutionEnvironment().from_collection([Order("", 0, 0.0, True, None, None, None)], Order)
    with pytest.raises(ProgramError) as refused:
        stream.where(condition)
    text = str(refused.value)
    assert reason in text
    assert text.startswith("where at ")
    assert "test_expressions.py:" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("amount + 1", "amount + 1 needs a name: write amount + 1 AS name"),
        ("*, amount", "two columns have the name amount"),
        ("1 AS `a b`", "'a b' cannot be the name of a column"),
        ("NULL AS nothing", "NULL has no type"),
    ],
)
def test_wrong_select_list_is_refused(columns: str, reason: str) -> None:
    stream = StreamExecutionEnvironment().from_collection([Order("", 0, 0.0, True, None, None, None)], Order)
    with pytest.raises(ProgramError) as refused:
        stream.select(columns)
    assert reason in str(refused.value)


def test_pickled_records_have_no_columns() -> None:
    stream = StreamExecutionEnvironment().from_collection([object])
    with pytest.raises(ProgramError, match="declare the output_type of the step before"):
        stream.where("value > 1")
