"""Who is told of processing time: all that a window waits for, and nothing that nobody waits for."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    StreamExecutionEnvironment,
)
from tailrace.pipelines.runtime.buffers import NO_WATERMARK
from tailrace.pipelines.runtime.clocks import ALWAYS, NEVER, ClockDemand, demand_of, edge_demands
from tailrace.schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig, Partitioner

from ..memory_cluster import run


def operator(kind: str, **parameters: object) -> OperatorConfig:
    return OperatorConfig(operator_id=kind, name=kind, kind=kind, parameters=json.dumps(parameters), code=b"")


def windows(kind: str, **parameters: object) -> ClockDemand:
    return demand_of(operator("window", assigner={"kind": kind, "time": "processing", **parameters}))


@given(
    st.integers(1, 50), st.integers(0, 49), st.integers(1, 50), st.integers(-200, 200), st.integers(1, 200)
)
def test_a_step_is_wanted_just_where_it_brings_a_window_to_its_end(
    size: int, offset: int, slide: int, told: int, step: int
) -> None:
    for demand, every, at in (
        (windows("tumbling", size_ms=size, offset_ms=offset), size, offset),
        (windows("sliding", size_ms=size, slide_ms=slide, offset_ms=offset), slide, offset + size),
    ):
        # [start, end) fires when the clock comes to end - 1.
        fires = [clock for clock in range(told + 1, told + step + 1) if (clock + 1 - at) % every == 0]
        assert demand.wants(told, told + step) is bool(fires)
        awaited = demand.next_after(told)
        assert awaited is not None
        assert awaited > told
        assert demand.wants(told, awaited)
        assert not demand.wants(told, awaited - 1)
        assert demand.next_after(NO_WATERMARK) == NO_WATERMARK


def test_a_demand_of_several_is_each_of_theirs() -> None:
    both = windows("tumbling", size_ms=10, offset_ms=0) | windows("tumbling", size_ms=15, offset_ms=0)
    assert [clock for clock in range(60) if both.wants(clock - 1, clock)] == [9, 14, 19, 29, 39, 44, 49, 59]
    assert (both | ALWAYS).wants(0, 1)
    assert (both | ALWAYS).next_after(0) is None
    assert not NEVER.wants(NO_WATERMARK, 5)


@pytest.mark.parametrize(
    ("told_of", "demand"),
    [
        (operator("window", assigner={"kind": "tumbling", "time": "event", "size_ms": 10}), NEVER),
        (operator("window", assigner={"kind": "session", "time": "processing", "gap_ms": 10}), ALWAYS),
        (operator("keyed_process"), ALWAYS),
        (operator("keyed_process", timers=False), NEVER),
        (operator("watermarks", idle_after_ms=None), NEVER),
        (operator("watermarks", idle_after_ms=5), ALWAYS),
        (operator("file_sink", roll_ms=5), ALWAYS),
        (operator("file_sink"), NEVER),
        (operator("map"), NEVER),
    ],
)
def test_who_goes_by_processing_time(told_of: OperatorConfig, demand: ClockDemand) -> None:
    assert demand_of(told_of) == demand


def test_an_edge_leads_to_all_that_is_behind_it() -> None:
    def vertex(name: str, of: OperatorConfig) -> JobVertex:
        return JobVertex(
            vertex_id=name, name=name, operators=(of,), parallelism=1, max_parallelism=128,
            slot_sharing_group="default",
        )  # fmt: skip

    def edge(source: str, target: str) -> JobEdge:
        return JobEdge(
            data_set_id=f"{source}-{target}", source_vertex_id=source, target_vertex_id=target,
            partitioner=Partitioner.HASH, code=b"",
        )  # fmt: skip

    window = {"kind": "tumbling", "time": "processing", "size_ms": 10, "offset_ms": 0}
    graph = JobGraph(
        name="j",
        vertices=(
            vertex("source", operator("collection")),
            vertex("map", operator("map")),
            vertex("event", operator("reduce")),
            vertex("window", operator("window", assigner=window)),
            vertex("print", operator("print")),
        ),
        edges=(edge("source", "map"), edge("map", "event"), edge("map", "window"), edge("window", "print")),
    )
    tens = ClockDemand(periods=frozenset({(10, 0)}))
    assert edge_demands(graph) == {
        "source-map": tens,
        "map-event": NEVER,
        "map-window": tens,
        "window-print": NEVER,
    }


class Numbered(KeyedProcessFunction[str, str, str]):
    """Has state, and no timers."""

    def process_element(self, value: str, context: KeyedContext[str]) -> Iterable[str]:
        return [f"{value} {context.timer_service.current_processing_time() > 0}"]


class Reminder(Numbered):
    """Has timers as well."""

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[str]:
        return [str(timestamp)]


@pytest.mark.parametrize(("function", "demand"), [(Numbered(), NEVER), (Reminder(), ALWAYS)])
def test_only_functions_with_on_timer_are_told_of_every_step(function: Numbered, demand: ClockDemand) -> None:
    env = StreamExecutionEnvironment()
    words = env.from_collection(["a", "b"], str).key_by(lambda word: word, str)
    words.process(function, str).print()
    words.map(str.upper, str).print()
    graph = env.get_job_graph("words")
    assert set(edge_demands(graph).values()) == {demand, NEVER}
    assert sorted(run(graph).records) == ["A", "B", "a True", "b True"]
