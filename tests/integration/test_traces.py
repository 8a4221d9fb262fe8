"""The traces of a real cluster: the jobmanager exports what `tailrace traces export` makes of the log afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from polling import wait_until
from trace_collector import Collector, run_collector

from .test_cluster import Cluster

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROGRAM = """
from tailrace import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda number: number + 1).print()
env.execute("traced")
"""


def trace_of(collector: Collector) -> dict[str, Any]:
    """Returns the spans of the client's trace by name; of several, the last."""
    return {span.name: span for span in collector.spans if span.trace_id.hex() == TRACE}


def ids(collector: Collector) -> set[tuple[str, str]]:
    return {(span, parent) for trace, span, parent in collector.ids() if trace == TRACE}


def test_trace_of_client_has_its_job_live_and_exported(
    four_slots: Cluster, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "traced.py"
    program.write_text(PROGRAM)
    with monkeypatch.context() as patch:
        patch.setitem(four_slots.environment, "TRACEPARENT", f"00-{TRACE}-{SPAN}-01")
        four_slots.ok("run", str(program))
    wait_until(lambda: "ChannelsDeleted" in trace_of(collector), "the end of the job in its trace")
    live = trace_of(collector)
    root = live["SubmitJob"]
    assert root.parent_span_id.hex() == SPAN
    assert root.start_time_unix_nano < root.end_time_unix_nano
    begun, ran = live["JobInitialization"], live["JobRunning"]
    assert root.start_time_unix_nano < begun.start_time_unix_nano < begun.end_time_unix_nano
    assert begun.end_time_unix_nano <= ran.start_time_unix_nano < ran.end_time_unix_nano
    assert live["JobFinished"].status.code == 0
    with run_collector() as again:
        four_slots.ok("traces", "export", "--otlp", again.url)
        assert ids(again) >= ids(collector)
        assert {span for span, _ in ids(again)} == {span for span, _ in ids(collector)}
