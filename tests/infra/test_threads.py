"""An unhandled exception of a thread goes to the handler of the process. One module starts all threads."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from polling import TIMEOUT_S

import tailrace
from tailrace.infra import threads

PACKAGE = Path(tailrace.__file__).parent
SHIPPED = ("infra", "pipelines", "schemas", "services")
BARE = {"Thread", "Timer", "ThreadPoolExecutor", "start_new_thread"}
ASKED = {
    "infra/threads.py",
    # Whoever submits a call there asks for its outcome.
    "infra/jars.py",
    "infra/kafka_cluster.py",
    "infra/zookeeper_ensemble.py",
    "pipelines/checkpoint/metadata.py",
    "pipelines/runtime/stream_task/state/state_writer.py",
    "services/cli/demo/demo.py",
    "services/cli/local/servers.py",
}
PLANTED = ZeroDivisionError("planted")


def fails() -> None:
    raise PLANTED


def by_thread() -> None:
    threads.Thread(target=fails, name="planted").start()


def by_timer() -> None:
    threads.Timer(0, fails, name="planted").start()


def by_pool() -> None:
    threads.Pool(1, "planted").submit(fails)


class Subclass(threads.Thread):
    """A Thread subclass with state of its own."""

    def __init__(self) -> None:
        super().__init__(target=fails, name="planted")


WAYS: list[Callable[[], object]] = [by_thread, by_timer, by_pool, lambda: Subclass().start()]


@pytest.mark.parametrize("start", WAYS)
def test_unhandled_exception_of_thread_calls_handler(start: Callable[[], object]) -> None:
    reports: list[tuple[str, BaseException]] = []
    failed = threading.Event()

    def handler(name: str, error: BaseException) -> None:
        reports.append((name, error))
        failed.set()

    with threads.use_handler(handler):
        start()
        assert failed.wait(TIMEOUT_S)
    assert reports == [("planted", PLANTED)]


def test_process_without_handler_exits_with_one_line() -> None:
    program = """
import threading
from tailrace.infra import threads
threads.handle(threads.end_process)
threads.Thread(target=lambda: 1 / 0, name="planted").start()
threading.Event().wait()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == threads.EXIT_CODE
    (line,) = ended.stderr.splitlines()
    assert "the thread 'planted'" in line
    assert "ZeroDivisionError: division by zero (<string>:5)" in line


def test_failing_handler_ends_process_also_without_stderr() -> None:
    program = """
import os, sys, threading
from tailrace.infra import threads
sys.stderr = open("/dev/full", "w")
def fails(name, error): raise OSError("no space left on device")
threads.handle(fails)
threads.Thread(target=lambda: 1 / 0, name="planted").start()
threading.Event().wait()
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=TIMEOUT_S, check=False)
    assert ended.returncode == threads.EXIT_CODE


def bare_threads() -> Iterator[str]:
    for folder in SHIPPED:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            name = path.relative_to(PACKAGE).as_posix()
            if name in ASKED:
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                used = [node.func] if isinstance(node, ast.Call) else getattr(node, "bases", [])
                for item in used:
                    yield from _bare(item, f"{name}:{item.lineno}")


def _bare(node: ast.expr, where: str) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr in BARE:
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner != "threads":
            yield where
    elif isinstance(node, ast.Name) and node.id in BARE:
        yield where


def test_one_module_starts_all_threads() -> None:
    assert list(bare_threads()) == [], "start them by infra/threads.py: nobody would see them end"


@pytest.mark.parametrize(
    "code",
    [
        "threading.Thread(target=f)",
        "Thread(target=f)",
        "class Mine(threading.Thread): pass",
        "ThreadPoolExecutor(1)",
        "threading.Timer(1, f)",
    ],
)
def test_check_finds_thread_that_other_module_starts(code: str) -> None:
    (statement,) = ast.parse(code).body
    node = statement.value if isinstance(statement, ast.Expr) else statement
    used = [node.func] if isinstance(node, ast.Call) else node.bases  # type: ignore[attr-defined]
    assert list(_bare(used[0], "here")) == ["here"]
    assert list(_bare(ast.parse("threads.Thread").body[0].value, "here")) == []  # type: ignore[attr-defined]
