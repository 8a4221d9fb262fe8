"""The metrics of a TaskExecutor, computed from its state and from what its runtime has measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tailrace.pipelines.runtime.common.latencies import LatencyHistogram
from tailrace.pipelines.runtime.common.protocol import TaskActivity, TaskMetrics
from tailrace.pipelines.runtime.common.task_figures import (
    RuntimeFigures,
    SourceFigures,
    TaskFigures,
    VertexName,
)
from tailrace.services.metrics import table, task_executor
from tailrace.services.metrics.exposition import create_registry, exposition
from tailrace.services.metrics.samples import Sample
from tailrace.services.metrics.task_executor import ProcessUsage
from tailrace.services.task_executor.state import TaskExecutorState

from ..simulated_cluster.cluster import new_replica
from ..snapshots.simulated_logs import LONG, history

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
COUNTS = st.integers(0, 1 << 50)
SECONDS = st.floats(0, 1e9)
NAMES = st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False), max_size=3)
TASKS = st.builds(
    TaskFigures,
    st.builds(
        VertexName, st.sampled_from("ab"), st.text(max_size=3), st.sampled_from("vw"), st.text(max_size=3)
    ),
    st.integers(0, 3),
    st.integers(0, 9),
    st.none() | st.integers(1, 3),
    st.builds(
        TaskMetrics,
        COUNTS,
        COUNTS,
        COUNTS,
        accumulators=NAMES,
        metrics=NAMES,
        bytes_in=COUNTS,
        bytes_out=COUNTS,
        database=st.dictionaries(st.sampled_from(sorted(table.DATABASE)), COUNTS),
    ),
    st.builds(TaskActivity, SECONDS, SECONDS, SECONDS, st.none() | st.integers(0, 1 << 45)),
)
USAGE = {1: ProcessUsage(1.5, 10), 2: ProcessUsage(2.5, 20)}


def samples_of(state: object, figures: RuntimeFigures) -> list[Sample]:
    groups = task_executor.sample_groups(state, figures, USAGE, "te-1")
    return [sample for group in groups for sample in group]


@given(st.lists(TASKS, max_size=4))
def test_sums_agree_with_figures_of_tasks(tasks: list[TaskFigures]) -> None:
    samples = samples_of(None, RuntimeFigures(tasks))

    def total(metric: table.Metric) -> float:
        return sum(sample.value for sample in samples if sample.metric is metric)

    assert total(table.WORKER_TASKS) == len(tasks)
    assert total(table.RECORDS_IN) == sum(task.metrics.records_in for task in tasks)
    assert total(table.RECORDS_OUT) == sum(task.metrics.records_out for task in tasks)
    assert total(table.BYTES_IN) == sum(task.metrics.bytes_in for task in tasks)
    assert total(table.BYTES_OUT) == sum(task.metrics.bytes_out for task in tasks)
    processes = {task.process_id for task in tasks}
    assert total(table.TASK_MEMORY) == sum(
        used.resident_bytes for process, used in USAGE.items() if process in processes
    )
    assert sum(total(metric) for metric in table.DATABASE.values()) == sum(
        sum(task.metrics.database.values()) for task in tasks
    )
    assert all(len(sample.labels) == len(sample.metric.labels) for sample in samples)
    of_users = [sample for sample in samples if sample.metric in (table.USER_METRIC, table.ACCUMULATOR)]
    assert samples[len(samples) - len(of_users) :] == of_users


def test_jvm_and_sources_have_series() -> None:
    vertex = VertexName("j", "job", "v", "Source")
    samples = samples_of(None, RuntimeFigures((), [SourceFigures(vertex, 12, 4)], 2, 640 << 20))
    shown = {(sample.metric, sample.labels): sample.value for sample in samples}
    assert shown[table.PENDING_RECORDS, ("te-1", "j", "job", "v", "Source")] == 12
    assert shown[table.ASSIGNED_PARTITIONS, ("te-1", "j", "job", "v", "Source")] == 4
    assert shown[table.JVM_CPU, ("te-1",)] == 2.5
    assert shown[table.JVM_MEMORY, ("te-1",)] == 20
    assert shown[table.JVM_HEAP_MAX, ("te-1",)] == 640 << 20


@given(st.lists(st.integers(0, 1 << 20), min_size=16, max_size=16), st.integers(0, 1 << 40))
def test_histogram_of_latencies_is_read_by_parser_of_prometheus(counts: list[int], sum_ms: int) -> None:
    histogram = LatencyHistogram("source", None, "sink", tuple(counts), sum_ms, {"p99": 1.0})
    task = TaskFigures(
        VertexName("j", "job", "v", "map"), 2, 0, None, TaskMetrics(0, 0, 0, latencies=(histogram,))
    )
    samples = samples_of(None, RuntimeFigures((task,)))
    registry = create_registry(lambda: samples)
    for accept, read in (("", read_text), (OPENMETRICS, read_openmetrics)):
        families = {family.name: family for family in read(exposition(registry, accept)[1].decode())}
        shown = families[table.LATENCY.family].samples
        assert {sample.labels["operator_subtask_index"] for sample in shown} == {"2"}
        values = {(sample.name, sample.labels.get("le")): sample.value for sample in shown}
        assert values[f"{table.LATENCY.name}_count", None] == sum(counts)
        assert values[f"{table.LATENCY.name}_sum", None] == pytest.approx(sum_ms / 1000)
        assert values[f"{table.LATENCY.name}_bucket", "+Inf"] == sum(counts)
        assert values[f"{table.LATENCY.name}_bucket", "0.001"] == counts[0]
        (sample,) = [each for each in samples if each.metric is table.LATENCY]
        assert sample.series == len(values)


def test_slots_agree_with_state_at_every_prefix() -> None:
    replica, seen = new_replica(on_illegal=lambda *_: None), set()
    for record in history(LONG):
        replica.apply(record)
        for state in replica.states.values():
            if isinstance(state, TaskExecutorState):
                values = {sample.metric: sample.value for sample in samples_of(state, RuntimeFigures())}
                held = sum(slot.allocation_id is not None for slot in state.slots.slots.values())
                assert values[table.WORKER_SLOTS_TOTAL] == len(state.slots.slots)
                assert values[table.WORKER_SLOTS_AVAILABLE] == len(state.slots.slots) - held
                assert values[table.WORKER_REGISTERED] == (state.instance_id is not None)
                seen.add((values[table.WORKER_REGISTERED], held > 0))
    assert len(seen) > 2
