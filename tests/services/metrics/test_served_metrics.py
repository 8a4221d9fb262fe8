"""A TaskExecutor with many tasks serves no more time series than the option allows, and says how many it leaves out."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tailrace.pipelines.runtime.common.task_figures import RuntimeFigures, TaskFigures, VertexName
from tailrace.services.configuration import Configuration
from tailrace.services.diagnostics.server import DiagnosticsServer
from tailrace.services.metrics import table
from tailrace.services.metrics.samples import Sample
from tailrace.services.processes import metrics

TASKS = [TaskFigures(VertexName("j", "job", "v", "map"), index, 0) for index in range(100)]
PER_TASK = 10
OWN = 4
END = 50


class FixedLog:
    """A log whose end is known."""

    def probe_end(self, timeout_s: float) -> Future[int]:
        end: Future[int] = Future()
        end.set_result(END)
        return end


@pytest.mark.parametrize("most", [OWN, 100, 100_000])
def test_time_series_of_process_are_bounded_by_option(most: int) -> None:
    values = {"metrics.reporter.prom.port": "0", "metrics.reporter.prom.max-series": str(most)}
    host: Any = SimpleNamespace(position=END - 3, state=lambda _: None)
    configuration = Configuration(values)

    def collect() -> Iterable[Sample]:
        figures = RuntimeFigures(TASKS)
        return metrics.collect_task_executor(
            configuration, host, "task_executor/te-1", "te-1", lambda: figures, FixedLog()
        )

    served = metrics.serve_prometheus(configuration, collect, host)
    assert served is not None
    with served:
        assert isinstance(served, DiagnosticsServer)
        with urllib.request.urlopen(f"http://{served.address}/metrics", timeout=90) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = [sample for family in families for sample in family.samples]
    of_tasks = [sample for sample in samples if "subtask_index" in sample.labels]
    (omitted,) = [sample.value for sample in samples if sample.name == table.WORKER_OMITTED.name]
    (lag,) = [sample.value for sample in samples if sample.name == table.WORKER_LOG_LAG.name]
    kept = min(len(TASKS), (most - OWN) // PER_TASK)
    assert len(of_tasks) == kept * PER_TASK
    assert omitted == (len(TASKS) - kept) * PER_TASK
    assert {int(sample.labels["subtask_index"]) for sample in of_tasks} == set(range(kept))
    assert lag == 2


def test_process_without_port_serves_no_metrics() -> None:
    assert metrics.serve_prometheus(Configuration({}), list, SimpleNamespace()) is None
