"""Several jobmanagers on one machine, as a user starts them: one leads, the others stand by, and no leader is
missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.local.cluster_record import ClusterRecord, read_record

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
        """Runs a command; kills it if the test fails, so that the failure shows at once."""
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
        result = self.run("cluster", "start", "--taskexecutors", "0", *arguments)
        assert result.returncode == 0, result.stderr
        return result.stderr

    def status(self) -> dict[str, Any]:
        result = self.run("cluster", "status", "-o", "json")
        assert result.returncode in (ExitCode.OK, ExitCode.UNREACHABLE), result.stderr
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def leader(self) -> str | None:
        """Returns the name of the master that leads the Dispatcher and is a candidate."""
        for item in self.status()["masters"]:
            if "dispatcher" in item["leads"] and item["stands_for_election"] is not False and item["running"]:
                return str(item["name"])
        return None

    def serves_candidates(self) -> bool:
        """Returns whether the leader's REST server lists the masters that stand for election, and one joined them."""
        known = self.status()["masters"]
        (address,) = (item["endpoints"]["rest"] for item in known if "rest" in item["endpoints"])
        with urllib.request.urlopen(f"http://{address}/api/v1/masters", timeout=TIMEOUT_S) as answer:
            served = [each["process"] for each in json.load(answer)["masters"]]
        return len(served) == 3 and set(served) == {
            item["address"] for item in known if item["stands_for_election"]
        }

    @property
    def record(self) -> ClusterRecord:
        record = read_record(self.path)
        assert record is not None
        return record

    def pid(self, name: str) -> int:
        return next(process.pid for process in self.record.processes if process.name == name)

    def everything(self) -> list[psutil.Process]:
        processes = [process.process() for process in self.record.processes]
        for name in ("kafka/kafka.json", "zookeeper/zookeeper.json"):
            if (self.path / name).exists():
                record = json.loads((self.path / name).read_text())
                processes.append(psutil.Process(record.get("pid") or record["process"]["pid"]))
        return [process for process in processes if process is not None]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    if read_record(made.path) is not None:
        assert made.run("cluster", "stop").returncode == 0


def test_one_of_three_masters_leads_and_another_after_kill(home: Home) -> None:
    report = home.start("--masters", "3", *ELECTIONS, *SESSION)
    assert report.count("stands by") == 2
    assert "ZooKeeper at 127.0.0.1:" in report
    assert [process.name for process in home.record.processes] == [
        "jobmanager-1",
        "jobmanager-2",
        "jobmanager-3",
    ]

    first = home.leader()
    assert first is not None
    os.kill(home.pid(first), signal.SIGKILL)
    wait_until(lambda: home.leader() not in (None, first))
    second = home.leader()

    with home.running("jobmanager") as joined:
        address = f":{joined.pid}"
        wait_until(lambda: any(item["address"].endswith(address) for item in home.status()["masters"]))
        assert home.leader() == second, "who joins stands by"
        wait_until(home.serves_candidates, "REST to list the masters that stand for election")

        assert f"{first} stands by" in home.start()
        assert home.leader() == second
        assert "already runs" in home.start()

        everything = home.everything()
        assert len(everything) == 5
        stopped = home.run("cluster", "stop")
        assert stopped.returncode == 0
        output = stopped.stderr
        assert (
            output.index("the cluster has ended")
            < output.index("ZooKeeper has stopped")
            < output.index("Kafka has stopped")
        )
        assert "SIGTERM" not in output
        # It belongs to the cluster, wherever it was started.
        joined.communicate(timeout=TIMEOUT_S)
        assert joined.returncode == 0
    assert not any(process.is_running() for process in everything)


def test_killed_zookeeper_restarts_at_same_address_and_leader_stays(
    home: Home,
) -> None:
    home.start("--masters", "2", *ELECTIONS, "-D", "high-availability.zookeeper.client.session-timeout=60 s")
    leaders = home.status()["leaders"]
    server = EmbeddedZooKeeper.attach(home.path / "zookeeper")
    server.kill()
    result = home.run("cluster", "status")
    assert result.returncode == ExitCode.UNREACHABLE
    assert "does not run" in next(line for line in result.stdout.splitlines() if line.startswith("zookeeper"))
    assert "ZooKeeper answers at " + server.address in home.start()
    assert home.status()["leaders"] == leaders


def test_master_without_election_is_rejected_until_elections_are_abandoned(
    home: Home,
) -> None:
    home.start("--masters", "2", *ELECTIONS, *SESSION)
    leader = home.leader()
    unelected = ("jobmanager", "-D", "high-availability.type=none")
    refused = home.run(*unelected)
    assert refused.returncode == ExitCode.USAGE
    (line,) = [line for line in refused.stderr.splitlines() if "elected by zookeeper" in line]
    assert "set high-availability.type to zookeeper" in line
    assert home.leader() == leader

    for process in home.record.processes:
        os.kill(process.pid, signal.SIGKILL)
    assert home.run(*unelected).returncode == ExitCode.USAGE
    with home.running(*unelected, "-D", "high-availability.abandon-election=true") as alone:
        try:
            wait_until(lambda: str(home.status()["leader"]).endswith(f":{alone.pid}"))
        finally:
            alone.terminate()
        alone.communicate(timeout=TIMEOUT_S)
        assert alone.returncode == 0


def test_election_takes_over_log_that_was_led_without_election(home: Home) -> None:
    home.start()
    # Another leader without an election: its epoch is beyond the first one of ZooKeeper.
    os.kill(home.pid("jobmanager"), signal.SIGKILL)
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
