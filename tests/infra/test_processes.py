"""A child process ends with its owner, however the owner ends; a detached one stays."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import psutil
import pytest
from polling import wait_until

from tailrace.infra.processes import OwnedProcess, guard_command, read_start_time, wait_until_stopped

OWNER = """
import sys, time
from pathlib import Path
from tailrace.infra.processes import OwnedProcess
child = OwnedProcess(["sleep", "300"], log=Path(sys.argv[1]), detached=sys.argv[2] == "detached")
print(child.pid, flush=True)
time.sleep(300)
"""

THREADS = """
import threading
def run():
    while True:
        sum(range(1000))
for _ in range(20):
    threading.Thread(target=run, daemon=True).start()
print("running", flush=True)
threading.Event().wait()
"""


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def owner_and_child(tmp_path: Path, mode: str) -> tuple[subprocess.Popen[str], int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "log"), mode], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_child_ends_when_owner_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    owner, child = owner_and_child(tmp_path, "owned")
    assert alive(child)
    owner.send_signal(how)
    owner.communicate()
    wait_until(lambda: not alive(child))


def test_detached_child_outlives_owner(tmp_path: Path) -> None:
    owner, child = owner_and_child(tmp_path, "detached")
    try:
        owner.kill()
        owner.communicate()
        # What would end it acts at once when its pipe closes; by then the next line has had to wait for it.
        with pytest.raises(psutil.TimeoutExpired):
            psutil.Process(child).wait(0.5)
    finally:
        os.kill(child, signal.SIGKILL)


def test_stop_ends_child_with_sigterm_and_ends_its_guard(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    before = set(psutil.Process().children())
    child = OwnedProcess(["sh", "-c", script], log=tmp_path / "log")
    wait_until(lambda: "up" in (tmp_path / "log").read_text())

    child.stop(10)

    assert child.poll() == 3
    assert (tmp_path / "log").read_text().endswith("bye\n")
    assert set(psutil.Process().children()) <= before


def test_stop_kills_child_that_ignores_sigterm(tmp_path: Path) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    child = OwnedProcess(["sh", "-c", script], log=tmp_path / "log")
    wait_until(lambda: "up" in (tmp_path / "log").read_text())
    child.stop(0.2)
    assert child.poll() == -signal.SIGKILL


def test_exit_of_child_is_detected(tmp_path: Path) -> None:
    child = OwnedProcess(["sh", "-c", "exit 7"], log=tmp_path / "log")
    wait_until(lambda: child.poll() == 7)
    child.stop(1)


def test_guard_ends_its_process() -> None:
    with subprocess.Popen(["sleep", "300"]) as process:
        guard = guard_command(process.pid, read_start_time(process.pid))
        subprocess.run(guard, stdin=subprocess.DEVNULL, check=True)
        assert process.wait(10) == -signal.SIGTERM


def test_guard_spares_later_process_and_thread_with_same_id() -> None:
    script = """
import threading, time
thread = threading.Thread(target=time.sleep, args=(300,))
thread.start()
print(thread.native_id, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        thread_id = int(process.stdout.readline())
        earlier = read_start_time(process.pid) - 1
        for reused in (process.pid, thread_id):
            subprocess.run(guard_command(reused, earlier), stdin=subprocess.DEVNULL, check=True)
        assert process.poll() is None
        process.kill()


def test_child_outlives_object_that_collector_finds_in_cycle(tmp_path: Path) -> None:
    owned = OwnedProcess(["sleep", "300"], log=tmp_path / "log")
    pid = owned.pid
    cycle: list[object] = [owned]
    cycle.append(cycle)
    try:
        del owned, cycle
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        with pytest.raises(psutil.TimeoutExpired):
            psutil.Process(pid).wait(0.5)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_paused_process_has_no_thread_that_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            threads = [psutil.Process(thread.id) for thread in psutil.Process(process.pid).threads()]
            assert len(threads) > 20
            for _ in range(10):
                process.send_signal(signal.SIGSTOP)
                wait_until_stopped(process.pid)
                assert {thread.status() for thread in threads} == {psutil.STATUS_STOPPED}
                process.send_signal(signal.SIGCONT)
        finally:
            process.kill()


def test_wait_for_paused_process_ends_with_the_process() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        wait_until_stopped(process.pid)
