"""The edges that lead to operators in event time."""

from __future__ import annotations

import pytest

from tailrace.pipelines.api import (
    DataStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.runtime.common.event_time import event_time_edges


def by_word(
    stream: DataStream[str], window: TumblingEventTimeWindows | TumblingProcessingTimeWindows
) -> None:
    stream.key_by(lambda word: word, str).window(window).reduce(min).rebalance().map(str.upper, str).print()


@pytest.mark.parametrize(
    ("window", "timed"),
    [(TumblingEventTimeWindows.of(seconds=1), 2), (TumblingProcessingTimeWindows.of(seconds=1), 0)],
)
def test_event_time_matters_on_all_edges_before_operator_that_uses_it(
    window: TumblingEventTimeWindows | TumblingProcessingTimeWindows, timed: int
) -> None:
    env = StreamExecutionEnvironment().configure("execution.isolation", "vertex")
    words = env.from_collection(["a"], str).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps()
    )
    by_word(words.rebalance().map(str.lower, str), window)
    graph = env.get_job_graph("words")
    assert len(graph.edges) == 3
    assert event_time_edges(graph) == {edge.data_set_id for edge in graph.edges[:timed]}
