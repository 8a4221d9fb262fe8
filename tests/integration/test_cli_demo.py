"""`tailrace demo` as `make demo` runs it, only shorter: the counts are exact, the history is printed, and nothing is
left."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.timeout(300)

DEMO = (sys.executable, "-m", "tailrace.services.cli", "demo")
TOLD = (
    r"task_executor/taskexecutor-[12] -> resource_manager +RegisterTaskExecutor",
    r"resource_manager -> task_executor/taskexecutor-[12] +TaskExecutorRegistrationSuccess +<- \d+",
    r"task_executor/taskexecutor-[12] -> resource_manager +SendSlotReport +<- \d+",
    r"client/demo-\w+ -> dispatcher +SubmitJob",
    r"job_master/\S+ -> resource_manager +RequestSlot +<- \d+",
    r"resource_manager -> task_executor/taskexecutor-[12] +RequestSlot +<- \d+",
    r"task_executor/taskexecutor-[12] -> job_master/\S+ +OfferSlots +<- \d+",
    r"job_master/\S+ -> task_executor/taskexecutor-[12] +SubmitTask +<- \d+ +task=\"Source",
    r"task_executor/taskexecutor-[12] -> job_master/\S+ +UpdateTaskExecutionState .*execution_state=RUNNING",
    r"dispatcher -> client/demo-\w+ +JobFinished .*status=FINISHED",
    r"client/stop-\w+ -> dispatcher +ShutDownCluster",
    r"resource_manager -> everyone +ClusterTerminated +<- \d+",
)


def test_demo_counts_exactly_prints_history_and_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = subprocess.run(
        [*DEMO, "--home", str(home), "--windows", "2", "--window-seconds", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"[\d,]+ words counted: exactly those of the [\d,]+ lines sent", result.stdout)
    # On a busy machine several come together.
    assert len(re.findall(r"^ +window \d\d:\d\d:\d\d to", result.stdout, re.MULTILINE)) >= 2
    for item in TOLD:
        assert re.search(item, result.stdout), item
    offsets = [
        int(found) for found in re.findall(r"^ *(\d+)  \d\d:\d\d:\d\d\.\d{3}  ", result.stdout, re.MULTILINE)
    ]
    assert offsets == list(range(len(offsets)))
    assert "\x1b" not in result.stdout + result.stderr, "colours on what is no terminal"
    assert "Traceback" not in result.stderr
    assert left_behind(home) == []


def left_behind(home: Path) -> list[str]:
    """Returns the processes of a home."""
    results = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            reports = [*process.cmdline(), process.environ().get("TAILRACE_HOME", "")]
            if process.pid != os.getpid() and any(str(home) in report for report in reports):
                results.append(" ".join(process.cmdline()))
    return results
