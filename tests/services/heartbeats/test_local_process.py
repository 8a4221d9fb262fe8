"""The local driver: workers are found again by whoever comes next, and no other process is ever taken for one."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil
import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.services.configuration import Configuration
from tailrace.services.resource_manager.drivers import WorkerNotStarted
from tailrace.services.resource_manager.drivers.local_process import (
    Command,
    LocalProcessDriver,
    WorkerRecord,
    taskexecutor_command,
    worker_records,
)

WAITS = "import sys, time; print(*sys.argv[1:], flush=True); time.sleep(300)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
    "time.sleep(300)"
)


def running(code: str) -> Command:
    def command(resource_id: str, number_of_slots: int) -> tuple[Sequence[str], Mapping[str, str]]:
        return [sys.executable, "-c", code, resource_id, str(number_of_slots)], dict(os.environ)

    return command


class Drivers:
    """Makes drivers of one home, one after the other, as jobmanagers follow each other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.made: list[LocalProcessDriver] = []
        self.told: queue.Queue[tuple[str, str]] = queue.Queue()

    def __call__(self, code: str = WAITS, kill_after_s: float = 15.0) -> LocalProcessDriver:
        driver = LocalProcessDriver(
            self.home, "c", running(code), lambda *end: self.told.put(end), kill_after_s=kill_after_s
        )
        self.made.append(driver)
        return driver

    def log(self, resource_id: str) -> Path:
        return self.home / "log" / f"{resource_id}.log"


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    made = Drivers(tmp_path)
    yield made
    for driver in made.made:
        driver.close()
    for record in worker_records(tmp_path, "c"):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(record.pid)
            process.kill()
            process.wait()


def pid_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_a_worker_that_is_started_runs_with_its_name_and_slots_and_is_told_when_it_dies(
    drivers: Drivers,
) -> None:
    driver = drivers()
    address = driver.start("w-1", 4)
    assert driver.survivors() == {"w-1": address}
    wait_until(lambda: drivers.log("w-1").read_text() == "w-1 4\n")
    os.kill(pid_of(address), signal.SIGKILL)
    resource_id, reason = drivers.told.get(timeout=TIMEOUT_S)
    assert resource_id == "w-1"
    assert "has ended by signal 9; see " in reason
    assert driver.survivors() == {}
    assert drivers.told.empty()


def test_a_worker_that_ends_by_itself_says_how(drivers: Drivers) -> None:
    drivers("raise SystemExit(7)").start("w", 1)
    assert "exit code 7" in drivers.told.get(timeout=TIMEOUT_S)[1]


def test_a_worker_that_runs_already_is_not_started_twice(drivers: Drivers) -> None:
    address = drivers().start("w", 1)
    assert drivers().start("w", 1) == address


def test_a_worker_that_is_stopped_ends_and_says_why(drivers: Drivers) -> None:
    driver = drivers()
    pid = pid_of(driver.start("w", 1))
    assert driver.stop("w", "idle for 30 s")
    resource_id, reason = drivers.told.get(timeout=TIMEOUT_S)
    assert resource_id == "w"
    assert "as asked: idle for 30 s" in reason
    assert not psutil.pid_exists(pid)


def test_a_worker_that_does_not_heed_sigterm_is_killed(drivers: Drivers) -> None:
    driver = drivers(STUBBORN, kill_after_s=0.2)
    driver.start("w", 1)
    wait_until(lambda: drivers.log("w").read_text() == "up\n")
    driver.stop("w", "not wanted")
    assert "by signal 9 as asked: not wanted" in drivers.told.get(timeout=TIMEOUT_S)[1]


def test_what_does_not_run_can_not_be_stopped_and_nothing_follows(drivers: Drivers) -> None:
    driver = drivers()
    assert not driver.stop("unknown", "why not")
    assert drivers.told.empty()


def test_workers_outlive_their_driver_and_its_successor_finds_stops_and_hears_of_them(
    drivers: Drivers,
) -> None:
    first = drivers()
    started = {name: first.start(name, 2) for name in ("a", "b")}
    first.close()
    successor = drivers()
    assert successor.survivors() == started
    os.kill(pid_of(started["a"]), signal.SIGKILL)
    assert drivers.told.get(timeout=TIMEOUT_S)[0] == "a"
    successor.stop("b", "the job is done")
    assert drivers.told.get(timeout=TIMEOUT_S)[0] == "b"


def test_a_worker_that_died_while_nobody_looked_is_no_survivor(drivers: Drivers) -> None:
    first = drivers()
    pid = pid_of(first.start("w", 1))
    first.close()
    psutil.Process(pid).kill()
    psutil.Process(pid).wait()
    assert drivers().survivors() == {}
    assert worker_records(drivers.home, "c") == []


def test_a_pid_that_another_process_has_now_is_left_alone(drivers: Drivers) -> None:
    driver = drivers()
    (drivers.home / "workers" / "c").mkdir(parents=True)
    record = WorkerRecord(pid=os.getpid(), created=1.0, resource_id="w", log="w.log")
    (drivers.home / "workers" / "c" / "w.json").write_bytes(msgspec.json.encode(record))
    assert driver.survivors() == {}
    assert not driver.stop("w", "it would be us")


def test_what_can_not_be_started_says_why(tmp_path: Path) -> None:
    driver = LocalProcessDriver(tmp_path, "c", lambda *_: (["/nowhere/to/be/found"], {}), lambda *_: None)
    with pytest.raises(WorkerNotStarted, match=r"w can't be started: .*nowhere"):
        driver.start("w", 1)
    driver.close()


def test_a_worker_is_told_the_whole_configuration(tmp_path: Path) -> None:
    configuration = Configuration(
        {"cluster.id": "c", "bootstrap.servers": "k:1", "home": str(tmp_path), "heartbeat.interval": "1 s"}
    )
    command, environment = taskexecutor_command(configuration)("w", 3)
    assert command[1:] == [
        "-P", "-m", "tailrace.services.cli", "taskexecutor", "--resource-id", "w", "--slots", "3",
    ]  # fmt: skip
    assert environment["TAILRACE_CLUSTER_ID"] == "c"
    assert environment["TAILRACE_BOOTSTRAP_SERVERS"] == "k:1"
    assert environment["TAILRACE_HEARTBEAT_INTERVAL"] == "1 s"
    assert environment["TAILRACE_HOME"] == str(tmp_path)
