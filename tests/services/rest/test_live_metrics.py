"""From the samples of TaskExecutors to Flink's metrics: names, units, sums, aggregations, back pressure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.latencies import LatencyHistogram
from tailrace.pipelines.runtime.common.protocol import TaskActivity, TaskMetrics
from tailrace.pipelines.runtime.common.task_figures import (
    RuntimeFigures,
    SourceFigures,
    TaskFigures,
    TaskReport,
    VertexName,
)
from tailrace.pipelines.runtime.task_runtime.report_window import WINDOW_S, ReportWindow
from tailrace.services.diagnostics import metrics as diagnostics_metrics
from tailrace.services.diagnostics.client import DiagnosticsClient, ServerAddress
from tailrace.services.diagnostics.metrics import SAMPLES, serve_samples
from tailrace.services.diagnostics.server import DiagnosticsServer
from tailrace.services.history import HistoryProjection
from tailrace.services.metrics import task_executor
from tailrace.services.metrics.samples import Sample
from tailrace.services.rest.api.subtasks import SubtaskLoad, read_load
from tailrace.services.rest.errors import BadRequest
from tailrace.services.rest.flink.job_metrics import metrics as job_metrics
from tailrace.services.rest.flink.metrics import AGGREGATIONS, aggregate, select
from tailrace.services.rest.flink.vertex_metrics import BackPressureLevel
from tailrace.services.rest.live_metrics import LiveMetrics, TaskKey
from tailrace.services.rest.metric_fetcher import MetricFetcher
from tailrace.services.rest.moment import Moment

from ..snapshots.simulated_logs import LONG, history

VERTEX = VertexName("j", "job", "v", "map")
NUMBERS = st.lists(st.floats(0, 1e12), min_size=1, max_size=5)


def samples_of(*tasks: TaskFigures, pending: int | None = None) -> list[Sample]:
    figures = RuntimeFigures(tasks, [] if pending is None else [SourceFigures(VERTEX, pending, 4)])
    return [sample for group in task_executor.sample_groups(None, figures, {}, "te-1") for sample in group]


def live(*tasks: TaskFigures, pending: int | None = None) -> Mapping[TaskKey, Mapping[str, float]]:
    encoded = diagnostics_metrics.encode(samples_of(*tasks, pending=pending))
    return LiveMetrics.from_samples("te-1", diagnostics_metrics.decode(encoded)).tasks


def test_values_have_flinks_names_and_units() -> None:
    now = TaskMetrics(100, 50, 10, bytes_in=1_000, bytes_out=500, metrics={"map.words": 3.5})
    before = TaskReport(TaskMetrics(60, 30, 6, bytes_in=600, bytes_out=300), TaskActivity(2.0, 7.0, 1.0))
    figures = TaskFigures(VERTEX, 1, 0, None, now, TaskActivity(6.0, 8.0, 6.0, 1_700_000_000_123), before)
    (values,) = live(figures).values()
    assert values["numRecordsIn"] == 100
    assert values["numRecordsInPerSecond"] == 4
    assert values["numBytesOutPerSecond"] == 20
    assert values["busyTimeMsPerSecond"] == 400
    assert values["idleTimeMsPerSecond"] == 100
    assert values["backPressuredTimeMsPerSecond"] == 500
    assert values["accumulateBusyTimeMs"] == 6_000
    assert round(values["currentInputWatermark"]) == 1_700_000_000_123
    assert values["map.words"] == 3.5


def test_latencies_are_metrics_of_job_by_flinks_names() -> None:
    source, operator = "5" * 32, "6" * 32
    recent = {"min": 1.0, "p99": 12.0}

    def latencies(source_id: str, source_subtask: int | None, subtask: int) -> LiveMetrics:
        histogram = LatencyHistogram(source_id, source_subtask, operator, (2,) + (0,) * 15, 3, recent)
        task = TaskFigures(VERTEX, subtask, 0, None, TaskMetrics(0, 0, 0, latencies=(histogram,)))
        encoded = diagnostics_metrics.encode(samples_of(task))
        return LiveMetrics.from_samples(f"te-{subtask}", diagnostics_metrics.decode(encoded))

    parts = [latencies("", None, 0), latencies(source, None, 1), latencies(source, 3, 2)]
    merged = LiveMetrics.merge(parts)
    own = [f"operator_id.{operator}.operator_subtask_index.{i}.latency" for i in range(3)]
    assert merged.jobs["j"] == {
        f"latency.{scope}_{name}": value
        for scope in (
            own[0],
            f"source_id.{source}.{own[1]}",
            f"source_id.{source}.source_subtask_index.3.{own[2]}",
        )
        for name, value in recent.items()
    }
    assert not any("latency" in name for values in merged.workers.values() for name in values)


def test_load_of_subtask_is_in_shares_and_without_unknown_values() -> None:
    before = TaskReport(TaskMetrics(60, 30, 6), TaskActivity(2.0, 7.0, 1.0))
    activity = TaskActivity(6.0, 8.0, 6.0, 1_700_000_000_123)
    (values,) = live(TaskFigures(VERTEX, 1, 0, None, TaskMetrics(100, 50, 10), activity, before)).values()
    assert read_load(values) == SubtaskLoad(4.0, 2.0, 0.4, 0.5, 0.1, None, 1_700_000_000_123)
    assert read_load({**values, "pendingRecords": 7.0, "currentInputWatermark": -(2.0**63)}) == SubtaskLoad(
        4.0, 2.0, 0.4, 0.5, 0.1, 7.0, None
    )
    assert read_load({}) is None


def test_lag_of_vertex_belongs_to_its_first_subtask_here() -> None:
    found = live(TaskFigures(VERTEX, 3, 0), TaskFigures(VERTEX, 2, 0), pending=12)
    assert {
        key.subtask_index: (values.get("pendingRecords"), values.get("assignedPartitions"))
        for key, values in found.items()
    } == {2: (12, 4), 3: (None, None)}


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 1_000)), max_size=30))
def test_rate_is_that_of_the_last_seconds(steps: list[tuple[float, int]]) -> None:
    """Whatever the reports: the busy, idle and back-pressured parts of a second have the sum 1, a rate is between the
    lowest and the highest one of its window, and the window is as long as it must be."""
    window, time, count = ReportWindow(), 0.0, 0
    reports = [(0.0, 0)]
    for passed, more in steps:
        time, count = time + passed, count + more
        reports.append((time, count))
        window.add(TaskReport(TaskMetrics(count, 0, 0), TaskActivity(idle_s=time)))
    begin = window.earliest.activity.measured_s
    assert time - begin >= min(time, WINDOW_S) - 1e-6
    assert not any(begin < at <= time - WINDOW_S for at, _ in reports[1:-1])
    figures = TaskFigures(
        VERTEX, 0, 0, None, TaskMetrics(count, 0, 0), TaskActivity(idle_s=time), window.earliest
    )
    (values,) = live(figures).values()
    if time > begin:
        rate = values["numRecordsInPerSecond"]
        assert rate == pytest.approx((count - window.earliest.metrics.records_in) / (time - begin))
        assert values["idleTimeMsPerSecond"] == pytest.approx(1_000)
        assert values["busyTimeMsPerSecond"] == values["backPressuredTimeMsPerSecond"] == 0


@given(NUMBERS)
def test_aggregations_are_those_of_the_values(numbers: list[float]) -> None:
    parts = [{"x": number} for number in numbers]
    (found,) = aggregate(parts, {"get": "x,y"})
    assert (found.min, found.max, found.sum) == (min(numbers), max(numbers), sum(numbers))
    assert found.avg == pytest.approx(statistics.fmean(numbers))
    assert 0 <= float(found.skew) <= 100  # type: ignore[arg-type]
    assert len({*numbers}) > 1 or float(found.skew) == pytest.approx(0, abs=1e-6)  # type: ignore[arg-type]
    for kind in AGGREGATIONS:
        (alone,) = aggregate(parts, {"get": "x", "agg": kind})
        assert getattr(alone, kind) == getattr(found, kind)
        assert sum(isinstance(getattr(alone, each), float) for each in AGGREGATIONS) == 1
    assert [each.id for each in aggregate(parts, {})] == ["x"]


def test_skew_is_mean_deviation_in_percent_of_mean() -> None:
    (found,) = aggregate([{"x": 1.0}, {"x": 3.0}, {}, {"x": "text"}], {"get": "x", "agg": "skew,avg"})
    assert (found.avg, found.skew) == (2.0, 50.0)


def test_unknown_aggregation_is_refused_and_unknown_name_is_left_out() -> None:
    with pytest.raises(BadRequest, match="agg"):
        aggregate([{"x": 1.0}], {"agg": "median"})
    assert select({"x": 1.5, "y": 2.0}, {"get": "y,z,,y"})[0].value == "2"
    assert len(select({"x": 1.5, "y": 2.0}, {"get": "y,z,,y"})) == 1
    assert [each.id for each in select({"x": 1.5, "y": 2.0}, {})] == ["x", "y"]


@pytest.mark.parametrize(
    ("ratio", "level"), [(0, "ok"), (0.1, "ok"), (0.11, "low"), (0.5, "low"), (0.51, "high")]
)
def test_level_of_back_pressure_is_flinks(ratio: float, level: str) -> None:
    assert BackPressureLevel.of(ratio) == level


def test_samples_of_other_releases_are_left_out() -> None:
    known = samples_of(TaskFigures(VERTEX, 0, 0))
    text = diagnostics_metrics.encode(known).replace(b"numRecordsIn", b"numOfTomorrow")
    assert len(diagnostics_metrics.decode(text)) == len(known) - 1
    with pytest.raises(ValueError):
        diagnostics_metrics.decode(b'{"not": "samples"}')


def test_fetcher_asks_once_in_its_interval_and_leaves_out_who_is_silent() -> None:
    time, asked = [0.0], []

    def collect() -> list[Sample]:
        asked.append(time[0])
        return samples_of(TaskFigures(VERTEX, 0, 0))

    with (
        DiagnosticsServer({SAMPLES: serve_samples(collect)}, host="127.0.0.1") as server,
        DiagnosticsServer({}, host="127.0.0.1") as other,
        MetricFetcher(DiagnosticsClient(), 2.0, lambda: time[0]) as fetcher,
    ):
        known = {"te-1": server.address, "te-2": other.address, "te-3": "127.0.0.1:1", "te-4": ""}
        addresses = {name: ServerAddress(address, "") for name, address in known.items()}
        for now in (0.0, 1.0, 1.9, 2.0, 3.0):
            time[0] = now
            found = fetcher.fetch(addresses)
            assert list(found.workers) == ["te-1"]
            assert list(found.tasks) == [TaskKey("te-1", "j", "v", 0)]
        assert asked == [0.0, 2.0]


def test_metrics_of_job_have_its_latencies() -> None:
    fold = HistoryProjection()
    job_id = None
    for record in history(LONG):
        fold.apply(record)
        job_id = next((f"j{n}" for n in range(9) if fold.executions.statuses(f"j{n}")), None)
        if job_id is not None:
            break
    assert job_id is not None
    name = "latency.operator_id.a.operator_subtask_index.0.latency_p99"
    moment = Moment(fold, 0, live=LiveMetrics(jobs={job_id: {name: 12.0}, "other": {name: 13.0}}))
    (found,) = job_metrics(moment, {"jobid": job_id, "get": name})
    assert (found.id, found.value) == (name, "12")
    assert name in {each.id for each in job_metrics(moment, {"jobid": job_id})}
