"""ProcessExitWatcher reports the end of a watched process, however it ends and whoever started it, and of no other
process."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from polling import TIMEOUT_S, wait_until

from tailrace.infra.process_exit_watcher import ProcessExitWatcher
from tailrace.infra.process_marker import create_marker, is_from_here
from tailrace.infra.processes import ProcessIdentity, find_marked
from tailrace.services.heartbeats.local_process_monitor import LocalProcessMonitor

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python with a script that waits, and with these arguments and environment."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        started.append(process)
        # Before that it may still be on its way to its own command line.
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture(params=["pidfd", "polling"])
def exits(request: pytest.FixtureRequest) -> Iterator[tuple[ProcessExitWatcher[str], queue.Queue[str]]]:
    if request.param == "pidfd" and not hasattr(os, "pidfd_open"):
        pytest.skip("no pidfds on this platform")
    reports: queue.Queue[str] = queue.Queue()
    made: ProcessExitWatcher[str] = ProcessExitWatcher(reports.put, use_pidfd=request.param == "pidfd")
    yield made, reports
    made.close()


Watching = tuple[ProcessExitWatcher[str], "queue.Queue[str]"]


def test_watcher_reports_kill_and_exit_once(exits: Watching, start: Start) -> None:
    watch, reports = exits
    killed, leaving = start(), start()
    assert watch.watch("killed", ProcessIdentity.from_pid(killed.pid))
    assert watch.watch("leaving", ProcessIdentity.from_pid(leaving.pid))
    killed.send_signal(signal.SIGKILL)
    assert reports.get(timeout=TIMEOUT_S) == "killed"
    assert leaving.stdin is not None
    leaving.stdin.close()
    assert reports.get(timeout=TIMEOUT_S) == "leaving"
    assert reports.empty()


def test_watcher_reports_exit_of_process_without_waiting_parent(exits: Watching, start: Start) -> None:
    watch, reports = exits
    process = start()
    watch.watch("a", ProcessIdentity.from_pid(process.pid))
    process.kill()
    assert reports.get(timeout=TIMEOUT_S) == "a"
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE


def test_watcher_does_not_report_removed_process(exits: Watching, start: Start) -> None:
    watch, reports = exits
    first, second = start(), start()
    watch.watch("first", ProcessIdentity.from_pid(first.pid))
    watch.watch("second", ProcessIdentity.from_pid(second.pid))
    watch.drop("first")
    first.kill()
    first.wait()
    second.kill()
    assert reports.get(timeout=TIMEOUT_S) == "second"
    assert reports.empty()


def test_watcher_rejects_ended_process_and_reused_pid(exits: Watching, start: Start) -> None:
    watch, reports = exits
    process = start()
    identity = ProcessIdentity.from_pid(process.pid)
    assert not watch.watch("another", replace(identity, created=identity.created - 60, mark=""))
    process.kill()
    process.wait()
    assert not watch.watch("ended", identity)
    assert reports.empty()


class Registered(msgspec.Struct, frozen=True):
    """A registration as the ResourceManager has it."""

    resource_id: str
    instance_id: str
    address: str
    process_mark: str


def registered(name: str, pid: int, instance: str = "i", mark: str | None = None) -> dict[str, Registered]:
    return {name: Registered(name, instance, f"here:{pid}", create_marker(pid) if mark is None else mark)}


@pytest.fixture
def watched() -> Iterator[tuple[LocalProcessMonitor, queue.Queue[tuple[str, str, str]]]]:
    reports: queue.Queue[tuple[str, str, str]] = queue.Queue()
    watch = LocalProcessMonitor(lambda *end: reports.put(end))
    yield watch, reports
    watch.close()


Followed = tuple[LocalProcessMonitor, "queue.Queue[tuple[str, str, str]]"]


def test_monitor_reports_exit_with_registration(watched: Followed, start: Start) -> None:
    watch, reports = watched
    process = start("taskexecutor", "--resource-id", "te")
    watch.follow(registered("te", process.pid, "old"))
    watch.follow(registered("te", process.pid, "new"))
    wait_until(lambda: [worker.instance_id for worker in watch.watched] == ["new"])
    process.kill()
    resource_id, instance_id, reason = reports.get(timeout=TIMEOUT_S)
    assert (resource_id, instance_id) == ("te", "new")
    assert f"here:{process.pid} has ended" in reason
    assert reports.empty()


def test_monitor_does_not_report_removed_registration(watched: Followed, start: Start) -> None:
    watch, reports = watched
    process = start("taskexecutor", "--resource-id", "gone")
    stays = start("taskexecutor", "--resource-id", "stays")
    both = registered("gone", process.pid) | registered("stays", stays.pid)
    watch.follow(both)
    watch.follow(registered("stays", stays.pid))
    wait_until(lambda: [worker.resource_id for worker in watch.watched] == ["stays"])
    process.kill()
    process.wait()
    stays.kill()
    assert reports.get(timeout=TIMEOUT_S)[0] == "stays"
    assert reports.empty()


def test_monitor_reports_at_once_process_that_ended_before(watched: Followed, start: Start) -> None:
    watch, reports = watched
    process = start()
    workers = registered("te", process.pid)
    process.kill()
    process.wait()
    watch.follow(workers)
    assert reports.get(timeout=TIMEOUT_S)[0] == "te"


def test_watcher_treats_zombie_as_ended(watched: Followed, start: Start) -> None:
    watch, reports = watched
    process = start()
    workers = registered("te", process.pid)
    process.kill()
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    watch.follow(workers)
    assert reports.get(timeout=TIMEOUT_S)[0] == "te"
    assert create_marker(process.pid) == ""


@pytest.mark.parametrize("place", [0, 1])
def test_monitor_ignores_process_on_other_host_or_in_other_container(
    watched: Followed, start: Start, place: int
) -> None:
    """Its pid may belong to another process here, or to none."""
    watch, reports = watched
    process, own = start(), start()
    parts = create_marker(process.pid).split(":")
    parts[place] = "1"
    process.kill()
    process.wait()
    watch.follow(registered("elsewhere", process.pid, mark=":".join(parts)) | registered("te", own.pid))
    own.kill()
    assert reports.get(timeout=TIMEOUT_S)[0] == "te"
    assert reports.empty()


def test_monitor_ignores_registration_without_process_identity(watched: Followed, start: Start) -> None:
    watch, reports = watched
    process = start()
    watch.follow(registered("te", process.pid, mark="") | registered("other", process.pid))
    process.kill()
    assert reports.get(timeout=TIMEOUT_S)[0] == "other"
    assert reports.empty()


def test_monitor_detects_reused_pid(start: Start) -> None:
    process = start()
    mark = create_marker(process.pid)
    assert is_from_here(mark)
    assert find_marked(mark) == ProcessIdentity.from_pid(process.pid)
    earlier = mark.rpartition(":")
    assert find_marked(f"{earlier[0]}:{int(earlier[2]) - 1}") is None
