"""Several jobmanagers on one machine, as a user starts them: one leads, the others stand by, and none is missed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.local import ClusterRecord, read_record

pytestmark = pytest.mark.timeout(300)

ELECTIONS = ("-D", "high-availability.type=zookeeper")
SESSION = ("-D", "high-availability.zookeeper.client.session-timeout=4 s")


class Home:
    """A cluster without TaskExecutors, driven by the command line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")
        }
        for name in ("TAILRACE_CACHE_DIR", "TAILRACE_IVY_SETTINGS"):
            if name in os.environ:
                self._environment[name] = os.environ[name]

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tailrace.services.cli", *arguments, "--home", str(self.path)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self._environment, stdout=pipe, stderr=pipe, text=True)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A process that is killed where the test fails, so that the failure shows at once."""
        with self.popen(*arguments) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.running(*arguments) as process:
            out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def start(self, *arguments: str) -> str:
        done = self.run("cluster", "start", "--taskexecutors", "0", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def status(self) -> dict[str, Any]:
        done = self.run("cluster", "status", "-o", "json")
        assert done.returncode in (ExitCode.OK, ExitCode.UNREACHABLE), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def leader(self) -> str | None:
        """The name of the master that leads the Dispatcher and stands for election."""
        for each in self.status()["masters"]:
            if "dispatcher" in each["leads"] and each["stands_for_election"] is not False and each["running"]:
                return str(each["name"])
        return None

    @property
    def record(self) -> ClusterRecord:
        record = read_record(self.path)
        assert record is not None
        return record

    def pid(self, name: str) -> int:
        return next(each.pid for each in self.record.processes if each.name == name)

    def everything(self) -> list[psutil.Process]:
        found = [each.process() for each in self.record.processes]
        for name in ("kafka/kafka.json", "zookeeper/zookeeper.json"):
            if (self.path / name).exists():
                record = json.loads((self.path / name).read_text())
                found.append(psutil.Process(record.get("pid") or record["process"]["pid"]))
        return [each for each in found if each is not None]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    if read_record(made.path) is not None:
        assert made.run("cluster", "stop").returncode == 0


def test_of_three_masters_one_leads_and_when_it_is_killed_another(home: Home) -> None:
    told = home.start("--masters", "3", *ELECTIONS, *SESSION)
    assert told.count("stands by") == 2
    assert "ZooKeeper at 127.0.0.1:" in told
    assert [each.name for each in home.record.processes] == ["jobmanager-1", "jobmanager-2", "jobmanager-3"]

    first = home.leader()
    assert first is not None
    os.kill(home.pid(first), signal.SIGKILL)
    wait_until(lambda: home.leader() not in (None, first))
    second = home.leader()

    with home.running("jobmanager") as joined:
        address = f":{joined.pid}"
        wait_until(lambda: any(each["address"].endswith(address) for each in home.status()["masters"]))
        assert home.leader() == second, "who joins stands by"

        assert f"{first} stands by" in home.start()
        assert home.leader() == second
        assert "already runs" in home.start()

        everything = home.everything()
        assert len(everything) == 5
        stopped = home.run("cluster", "stop")
        assert stopped.returncode == 0
        said = stopped.stderr
        assert (
            said.index("the cluster has ended")
            < said.index("ZooKeeper has stopped")
            < said.index("Kafka has stopped")
        )
        assert "SIGTERM" not in said
        # It belongs to the cluster, wherever it was started.
        joined.communicate(timeout=TIMEOUT_S)
        assert joined.returncode == 0
    assert not any(each.is_running() for each in everything)


def test_a_zookeeper_that_was_killed_is_started_again_where_it_was_and_the_leader_leads_on(
    home: Home,
) -> None:
    home.start("--masters", "2", *ELECTIONS, "-D", "high-availability.zookeeper.client.session-timeout=60 s")
    leaders = home.status()["leaders"]
    server = EmbeddedZooKeeper.attach(home.path / "zookeeper")
    server.kill()
    done = home.run("cluster", "status")
    assert done.returncode == ExitCode.UNREACHABLE
    assert "does not run" in next(line for line in done.stdout.splitlines() if line.startswith("zookeeper"))
    assert "ZooKeeper answers at " + server.address in home.start()
    assert home.status()["leaders"] == leaders


def test_whom_nobody_elects_is_refused_beside_elected_ones_and_until_it_is_told_that_they_are_gone(
    home: Home,
) -> None:
    home.start("--masters", "2", *ELECTIONS, *SESSION)
    leader = home.leader()
    unelected = ("jobmanager", "-D", "high-availability.type=none")
    refused = home.run(*unelected)
    assert refused.returncode == ExitCode.USAGE
    (line,) = [each for each in refused.stderr.splitlines() if "elected by zookeeper" in each]
    assert "set high-availability.type to zookeeper" in line
    assert home.leader() == leader

    for each in home.record.processes:
        os.kill(each.pid, signal.SIGKILL)
    assert home.run(*unelected).returncode == ExitCode.USAGE
    with home.running(*unelected, "-D", "high-availability.abandon-election=true") as alone:
        try:
            wait_until(lambda: str(home.status()["leader"]).endswith(f":{alone.pid}"))
        finally:
            alone.terminate()
        alone.communicate(timeout=TIMEOUT_S)
        assert alone.returncode == 0


def test_elections_begin_over_a_log_that_was_led_without_them(home: Home) -> None:
    for _ in range(2):
        home.start()
        assert home.run("cluster", "stop").returncode == 0
    home.start("--masters", "2", *ELECTIONS)
    assert home.leader() in ("jobmanager-1", "jobmanager-2")
    refused = home.run("cluster", "start", "-D", "high-availability.type=none")
    assert refused.returncode == ExitCode.USAGE
    assert "runs with high-availability.type zookeeper: stop it first" in refused.stderr
    assert home.run("cluster", "stop").returncode == 0
    home.start()
    assert home.leader() == "jobmanager"
