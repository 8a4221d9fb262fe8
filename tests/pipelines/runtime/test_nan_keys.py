"""NaN is no key: whatever the step, the parallelism and the backend, the job fails at the record that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tailrace import (
    Count,
    EventTimeSessionWindows,
    KeyedContext,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tailrace.testing import JobFailedError, MiniCluster


@dataclass(frozen=True)
class Sale:
    price: float
    at: int


class Counted(KeyedProcessFunction[Any, Sale, int]):
    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", int, 0))

    def process_element(self, value: Sale, context: KeyedContext[Any]) -> list[int]:
        self.count.update((self.count.value() or 0) + 1)
        return [self.count.value() or 0]


DAYS = TumblingEventTimeWindows.of(seconds=86_400)
STEPS: dict[str, Callable[[Any], Any]] = {
    "running sum": lambda sales: sales.key_by("price").sum("at"),
    "state": lambda sales: sales.key_by(lambda sale: sale.price).process(Counted()),
    "state by tuple": lambda sales: sales.key_by(lambda sale: ("a", sale.price)).process(Counted()),
    "window": lambda sales: sales.key_by("price").window(DAYS).aggregate(count=Count()),
    "window by tuple": lambda sales: sales.key_by(lambda sale: (sale.price, 1)).window(DAYS).sum("at"),
    "session": lambda sales: (
        sales.key_by("price").window(EventTimeSessionWindows.with_gap(seconds=1)).aggregate(count=Count())
    ),
    "join": lambda sales: (
        sales.join(sales).where("price").equal_to("price").window(DAYS).apply(lambda a, b: a.price)
    ),
}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_nan_is_refused_as_key(step: str, parallelism: int, backend: str) -> None:
    env = StreamExecutionEnvironment()
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    sales = env.from_collection([Sale(1.0, 1), Sale(float("nan"), 2), Sale(float("nan"), 3)])
    STEPS[step](sales.assign_timestamps_and_watermarks(in_order)).print()
    with (
        MiniCluster(parallelism=parallelism, configuration={"state.backend.type": backend}) as cluster,
        pytest.raises(JobFailedError, match=r"a key is NaN, .*: let the key selector return None") as failure,
    ):
        cluster.run(env)
    assert "test_nan_keys.py:" in str(failure.value) or parallelism == 2
