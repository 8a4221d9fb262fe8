"""The end of a process is told, however it ends, whoever started it, and of no other than the one that was meant."""

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
from tailrace.infra.process_marker import create_marker, is_from_here, living
from tailrace.infra.processes import ProcessIdentity
from tailrace.services.heartbeats.local_process_monitor import LocalProcessMonitor

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python with a script that waits, and what arguments and environment are given."""
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
    told: queue.Queue[str] = queue.Queue()
    made: ProcessExitWatcher[str] = ProcessExitWatcher(told.put, use_pidfd=request.param == "pidfd")
    yield made, told
    made.close()


Watching = tuple[ProcessExitWatcher[str], "queue.Queue[str]"]


def test_an_end_by_signal_and_one_by_exit_are_told_once(exits: Watching, start: Start) -> None:
    watch, told = exits
    killed, leaving = start(), start()
    assert watch.watch("killed", ProcessIdentity.from_pid(killed.pid))
    assert watch.watch("leaving", ProcessIdentity.from_pid(leaving.pid))
    killed.send_signal(signal.SIGKILL)
    assert told.get(timeout=TIMEOUT_S) == "killed"
    assert leaving.stdin is not None
    leaving.stdin.close()
    assert told.get(timeout=TIMEOUT_S) == "leaving"
    assert told.empty()


def test_a_process_that_nobody_waits_for_has_ended_all_the_same(exits: Watching, start: Start) -> None:
    watch, told = exits
    process = start()
    watch.watch("a", ProcessIdentity.from_pid(process.pid))
    process.kill()
    assert told.get(timeout=TIMEOUT_S) == "a"
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE


def test_what_is_dropped_is_not_told(exits: Watching, start: Start) -> None:
    watch, told = exits
    first, second = start(), start()
    watch.watch("first", ProcessIdentity.from_pid(first.pid))
    watch.watch("second", ProcessIdentity.from_pid(second.pid))
    watch.drop("first")
    first.kill()
    first.wait()
    second.kill()
    assert told.get(timeout=TIMEOUT_S) == "second"
    assert told.empty()


def test_a_process_that_has_ended_before_or_another_with_its_pid_is_not_watched(
    exits: Watching, start: Start
) -> None:
    watch, told = exits
    process = start()
    identity = ProcessIdentity.from_pid(process.pid)
    assert not watch.watch("another", replace(identity, created=identity.created - 60))
    process.kill()
    process.wait()
    assert not watch.watch("ended", identity)
    assert told.empty()


class Registered(msgspec.Struct, frozen=True):
    """A registration as the ResourceManager keeps it."""

    resource_id: str
    instance_id: str
    address: str
    process_mark: str


def registered(name: str, pid: int, instance: str = "i", mark: str | None = None) -> dict[str, Registered]:
    return {name: Registered(name, instance, f"here:{pid}", create_marker(pid) if mark is None else mark)}


@pytest.fixture
def watched() -> Iterator[tuple[LocalProcessMonitor, queue.Queue[tuple[str, str, str]]]]:
    told: queue.Queue[tuple[str, str, str]] = queue.Queue()
    watch = LocalProcessMonitor(lambda *end: told.put(end))
    yield watch, told
    watch.close()


Followed = tuple[LocalProcessMonitor, "queue.Queue[tuple[str, str, str]]"]


def test_the_end_of_a_registered_process_is_told_of_its_registration(watched: Followed, start: Start) -> None:
    watch, told = watched
    process = start("taskexecutor", "--resource-id", "te")
    watch.follow(registered("te", process.pid, "old"))
    watch.follow(registered("te", process.pid, "new"))
    wait_until(lambda: [worker.instance_id for worker in watch.watched] == ["new"])
    process.kill()
    resource_id, instance_id, reason = told.get(timeout=TIMEOUT_S)
    assert (resource_id, instance_id) == ("te", "new")
    assert f"here:{process.pid} has ended" in reason
    assert told.empty()


def test_a_registration_that_is_gone_is_not_told_of(watched: Followed, start: Start) -> None:
    watch, told = watched
    gone = start("taskexecutor", "--resource-id", "gone")
    stays = start("taskexecutor", "--resource-id", "stays")
    both = registered("gone", gone.pid) | registered("stays", stays.pid)
    watch.follow(both)
    watch.follow(registered("stays", stays.pid))
    wait_until(lambda: [worker.resource_id for worker in watch.watched] == ["stays"])
    gone.kill()
    gone.wait()
    stays.kill()
    assert told.get(timeout=TIMEOUT_S)[0] == "stays"
    assert told.empty()


def test_a_process_that_ended_while_nobody_watched_is_told_of_at_once(
    watched: Followed, start: Start
) -> None:
    watch, told = watched
    process = start()
    workers = registered("te", process.pid)
    process.kill()
    process.wait()
    watch.follow(workers)
    assert told.get(timeout=TIMEOUT_S)[0] == "te"


def test_a_zombie_has_ended(watched: Followed, start: Start) -> None:
    watch, told = watched
    process = start()
    workers = registered("te", process.pid)
    process.kill()
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    watch.follow(workers)
    assert told.get(timeout=TIMEOUT_S)[0] == "te"
    assert create_marker(process.pid) == ""


@pytest.mark.parametrize("place", [0, 1])
def test_what_runs_on_another_machine_or_in_another_container_is_left_to_heartbeats(
    watched: Followed, start: Start, place: int
) -> None:
    """Its pid may be another process's here, or nobody's."""
    watch, told = watched
    process, own = start(), start()
    parts = create_marker(process.pid).split(":")
    parts[place] = "1"
    process.kill()
    process.wait()
    watch.follow(registered("elsewhere", process.pid, mark=":".join(parts)) | registered("te", own.pid))
    own.kill()
    assert told.get(timeout=TIMEOUT_S)[0] == "te"
    assert told.empty()


def test_a_registration_without_a_mark_is_left_to_heartbeats(watched: Followed, start: Start) -> None:
    watch, told = watched
    process = start()
    watch.follow(registered("te", process.pid, mark="") | registered("other", process.pid))
    process.kill()
    assert told.get(timeout=TIMEOUT_S)[0] == "other"
    assert told.empty()


def test_another_process_with_the_pid_is_not_taken_for_it(start: Start) -> None:
    process = start()
    mark = create_marker(process.pid)
    assert is_from_here(mark)
    assert living(mark) == ProcessIdentity.from_pid(process.pid)
    earlier = mark.rpartition(":")
    assert living(f"{earlier[0]}:{int(earlier[2]) - 1}") is None
