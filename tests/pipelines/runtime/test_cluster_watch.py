"""What a TaskExecutor does about its executors on a Spark cluster: a check, warnings, and another session if needed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace
from polling import wait_until

from tailrace.infra.ports import HOST, ReservedPort
from tailrace.pipelines.runtime.spark.cluster import SparkClusterAddress, SparkClusterError
from tailrace.pipelines.runtime.task_runtime import cluster_watch
from tailrace.pipelines.runtime.task_runtime.cluster_watch import ClusterWatch
from tailrace.pipelines.runtime.task_runtime.spark_process import SparkProcess

YARN = SparkClusterAddress("yarn", "127.0.0.1", 8, 2)


class Executors:
    """In the place of a SparkProcess: what it says of its executors, and what was asked of it."""

    def __init__(self, count: int | None, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.looks = 0
        self.checks = 0
        self.restarts = 0
        self.refused_restarts = 0

    def executors(self) -> int | None:
        self.looks += 1
        return self.count

    def run_on_executors(self, executors: int) -> None:
        assert executors == self.count
        self.checks += 1
        if self.error is not None:
            raise self.error

    def restart(self) -> str:
        if self.refused_restarts:
            self.refused_restarts -= 1
            raise OSError("the cluster refuses it")
        self.restarts += 1
        self.count = 1
        return f"session {self.restarts}"


@contextmanager
def watched(executors: Executors, cluster: SparkClusterAddress = YARN) -> Iterator[list[Any]]:
    """Watches, and yields what is told: `suspended`, sessions, and errors."""
    told: list[Any] = []
    watch = ClusterWatch(
        cast(SparkProcess, executors),
        cluster,
        suspended=lambda: told.append("suspended"),
        started=told.append,
        failed=told.append,
    )
    watch.start()
    try:
        yield told
    finally:
        watch.close()
        wait_until(lambda: not any(each.name == "spark cluster" for each in threading.enumerate()))


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_INTERVAL_S", "PROBE_INTERVAL_S", "RETRY_S"):
        monkeypatch.setattr(cluster_watch, name, 0.005)
    monkeypatch.setattr(cluster_watch, "FORGOTTEN_S", 0.05)


def test_executors_are_checked_once_and_left_alone() -> None:
    executors = Executors(2)
    with watched(executors) as told:
        wait_until(lambda: executors.looks > 5)
    assert (executors.checks, executors.restarts, told) == (1, 0, [])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("java.io.InvalidClassException: Task; local class incompatible: ...", "another release of Spark"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "another Python than"),
        ('java.io.IOException: Cannot run program "/x/python"', "set spark.python-executable"),
        ("ModuleNotFoundError: No module named 'msgspec'\n", "has no module msgspec"),
    ],
)
def test_executors_that_cannot_run_queries_are_failure_in_one_line(text: str, hint: str) -> None:
    with watched(Executors(1, RuntimeError(f"Job aborted\n  {text}"))) as told:
        wait_until(lambda: told)
    (error,) = told
    assert isinstance(error, SparkClusterError)
    assert hint in str(error)
    assert "\n" not in str(error)


def test_executor_lost_during_check_is_checked_again() -> None:
    executors = Executors(1, RuntimeError("ExecutorLostFailure"))
    with watched(executors) as told:
        wait_until(lambda: executors.checks > 1)
        executors.error = None
    assert told == []


def test_application_that_ends_before_any_executor_ran_is_failure() -> None:
    with watched(Executors(None)) as told:
        wait_until(lambda: told)
    assert "before an executor ran" in str(told[0])


def lose_application(executors: Executors) -> None:
    executors.count = None


def lose_executors(executors: Executors) -> None:
    executors.count = 0


@pytest.mark.parametrize("lose", [lose_application, lose_executors])
def test_session_is_replaced_when_cluster_gives_no_executors(lose: Callable[[Executors], None]) -> None:
    executors = Executors(1)
    executors.refused_restarts = 2
    with watched(executors) as told:
        wait_until(lambda: executors.checks)
        lose(executors)
        wait_until(lambda: len(told) > 1)
    assert told == ["suspended", "session 1"]


def test_session_without_executors_waits_for_first_one() -> None:
    executors = Executors(0)
    with watched(executors) as told:
        start = time.monotonic()
        wait_until(lambda: executors.looks > 5 and time.monotonic() > start + 2 * cluster_watch.FORGOTTEN_S)
    assert (executors.restarts, told) == (0, [])


def test_session_is_replaced_when_master_is_back(caplog: pytest.LogCaptureFixture) -> None:
    port = ReservedPort()
    executors = Executors(1)
    with watched(executors, replace(YARN, master=f"spark://127.0.0.1:{port.number}")) as told:
        wait_until(lambda: executors.checks)
        executors.count = 0
        wait_until(lambda: "no Master answers" in caplog.text)
        assert told == []
        with socket.create_server((HOST, port.number)):
            wait_until(lambda: len(told) > 1)
    port.release()
    assert told == ["suspended", "session 1"]
