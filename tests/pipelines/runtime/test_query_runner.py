"""A caller that waits for the stop of a query is notified when it has stopped, and not before."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.runtime.spark.query_runner import QueryRun, QueryRunner


def test_waiting_action_runs_after_stop_of_query(tmp_path: Path) -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    queries = QueryRunner(KafkaConnection("localhost:1"), tmp_path, posted.put)
    stopped, order = threading.Event(), list[str]()

    def stop() -> None:
        stopped.wait()
        order.append("stopped")

    run = QueryRun(1)
    run.stopping = threading.Thread(target=stop)
    run.stopping.start()
    queries.on_stopped(run, lambda: order.append("reported"))
    assert (order, posted.empty()) == ([], True)
    stopped.set()
    posted.get(timeout=90)()
    assert order == ["stopped", "reported"]


def test_action_runs_at_once_without_stopping_query(tmp_path: Path) -> None:
    order: list[str] = []
    queries = QueryRunner(KafkaConnection("localhost:1"), tmp_path, lambda _: order.append("posted"))
    for run in (None, QueryRun(1)):
        queries.on_stopped(run, lambda: order.append("reported"))
    assert order == ["reported", "reported"]
