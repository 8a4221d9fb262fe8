"""The local driver finds its workers again after a restart, and never takes another process for a worker."""

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
    """Creates drivers of one home, one after the other, as successive jobmanagers do."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.made: list[LocalProcessDriver] = []
        self.reports: queue.Queue[tuple[str, str]] = queue.Queue()

    def __call__(self, code: str = WAITS, kill_after_s: float = 15.0) -> LocalProcessDriver:
        driver = LocalProcessDriver(
            self.home, "c", running(code), lambda *end: self.reports.put(end), kill_after_s=kill_after_s
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


def test_started_worker_has_name_and_slots_and_its_end_is_reported(
    drivers: Drivers,
) -> None:
    driver = drivers()
    address = driver.start("w-1", 4)
    assert driver.survivors() == {"w-1": address}
    wait_until(lambda: drivers.log("w-1").read_text() == "w-1 4\n")
    os.kill(pid_of(address), signal.SIGKILL)
    resource_id, reason = drivers.reports.get(timeout=TIMEOUT_S)
    assert resource_id == "w-1"
    assert "has ended by signal 9; see " in reason
    assert driver.survivors() == {}
    assert drivers.reports.empty()


def test_worker_exit_is_reported_with_status(drivers: Drivers) -> None:
    drivers("raise SystemExit(7)").start("w", 1)
    assert "exit code 7" in drivers.reports.get(timeout=TIMEOUT_S)[1]


def test_running_worker_is_not_started_twice(drivers: Drivers) -> None:
    address = drivers().start("w", 1)
    assert drivers().start("w", 1) == address


def test_stopped_worker_ends_with_reason(drivers: Drivers) -> None:
    driver = drivers()
    pid = pid_of(driver.start("w", 1))
    assert driver.stop("w", "idle for 30 s")
    resource_id, reason = drivers.reports.get(timeout=TIMEOUT_S)
    assert resource_id == "w"
    assert "as requested: idle for 30 s" in reason
    assert not psutil.pid_exists(pid)


def test_worker_that_ignores_sigterm_is_killed(drivers: Drivers) -> None:
    driver = drivers(STUBBORN, kill_after_s=0.2)
    driver.start("w", 1)
    wait_until(lambda: drivers.log("w").read_text() == "up\n")
    driver.stop("w", "not wanted")
    assert "by signal 9 as requested: not wanted" in drivers.reports.get(timeout=TIMEOUT_S)[1]


def test_stop_of_worker_that_does_not_run_does_nothing(drivers: Drivers) -> None:
    driver = drivers()
    assert not driver.stop("unknown", "why not")
    assert drivers.reports.empty()


def test_successor_of_driver_finds_stops_and_monitors_workers(
    drivers: Drivers,
) -> None:
    first = drivers()
    started = {name: first.start(name, 2) for name in ("a", "b")}
    first.close()
    successor = drivers()
    assert successor.survivors() == started
    os.kill(pid_of(started["a"]), signal.SIGKILL)
    assert drivers.reports.get(timeout=TIMEOUT_S)[0] == "a"
    successor.stop("b", "the job is done")
    assert drivers.reports.get(timeout=TIMEOUT_S)[0] == "b"


def test_worker_that_died_unobserved_is_no_survivor(drivers: Drivers) -> None:
    first = drivers()
    pid = pid_of(first.start("w", 1))
    first.close()
    psutil.Process(pid).kill()
    psutil.Process(pid).wait()
    assert drivers().survivors() == {}
    assert worker_records(drivers.home, "c") == []


def test_reused_pid_is_left_alone(drivers: Drivers) -> None:
    driver = drivers()
    (drivers.home / "workers" / "c").mkdir(parents=True)
    record = WorkerRecord(pid=os.getpid(), created=1.0, resource_id="w", log="w.log")
    (drivers.home / "workers" / "c" / "w.json").write_bytes(msgspec.json.encode(record))
    assert driver.survivors() == {}
    assert not driver.stop("w", "it would be us")


def test_failed_start_has_reason(tmp_path: Path) -> None:
    driver = LocalProcessDriver(tmp_path, "c", lambda *_: (["/nowhere/to/be/found"], {}), lambda *_: None)
    with pytest.raises(WorkerNotStarted, match=r"w cannot be started: .*nowhere"):
        driver.start("w", 1)
    driver.close()


def test_worker_gets_whole_configuration(tmp_path: Path) -> None:
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
