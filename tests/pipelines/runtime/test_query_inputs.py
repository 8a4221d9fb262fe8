"""Which vertices need a query of Spark: those that records reach through Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.pipelines.api import CoMapFunction, StreamExecutionEnvironment
from tailrace.pipelines.runtime.common.deployment import VertexDeployment
from tailrace.pipelines.runtime.spark.query_inputs import needs_query


class Both(CoMapFunction[int, int, int]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return value


def connected(env: StreamExecutionEnvironment) -> None:
    env.generate(int, output_type=int).connect(env.generate(int, output_type=int)).map(Both())


def keyed(env: StreamExecutionEnvironment) -> None:
    env.generate(int, output_type=int).key_by(lambda value: value).sum().print()


def in_other_slots(env: StreamExecutionEnvironment) -> None:
    env.generate(int, output_type=int).map(int, int).slot_sharing_group("other").print()


@pytest.mark.parametrize(
    ("program", "parallelism", "options", "needs"),
    [
        (connected, 1, {}, False),
        (connected, 2, {}, False),
        (connected, 1, {"execution.isolation": "vertex"}, True),
        (connected, 1, {"execution.schedule-mode": "LAZY_FROM_SOURCES"}, True),
        (connected, 1, {"execution.mode": "micro-batch"}, True),
        (keyed, 2, {}, True),
        (in_other_slots, 1, {}, True),
    ],
)
def test_vertex_needs_query_unless_its_senders_are_in_its_processes(
    program: Callable[[Any], None], parallelism: int, options: dict[str, str], needs: bool
) -> None:
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    for key, value in options.items():
        env.configure(key, value)
    program(env)
    graph = env.get_job_graph("job")
    last = graph.vertices[-1]
    assert needs_query(VertexDeployment("cluster", "job", graph, last.vertex_id, ())) is needs
