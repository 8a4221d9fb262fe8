"""The heap of a TaskExecutor's JVM follows the resources that the TaskExecutor offers, and is never too small for
Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.pipelines.runtime.task_runtime.task_runtime import DEFAULT_HEAP_MIB
from tailrace.services.configuration import Setting, load_configuration
from tailrace.services.processes.taskexecutor import jvm_heap_mib


@pytest.mark.parametrize(
    ("size", "heap_mib"),
    [("auto", DEFAULT_HEAP_MIB), ("64m", DEFAULT_HEAP_MIB), ("2g", 2048), ("900m", 900)],
)
def test_jvm_heap_is_as_large_as_offered(size: str, heap_mib: int, tmp_path: Path) -> None:
    home = Setting("home", str(tmp_path), "--home")
    configuration = load_configuration([home], [f"taskmanager.memory.task.heap.size={size}"], {})
    assert jvm_heap_mib(configuration) == heap_mib
