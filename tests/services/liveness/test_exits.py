"""The end of a process is told, however it ends, whoever started it, and of no other than the one that was meant."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from tailrace.infra.processes import ProcessIdentity
from tailrace.services.liveness.exits import Exits
from tailrace.services.liveness.process_watch import ProcessWatch, find

SOON_S = 10.0
HOST = socket.gethostname()
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
def exits(request: pytest.FixtureRequest) -> Iterator[tuple[Exits[str], queue.Queue[str]]]:
    if request.param == "pidfd" and not hasattr(os, "pidfd_open"):
        pytest.skip("no pidfds on this platform")
    told: queue.Queue[str] = queue.Queue()
    made: Exits[str] = Exits(told.put, use_pidfd=request.param == "pidfd")
    yield made, told
    made.close()


Watching = tuple[Exits[str], "queue.Queue[str]"]


def test_an_end_by_signal_and_one_by_exit_are_told_once(exits: Watching, start: Start) -> None:
    watch, told = exits
    killed, leaving = start(), start()
    assert watch.watch("killed", ProcessIdentity.of(killed.pid))
    assert watch.watch("leaving", ProcessIdentity.of(leaving.pid))
    killed.send_signal(signal.SIGKILL)
    assert told.get(timeout=SOON_S) == "killed"
    assert leaving.stdin is not None
    leaving.stdin.close()
    assert told.get(timeout=SOON_S) == "leaving"
    assert told.empty()


def test_a_process_that_nobody_waits_for_has_ended_all_the_same(exits: Watching, start: Start) -> None:
    watch, told = exits
    process = start()
    watch.watch("a", ProcessIdentity.of(process.pid))
    process.kill()
    assert told.get(timeout=SOON_S) == "a"
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE


def test_what_is_dropped_is_not_told(exits: Watching, start: Start) -> None:
    watch, told = exits
    first, second = start(), start()
    watch.watch("first", ProcessIdentity.of(first.pid))
    watch.watch("second", ProcessIdentity.of(second.pid))
    watch.drop("first")
    first.kill()
    first.wait()
    second.kill()
    assert told.get(timeout=SOON_S) == "second"
    assert told.empty()


def test_a_process_that_has_ended_before_or_another_with_its_pid_is_not_watched(
    exits: Watching, start: Start
) -> None:
    watch, told = exits
    process = start()
    identity = ProcessIdentity.of(process.pid)
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


def registered(name: str, pid: int, instance: str = "i", host: str = HOST) -> dict[str, Registered]:
    return {name: Registered(name, instance, f"{host}:{pid}")}


@pytest.fixture
def watched() -> Iterator[tuple[ProcessWatch, queue.Queue[tuple[str, str, str]]]]:
    told: queue.Queue[tuple[str, str, str]] = queue.Queue()
    watch = ProcessWatch("c", lambda *end: told.put(end))
    yield watch, told
    watch.close()


Followed = tuple[ProcessWatch, "queue.Queue[tuple[str, str, str]]"]


def test_the_end_of_a_registered_process_is_told_of_its_registration(watched: Followed, start: Start) -> None:
    watch, told = watched
    process = start("taskexecutor", "--resource-id", "te")
    watch.follow(registered("te", process.pid, "old"))
    watch.follow(registered("te", process.pid, "new"))
    eventually(lambda: [worker.instance_id for worker, _ in watch.watched] == ["new"])
    process.kill()
    resource_id, instance_id, reason = told.get(timeout=SOON_S)
    assert (resource_id, instance_id) == ("te", "new")
    assert f"{HOST}:{process.pid} has ended" in reason
    assert told.empty()


def test_a_registration_that_is_gone_is_not_told_of(watched: Followed, start: Start) -> None:
    watch, told = watched
    gone = start("taskexecutor", "--resource-id", "gone")
    stays = start("taskexecutor", "--resource-id", "stays")
    both = registered("gone", gone.pid) | registered("stays", stays.pid)
    watch.follow(both)
    watch.follow(registered("stays", stays.pid))
    eventually(lambda: [worker.resource_id for worker, _ in watch.watched] == ["stays"])
    gone.kill()
    gone.wait()
    stays.kill()
    assert told.get(timeout=SOON_S)[0] == "stays"
    assert told.empty()


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["taskexecutor", "--resource-id", "te"], {}),
        (["taskexecutor", "--resource-id=te", "--slots", "3"], {"TAILRACE_CLUSTER_ID": "c"}),
        (["taskexecutor", "--cluster-id", "c"], {"TAILRACE_TASKMANAGER_RESOURCE_ID": "te"}),
        (["taskexecutor", "-D", "taskmanager.resource-id=te"], {}),
    ],
)
def test_a_process_is_found_that_certainly_is_the_taskexecutor(
    start: Start, arguments: list[str], environment: dict[str, str]
) -> None:
    process = start(*arguments, **environment)
    assert find(process.pid, "c", "te") == ProcessIdentity.of(process.pid)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["jobmanager"], {}),
        (["taskexecutor", "--resource-id", "other"], {}),
        (["taskexecutor"], {}),
        (["taskexecutor", "--resource-id", "te"], {"TAILRACE_CLUSTER_ID": "other"}),
        (["taskexecutor", "--resource-id", "te", "--cluster-id=other"], {"TAILRACE_CLUSTER_ID": "c"}),
    ],
)
def test_no_process_is_taken_for_a_taskexecutor_that_might_be_another(
    start: Start, arguments: list[str], environment: dict[str, str]
) -> None:
    process = start(*arguments, **environment)
    assert find(process.pid, "c", "te") is None


def test_a_process_that_another_process_has_replaced_is_not_found() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert find(ended.pid, "c", "te") is None


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
