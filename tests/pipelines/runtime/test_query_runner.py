"""Who waits for a query to have stopped hears of it then, and not before."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.pipelines.runtime.spark.query_runner import QueryRun, QueryRunner

pytestmark = pytest.mark.timeout(60)


def test_what_waits_for_a_query_that_is_being_stopped_comes_after_it(tmp_path: Path) -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    queries = QueryRunner("localhost:1", tmp_path, posted.put)
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
    posted.get(timeout=30)()
    assert order == ["stopped", "reported"]


def test_where_no_query_is_being_stopped_nothing_waits(tmp_path: Path) -> None:
    order: list[str] = []
    queries = QueryRunner("localhost:1", tmp_path, lambda _: order.append("posted"))
    for run in (None, QueryRun(1)):
        queries.on_stopped(run, lambda: order.append("reported"))
    assert order == ["reported", "reported"]
