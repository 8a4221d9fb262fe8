"""A cluster in YARN, from the command line: what can't work is refused before anything is uploaded, and a session that
has ended leaves nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.services.yarn.jvm_gateway import JvmGateway

from .test_cluster import Cluster


@pytest.fixture(scope="module")
def hadoop(yarn: EmbeddedYarn) -> Iterator[JvmGateway]:
    """Yields a client's JVM."""
    with JvmGateway(yarn.configuration_dir) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def client(hadoop: JvmGateway) -> Iterator[Any]:
    """Yields a YarnClient."""
    made = hadoop.jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
    made.init(hadoop.configuration())
    made.start()
    yield made
    made.stop()


@pytest.fixture
def session(yarn: EmbeddedYarn, tmp_path: Path) -> Cluster:
    """Returns a home, and what a client of YARN has in its environment."""
    return Cluster(
        tmp_path / "home",
        HADOOP_CONF_DIR=str(yarn.configuration_dir),
        TAILRACE_YARN_PYTHON_EXECUTABLE=sys.executable,
        TAILRACE_REST_BIND_PORT="0",
    )


@pytest.fixture
def staged(hadoop: JvmGateway) -> Callable[[], dict[str, str]]:
    """Returns a function that lists the staging directories of the user: application -> permissions."""
    apache = hadoop.jvm.org.apache.hadoop
    files = apache.fs.FileSystem.get(hadoop.configuration())
    parent = apache.fs.Path(files.getHomeDirectory(), ".tailrace")

    def found() -> dict[str, str]:
        if not files.exists(parent):
            return {}
        return {
            each.getPath().getName(): each.getPermission().toString() for each in files.listStatus(parent)
        }

    return found


def test_servers_listen_on_loopback_only(yarn: EmbeddedYarn, client: Any) -> None:
    assert client.getYarnClusterMetrics().getNumNodeManagers() == 2
    connections = psutil.Process(yarn.pid).net_connections("tcp")
    assert {each.laddr.ip for each in connections if each.status == "LISTEN"} == {"127.0.0.1"}


def test_session_that_cannot_work_is_refused_before_anything_is_uploaded(
    session: Cluster, kafka: EmbeddedKafka, yarn: EmbeddedYarn, staged: Callable[[], dict[str, str]]
) -> None:
    def refusal(*arguments: str) -> str:
        servers = ("--bootstrap-servers", kafka.bootstrap_servers)
        result = session.run("yarn-session", "-d", *servers, *arguments)
        assert result.returncode == 5, result.stdout + result.stderr
        return result.stderr.splitlines()[-1]

    assert "YARN has no queue 'nights', but default" in refusal("-q", "nights")
    too_large = refusal("-tm", "20g")
    assert "a TaskExecutor needs 20480 MiB and 2 vcores, but YARN allocates at most 8192 MiB" in too_large
    name_node = yarn.mini_hdfs.getNameNode(0)
    actions = getattr(yarn.jvm.org.apache.hadoop.hdfs.protocol, "HdfsConstants$SafeModeAction")
    name_node.getRpcServer().setSafeMode(actions.SAFEMODE_ENTER, False)
    try:
        assert "is in safe mode and takes no files" in refusal()
    finally:
        name_node.getRpcServer().setSafeMode(actions.SAFEMODE_LEAVE, False)
    assert staged() == {}
    assert not (session.home / "cluster.json").exists()


def test_session_is_found_by_later_commands_and_leaves_nothing(
    session: Cluster,
    kafka: EmbeddedKafka,
    client: Any,
    hadoop: JvmGateway,
    staged: Callable[[], dict[str, str]],
) -> None:
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    shown = session.ok("yarn-session", "-d", *servers, "-nm", "numbers", "-jm", "1g").stderr
    application = session.record.yarn_application
    assert f"{application} created" in shown
    assert "AM container is launched, waiting for AM container to Register with RM" in shown
    records = hadoop.jvm.org.apache.hadoop.yarn.api.records

    def report() -> Any:
        return client.getApplicationReport(records.ApplicationId.fromString(application))

    assert (report().getName(), report().getApplicationType()) == ("numbers", "tailrace")
    assert str(report().getYarnApplicationState().toString()) == "RUNNING"
    assert staged() == {application: "rwx------"}
    assert "ApplicationMasterRegistered" in session.ok("log").stdout
    assert "jobmanager starts" in session.ok("logs", "--application", application).stdout
    session.ok("cluster", "stop")
    wait_until(lambda: str(report().getYarnApplicationState().toString()) == "FINISHED")
    assert str(report().getFinalApplicationStatus().toString()) == "SUCCEEDED"
    # The ApplicationMaster deletes it after its last word to YARN.
    wait_until(lambda: staged() == {})
    assert not (session.home / "cluster.json").exists()


def test_application_of_program_that_fails_has_its_error_and_is_replaced(
    session: Cluster, kafka: EmbeddedKafka, staged: Callable[[], dict[str, str]]
) -> None:
    program = session.home.parent / "program.py"
    program.write_text("raise ValueError('no input')\n")
    arguments = ("run", "-t", "yarn-application", "--bootstrap-servers", kafka.bootstrap_servers)

    def run() -> str:
        failed = session.run(*arguments, "-D", "jobmanager.memory.process.size=1g", str(program))
        assert failed.returncode == 1, failed.stdout + failed.stderr
        job_id = failed.stdout.strip()
        why = "program.py:1: program.py raised ValueError: no input"
        assert f"FAILED: job {job_id} is rejected: {why}" in failed.stderr
        return failed.stderr

    run()
    first = session.record.yarn_application
    wait_until(lambda: staged() == {})
    assert "JobRejected" in session.ok("log").stdout
    assert "application unregistered" in session.ok("logs").stdout
    assert f"{first} has ended (FINISHED job " in run()
    assert session.record.yarn_application != first
