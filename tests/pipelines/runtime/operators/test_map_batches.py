"""map_batches: columns in, columns out, and an error that names what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from connectors import CollectedRecords, build_one, operator_config
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import TaskError, UserCodeError, describe_failure
from tailrace.pipelines.runtime.records.batch import Batch


@dataclass(frozen=True)
class Order:
    item: str
    price: float
    tags: list[str]
    discount: float | None = None


def mapped(
    function: Callable[[pa.RecordBatch], Any], batch: Batch, input_type: object, output_type: object
) -> CollectedRecords:
    operator, output = build_one(
        operator_config("map_batches", function, output_type=output_type), input_type=input_type
    )
    operator.open()
    operator.process(batch)
    operator.close()
    return output


texts = st.lists(st.text(max_size=5), min_size=1, max_size=20)


@given(texts)
def test_same_number_of_records_keeps_timestamps(values: list[str]) -> None:
    batch = Batch(list(range(len(values))), values)
    output = mapped(
        lambda given: pa.record_batch({"n": pc.utf8_length(given["value"]).cast(pa.int64())}), batch, str, int
    )
    assert output.of_kind("records") == [Batch(batch.timestamps, list(map(len, values)))]


@given(texts)
def test_different_number_of_records_gets_greatest_timestamp(values: list[str]) -> None:
    batch = Batch(list(range(len(values))), values)
    output = mapped(
        lambda given: pa.table({"n": [given.num_rows, 0, 0][: 1 + (len(values) == 1)]}), batch, str, int
    )
    expected = [len(values), 0][: 1 + (len(values) == 1)]
    assert output.of_kind("records") == [Batch([len(values) - 1] * len(expected), expected)]


def test_result_may_have_own_timestamps() -> None:
    output = mapped(
        lambda given: pa.table({"~timestamp": [7, 8, 9], "v": given["value"].take([0, 0, 0])}),
        Batch([1], ["a"]),
        str,
        str,
    )
    assert output.of_kind("records") == [Batch([7, 8, 9], ["a", "a", "a"])]


def test_columns_are_those_of_record_type_in_any_order_and_width() -> None:
    order = Order("shoe", 2.0, ["new"])

    def double(given: pa.RecordBatch) -> pa.Table:
        assert given.schema.names == ["item", "price", "tags", "discount"]
        return pa.table(
            {
                "discount": pa.array([1], pa.float32()),
                "tags": given["tags"],
                "more": [None],
                "price": pa.array([4], pa.int32()),
                "item": given["item"].cast(pa.large_string()),
            }
        )

    output = mapped(double, Batch([1], [order]), Order, Order)
    assert output.of_kind("records") == [Batch([1], [Order("shoe", 4.0, ["new"], 1.0)])]


def test_generator_returns_parts_and_none_returns_nothing() -> None:
    def halves(given: pa.RecordBatch) -> Iterator[pa.RecordBatch | pa.Table]:
        yield given.slice(0, 1)
        yield pa.table(given.slice(1).to_pydict())

    batch = Batch([1, 2, 3], [1, 2, 3])
    assert mapped(halves, batch, int, int).of_kind("records") == [batch]
    assert mapped(lambda _: None, batch, int, int).events == []
    assert mapped(lambda given: given.slice(0, 0), batch, int, int).events == []
    assert mapped(lambda given: [], batch, int, int).events == []


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            pa.table({"item": ["a"], "price": [1.0]}),
            "Order needs the columns tags, discount; there are only item, price",
        ),
        (
            pa.table({"item": [1], "price": [1.0], "tags": [["a"]], "discount": [None]}),
            "column item is int64, which is no str",
        ),
        (
            pa.table(
                {"item": ["a"], "price": pa.array([None], pa.float64()), "tags": [["a"]], "discount": [1.0]}
            ),
            "column price has no value in some record: declare it as float | None",
        ),
        (["a"], "returned str, not a pyarrow.RecordBatch or Table"),
        (7, "returned int, not a pyarrow.RecordBatch or Table"),
        (pa.table({"~timestamp": ["now"], "item": ["a"]}), "the column ~timestamp must be integers"),
    ],
)
def test_result_of_other_type_is_rejected_by_name(result: Any, message: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        mapped(lambda _: result, Batch([1], [Order("a", 1.0, [])]), Order, Order)
    assert message in describe_failure(raised.value)
    assert "map_batches" in describe_failure(raised.value)


def test_pickled_records_have_no_columns() -> None:
    with pytest.raises(TaskError, match="declare the output_type of the operator before it"):
        build_one(operator_config("map_batches", lambda given: given, output_type=int))
