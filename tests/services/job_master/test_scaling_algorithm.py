"""The autoscaler's algorithm against a simulated job: rates, costs of records and backlogs, without randomness."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.parallelism import with_parallelism
from tailrace.schemas.types import JobGraph, Partitioner, VertexMeasurement
from tailrace.services.configuration.role_options import AutoscalerOptions
from tailrace.services.job_master.autoscaler.algorithm import Decision, decide, find_loads
from tailrace.services.job_master.autoscaler.state import Measurement, ScaleUp

from ...graphs import edge, job_graph, source, vertex

SECOND, MINUTE = 1_000_000, 60_000_000
OPTIONS = AutoscalerOptions(is_enabled=True, metrics_window=MINUTE, stabilization_interval=MINUTE)
RESTART_S = 10.0
NAMES = ("source", "work", "sink")


def graph_of(parallelism: int = 1, partitioner: Partitioner = Partitioner.REBALANCE) -> JobGraph:
    vertices = [source(parallelism=parallelism)]
    vertices += [vertex(name, parallelism=parallelism) for name in NAMES[1:]]
    return job_graph(*vertices, edge("source", "work"), edge("work", "sink", partitioner))


class SimulatedJob:
    """A Kafka source, a vertex behind it that emits `ratio` records for each, and a sink. A subtask of a vertex takes
    `costs` seconds for a record. What a vertex does not process waits in its input."""

    def __init__(
        self,
        rate: float,
        costs: Mapping[str, float],
        *,
        ratio: float = 1.0,
        backlog: float = 0.0,
        parallelism: int = 1,
        options: AutoscalerOptions = OPTIONS,
        partitions: int | None = None,
    ) -> None:
        self.rate = rate
        self.costs = costs
        self.outputs = {"source": 1.0, "work": ratio, "sink": 0.0}
        self.waiting = {"source": backlog, "work": 0.0, "sink": 0.0}
        self.graph = graph_of(parallelism)
        self.options = options
        self.partitions = partitions
        self.scale_ups: dict[str, ScaleUp] = {}
        self.now_s = 0.0
        self.changes: list[tuple[float, Mapping[str, int]]] = []

    @property
    def parallelism(self) -> dict[str, int]:
        return {each.vertex_id: each.parallelism for each in self.graph.vertices}

    def capacity(self, name: str) -> float:
        return self.parallelism[name] / self.costs[name]

    def run(self, seconds: float) -> Measurement:
        """Runs for some time; returns what was measured."""
        arrived, before = self.rate * seconds, self.waiting["source"]
        measured = []
        for name in NAMES:
            there = self.waiting[name] + arrived
            read = min(there, self.capacity(name) * seconds)
            self.waiting[name] = there - read
            arrived = read * self.outputs[name]
            measured.append(
                VertexMeasurement(
                    vertex_id=name,
                    parallelism=self.parallelism[name],
                    records_in=read / seconds,
                    records_out=arrived / seconds,
                    busy=read / seconds / self.capacity(name),
                    back_pressured=0.0,
                    pending_records=int(self.waiting[name]) if name == "source" else None,
                    pending_records_before=int(before) if name == "source" else None,
                    records_consumed=read / seconds if name == "source" else None,
                    partitions=self.partitions if name == "source" else None,
                )
            )
        self.now_s += seconds
        return Measurement(0, int(self.now_s * SECOND), int(seconds * SECOND), tuple(measured))

    def step(self) -> Decision:
        """Measures the job for a window, and changes it as decided."""
        measurement = self.run(self.options.metrics_window / SECOND)
        decision = decide(self.graph, measurement, self.options, self.scale_ups)
        for name, after in decision.parallelism.items():
            before = self.parallelism[name]
            if after > before:
                capacity = decision.capacity[name]
                self.scale_ups[name] = ScaleUp(measurement.time, after, capacity, capacity * after / before)
        if decision.parallelism:
            self.changes.append((self.now_s, decision.parallelism))
            self.graph = with_parallelism(self.graph, decision.parallelism)
            self.waiting["source"] += self.rate * RESTART_S
            self.now_s += RESTART_S
            self.run(self.options.stabilization_interval / SECOND)
        return decision


COSTS = st.fixed_dictionaries({name: st.floats(1e-5, 0.01) for name in NAMES})


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(1, 3_000),
    costs=COSTS,
    ratio=st.floats(0.1, 3),
    parallelism=st.integers(1, 40),
    backlog=st.floats(0, 1e6),
)
def test_it_converges_and_does_not_oscillate_at_constant_rate(
    rate: float, costs: Mapping[str, float], ratio: float, parallelism: int, backlog: float
) -> None:
    options = replace(OPTIONS, metrics_window=5 * MINUTE)
    job = SimulatedJob(rate, costs, ratio=ratio, parallelism=parallelism, backlog=backlog, options=options)
    for _ in range(60):
        job.step()
    begin = job.now_s
    for _ in range(30):
        job.step()
    assert not [at for at, _ in job.changes if at >= begin], job.changes
    arriving = {"source": rate, "work": rate, "sink": rate * ratio}
    for name in NAMES:
        fits = job.capacity(name) >= arriving[name] * 0.999
        assert fits or job.parallelism[name] == 128, (name, job.parallelism)
        if job.parallelism[name] > 1:
            least = arriving[name] / (job.capacity(name) / job.parallelism[name])
            assert job.parallelism[name] <= math.ceil(least / 0.4) + 1, "it holds more than it needs"
    # Up for the load and the backlog, and down by steps of 60 % after it.
    assert len(job.changes) <= 12, job.changes


@settings(max_examples=25, deadline=None)
@given(rate=st.floats(10, 2_000), costs=COSTS, backlog=st.floats(0, 3e6))
def test_backlog_is_processed_in_time(rate: float, costs: Mapping[str, float], backlog: float) -> None:
    job = SimulatedJob(rate, costs, backlog=backlog)
    for _ in range(20):
        before = len(job.changes)
        job.step()
        if len(job.changes) == before:
            break
    if any(parallelism == 128 for parallelism in job.parallelism.values()):
        return
    # The decision that was the last one counted the backlog of its own time.
    job.run(job.options.catch_up_duration / SECOND)
    assert sum(job.waiting.values()) <= rate, (job.waiting, job.changes)


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(0, 5_000),
    costs=COSTS,
    least=st.integers(1, 6),
    more=st.integers(0, 20),
    parallelism=st.integers(1, 30),
)
def test_bounds_hold(
    rate: float, costs: Mapping[str, float], least: int, more: int, parallelism: int
) -> None:
    options = replace(OPTIONS, min_parallelism=least, max_parallelism=least + more)
    job = SimulatedJob(rate, costs, parallelism=parallelism, options=options)
    for _ in range(20):
        for count in job.step().parallelism.values():
            assert least <= count <= least + more


def test_rate_goes_up_and_down_again() -> None:
    job = SimulatedJob(100, {"source": 1e-4, "work": 4e-3, "sink": 1e-4})
    job.step()
    assert job.changes == []
    job.rate = 1_000
    for _ in range(10):
        job.step()
    assert job.parallelism["work"] >= 6
    assert (job.parallelism["source"], job.parallelism["sink"]) == (1, 1)
    job.rate = 100
    raised = job.changes[-1][0]
    while job.now_s < raised + 59 * 60:
        assert not job.step().parallelism, "the grace period is an hour"
    for _ in range(20):
        job.step()
    assert job.parallelism == {"source": 1, "work": 1, "sink": 1}


def test_nothing_is_decided_without_enough_measurements() -> None:
    measurement = SimulatedJob(9_000, dict.fromkeys(NAMES, 1e-3)).run(60)
    partial = replace(measurement, vertices=measurement.vertices[:2])
    decision = decide(graph_of(), partial, OPTIONS, {})
    assert decision == Decision({}, "there are not enough measurements of sink")


def test_source_that_reads_nothing_is_left_alone() -> None:
    job = SimulatedJob(0, dict.fromkeys(NAMES, 1e-3), parallelism=8)
    measurement = job.run(60)
    first = replace(measurement.vertices[0], pending_records=500, pending_records_before=500)
    stuck = replace(measurement, vertices=(first, *measurement.vertices[1:]))
    decision = decide(job.graph, stuck, OPTIONS, {})
    assert decision == Decision({}, "source reads nothing, though records are pending")
    assert decide(job.graph, measurement, OPTIONS, {}).parallelism == dict.fromkeys(NAMES, 4)


def test_reason_has_the_numbers() -> None:
    job = SimulatedJob(900, {"source": 1e-5, "work": 2e-3, "sink": 1e-5})
    assert job.step().reason == (
        "work from parallelism 1 to 3: 900 records/s arrive, and it can process 500; 13 more are needed for the backlog"
    )
    job = SimulatedJob(100, {"source": 1e-5, "work": 2e-3, "sink": 1e-5})
    assert job.step().reason == "no vertex needs another parallelism: the busiest, work, is at 20 %"


def test_vertices_of_a_forward_edge_change_together() -> None:
    job = SimulatedJob(900, {"source": 1e-5, "work": 2e-3, "sink": 1e-5})
    job.graph = graph_of(1, Partitioner.FORWARD)
    changed = job.step().parallelism
    assert changed["work"] == changed["sink"] == 3


@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_source_is_scaled_up_to_its_partitions_at_most(parallelism: int) -> None:
    job = SimulatedJob(4_000, dict.fromkeys(NAMES, 2e-3), partitions=3, parallelism=parallelism)
    decisions = [job.step() for _ in range(8)]
    assert job.parallelism["source"] == max(3, parallelism)
    assert job.parallelism["work"] > 5
    assert decisions[-1].reason == "source is not scaled up: its topics have no more partitions (3)"


def test_fixed_vertices_keep_their_parallelism() -> None:
    job = SimulatedJob(900, {"source": 1e-5, "work": 2e-3, "sink": 2e-3})
    decision = decide(job.graph, job.run(60), OPTIONS, {}, fixed=["work"])
    assert set(decision.parallelism) == {"sink"}


def test_work_that_busy_time_does_not_show_counts() -> None:
    """Spark runs stateless operators: the task waits meanwhile. A source that is always behind shows its limit."""
    job = SimulatedJob(900, {"source": 5e-3, "work": 1e-5, "sink": 1e-5}, backlog=60_000)
    measurement = job.run(60)
    first = replace(measurement.vertices[0], busy=0.05)
    hidden = replace(measurement, vertices=(first, *measurement.vertices[1:]))
    assert decide(job.graph, hidden, OPTIONS, {}).parallelism["source"] >= 900 / 200


def test_lag_counts_in_the_records_that_the_chain_makes_of_it() -> None:
    """A filter in the chain of the source passes a hundredth."""
    job = SimulatedJob(1_000, dict.fromkeys(NAMES, 1e-3))
    seen = VertexMeasurement(
        vertex_id="source",
        parallelism=1,
        records_in=10,
        records_out=10,
        busy=0.1,
        back_pressured=0,
        pending_records=66_000,
        pending_records_before=60_000,
        records_consumed=1_000,
    )
    rest = [replace(each, records_in=10, records_out=10, busy=0.1) for each in job.run(60).vertices[1:]]
    loads = find_loads(job.graph, Measurement(0, 0, MINUTE, (seen, *rest)), OPTIONS)
    assert loads["source"].target == pytest.approx(11)
    assert loads["sink"].target == pytest.approx(11)
    assert loads["source"].catch_up == pytest.approx(660 / 1_800)


@pytest.mark.parametrize(("is_detected", "after"), [(True, 4), (False, 6)])
def test_ineffective_scale_up_is_not_repeated(is_detected: bool, after: int) -> None:
    """One key has all records: more subtasks bring nothing."""
    options = replace(OPTIONS, detects_effectiveness=is_detected)
    job = SimulatedJob(900, {"source": 1e-5, "work": 4 / 500, "sink": 1e-5}, options=options)
    job.graph = with_parallelism(job.graph, {"work": 4})
    measurement = job.run(60)
    decision = decide(job.graph, measurement, options, {"work": ScaleUp(0, 4, 490.0, 980.0)})
    assert with_parallelism(job.graph, decision.parallelism).vertices[1].parallelism >= after
    assert ("brought too little" in decision.reason) is is_detected
