"""The autoscaler of a source that counts its records in batches, which may take longer than a window: any batch, any
window, any phase. Rates, costs of records and backlogs are simulated, without randomness."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.parallelism import with_parallelism
from tailrace.services.configuration.role_options import AutoscalerOptions
from tailrace.services.job_master.autoscaler.algorithm import Decision, decide
from tailrace.services.job_master.autoscaler.state import Measurement, ScaleUp
from tailrace.services.job_master.autoscaler.task_meter import (
    Counts,
    TaskCounts,
    have_counted,
    measure_vertices,
)

from ...graphs import job_graph, source

SECOND = 1_000_000
RESTART_S = 10.0
PAUSE_S = 1.0
SPARK = 0.05
"""What a batch takes besides its records, as a part of the time of a full one: the task is idle meanwhile."""


class BatchSubtask:
    """Reads a share of the topic, a batch after the other: what is there, but no more than `most` records. It counts
    them at the end of the batch. Records take 1 / `capacity` seconds each."""

    def __init__(self, now_s: float, rate: float, backlog: float, capacity: float, most: int) -> None:
        self.began_s = self.now_s = now_s
        self.rate = rate
        self.backlog = backlog
        self.capacity = capacity
        self.most = most
        self.position = 0
        self.busy_s = 0.0
        self.counted = 0.0, 0.0
        self.batch: tuple[float, int] | None = None
        """Since when its records are processed, and their number."""

    def written(self, at_s: float) -> float:
        return self.backlog + self.rate * (at_s - self.began_s)

    def advance(self, to_s: float) -> None:
        while self.now_s < to_s:
            if self.batch is None:
                there = int(self.written(self.now_s) - self.position + 1e-6)
                if there:
                    begins_s = self.now_s + SPARK * self.most / self.capacity
                    self.batch = begins_s, min(there, self.most)
                    continue
                missing = 1 - (self.written(self.now_s) - self.position)
                self.now_s = min(to_s, self.now_s + missing / self.rate + 1e-6) if self.rate else to_s
                self.counted = self.now_s - self.began_s, self.busy_s
                continue
            since_s, count = self.batch
            ends_s = since_s + count / self.capacity
            self.now_s = min(to_s, ends_s)
            if ends_s <= to_s:
                self.batch = None
                self.position += count
                self.busy_s += count / self.capacity
                self.counted = ends_s - self.began_s, self.busy_s

    def counts(self) -> TaskCounts:
        busy_s = self.busy_s + (0.0 if self.batch is None else max(0.0, self.now_s - self.batch[0]))
        return TaskCounts(
            records_in=self.position,
            records_out=self.position,
            busy_s=busy_s,
            idle_s=self.now_s - self.began_s - busy_s,
            pending_records=int(self.written(self.now_s) - self.position),
            position=self.position,
            counted_s=self.counted[0],
            counted_busy_s=self.counted[1],
        )


class BatchJob:
    """A job that is only such a source, whose subtasks are alike."""

    def __init__(
        self, rate: float, capacity: float, batch: int, options: AutoscalerOptions, backlog: float = 0.0
    ) -> None:
        self.rate = rate
        self.capacity = capacity
        self.batch = batch
        self.options = options
        self.now_s = 0.0
        self.graph = job_graph(source())
        self.scale_ups: dict[str, ScaleUp] = {}
        self.changes: list[tuple[float, int]] = []
        self.subtask = self._start(backlog)

    @property
    def parallelism(self) -> int:
        return self.graph.vertices[0].parallelism

    @property
    def lag(self) -> float:
        return self.parallelism * (self.subtask.written(self.now_s) - self.subtask.position)

    def _start(self, backlog: float) -> BatchSubtask:
        count = self.parallelism
        return BatchSubtask(self.now_s, self.rate / count, backlog / count, self.capacity, self.batch)

    def run(self, seconds: float) -> None:
        self.now_s += seconds
        self.subtask.advance(self.now_s)

    def read(self) -> Counts:
        return {("source", index): self.subtask.counts() for index in range(self.parallelism)}

    def measure(self) -> Measurement:
        """Measures a window as the TaskMeter does."""
        vertices, window_s = {"source": self.parallelism}, self.options.metrics_window / SECOND
        first, began_s = self.read(), self.now_s
        self.run(window_s)
        while not have_counted(vertices, first, self.read(), window_s):
            self.run(PAUSE_S)
        duration_s = self.now_s - began_s
        found = measure_vertices(vertices, first, self.read(), duration_s)
        return Measurement(0, int(self.now_s * SECOND), int(duration_s * SECOND), found)

    def step(self) -> Decision:
        """Measures a window, and changes the job as decided."""
        measurement = self.measure()
        decision = decide(self.graph, measurement, self.options, self.scale_ups)
        for name, after in decision.parallelism.items():
            if after > self.parallelism:
                capacity = decision.capacity.get(name, 0.0)
                self.scale_ups[name] = ScaleUp(measurement.time, after, capacity, 0.0)
            self.changes.append((self.now_s, after))
        if decision.parallelism:
            lag = self.lag
            self.graph = with_parallelism(self.graph, decision.parallelism)
            self.now_s += RESTART_S
            self.subtask = self._start(lag + self.rate * RESTART_S)
            self.run(self.options.stabilization_interval / SECOND)
        return decision


def options_of(window_s: float, phase_s: float = 0.0, **others: object) -> AutoscalerOptions:
    """Returns options with short times. `phase_s`: when the first window begins."""
    options = AutoscalerOptions(
        is_enabled=True,
        metrics_window=int(window_s * SECOND),
        stabilization_interval=int(phase_s * SECOND),
        scale_up_grace_period=int(120 * SECOND),
        catch_up_duration=int(300 * SECOND),
    )
    changed: Mapping[str, object] = others
    return replace(options, **changed)


WINDOWS = st.floats(2, 60)
BATCH_S = st.floats(0.5, 60)
"""How long a full batch takes."""
PHASES = st.floats(0, 60)
CAPACITIES = st.floats(20, 5_000)


@settings(max_examples=25, deadline=None)
@given(
    window_s=WINDOWS,
    batch_s=BATCH_S,
    phase_s=PHASES,
    capacity=CAPACITIES,
    load=st.floats(1.3, 12),
    backlog_s=st.floats(0, 300),
)
def test_source_that_is_too_slow_is_scaled_until_it_keeps_up_and_then_left_alone(
    window_s: float, batch_s: float, phase_s: float, capacity: float, load: float, backlog_s: float
) -> None:
    batch = max(1, int(batch_s * capacity))
    rate = load * capacity
    job = BatchJob(rate, capacity, batch, options_of(window_s, phase_s), backlog_s * capacity)
    job.run(phase_s)
    for _ in range(4):
        job.step()
        if job.parallelism * capacity >= rate:
            break
    assert job.parallelism * capacity >= rate, job.changes
    while job.now_s < 1_200:
        job.step()
    begin, ups = job.now_s, [after for _, after in job.changes]
    while job.now_s < begin + 400:
        job.step()
    assert not [at for at, _ in job.changes if at >= begin], job.changes
    assert job.parallelism * capacity >= rate
    assert job.parallelism <= load / 0.4 + 1, job.changes
    # Up for load and backlog, and down after it.
    assert ups == [
        *sorted(ups[: ups.index(max(ups)) + 1]),
        *sorted(ups[ups.index(max(ups)) + 1 :], reverse=True),
    ]
    assert len(ups) <= 6, job.changes


@settings(max_examples=25, deadline=None)
@given(
    window_s=WINDOWS,
    batch_s=BATCH_S,
    phase_s=PHASES,
    capacity=CAPACITIES,
    load=st.floats(0.02, 0.6),
)
def test_source_that_keeps_up_is_not_scaled(
    window_s: float, batch_s: float, phase_s: float, capacity: float, load: float
) -> None:
    job = BatchJob(load * capacity, capacity, max(1, int(batch_s * capacity)), options_of(window_s, phase_s))
    job.run(phase_s)
    for _ in range(20):
        assert not job.step().parallelism, job.changes


@settings(max_examples=25, deadline=None)
@given(window_s=WINDOWS, batch_s=BATCH_S, phase_s=PHASES, capacity=CAPACITIES)
def test_backlog_alone_scales_the_source_and_its_end_scales_it_back(
    window_s: float, batch_s: float, phase_s: float, capacity: float
) -> None:
    options = options_of(window_s, phase_s, catch_up_duration=10 * SECOND, max_parallelism=4)
    job = BatchJob(0.0, capacity, max(1, int(batch_s * capacity)), options, 400 * capacity)
    job.run(phase_s)
    for _ in range(3):
        job.step()
    assert job.changes[0][1] == 4, job.changes
    while job.parallelism > 1 and job.now_s < 1_000:
        job.step()
    assert job.lag <= 4, "a part of a record for each subtask"
    assert [after for _, after in job.changes] in ([4, 2, 1], [4, 1]), job.changes


@pytest.mark.parametrize("window_s", [5, 30])
def test_slow_function_in_spark_is_scaled_in_the_first_window(window_s: float) -> None:
    """25,000 records in batches of 12 s, and a backlog of 200,000."""
    options = options_of(window_s, max_parallelism=4, catch_up_duration=20 * SECOND)
    job = BatchJob(0.0, 2_000, 25_000, options, 200_000)
    assert job.step().parallelism == {"source": 4}
