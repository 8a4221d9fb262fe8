"""`tailrace demo` as `make demo` runs it, only shorter: it counts right, tells the story, and leaves nothing behind."""

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


def test_the_demo_counts_right_tells_the_story_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = subprocess.run(
        [*DEMO, "--home", str(home), "--windows", "2", "--window-seconds", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[\d,]+ words counted: exactly those of the [\d,]+ lines sent", done.stdout)
    # On a busy machine several come together.
    assert len(re.findall(r"^ +window \d\d:\d\d:\d\d to", done.stdout, re.MULTILINE)) >= 2
    for each in TOLD:
        assert re.search(each, done.stdout), each
    offsets = [
        int(found) for found in re.findall(r"^ *(\d+)  \d\d:\d\d:\d\d\.\d{3}  ", done.stdout, re.MULTILINE)
    ]
    assert offsets == list(range(len(offsets)))
    assert "\x1b" not in done.stdout + done.stderr, "colours on what is no terminal"
    assert "Traceback" not in done.stderr
    assert left_behind(home) == []


def left_behind(home: Path) -> list[str]:
    """Processes that have to do with a home."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            told = [*process.cmdline(), process.environ().get("TAILRACE_HOME", "")]
            if process.pid != os.getpid() and any(str(home) in each for each in told):
                found.append(" ".join(process.cmdline()))
    return found
