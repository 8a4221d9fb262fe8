"""A cluster in YARN, from the command line: what can't work is refused before anything is uploaded, and a session that
has ended leaves nothing."""

from __future__ import annotations

import contextlib
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.services.cli.demo.text_server import TextServer
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.factory import open_event_log
from tailrace.services.yarn.jvm_gateway import JvmGateway

from .test_cluster import PROGRAM, Cluster

START = (
    "SubmitJob ProgramAccepted JobGraphBuilt JobAccepted StartJob RegisterJobManager RequestSlot StartWorker "
    "WorkerStarted RegisterTaskExecutor TaskExecutorRegistrationSuccess SendSlotReport RequestSlot "
    "RegisterTaskManager OfferSlots SlotsAccepted SubmitTask UpdateTaskExecutionState"
)
END = (
    "ApplicationMasterRegistered CancelJob CancelTask FreeSlot DisconnectJobManager JobFinished ShutDownCluster "
    "DisconnectResourceManager ContainerCompleted ClusterTerminated ApplicationMasterUnregistered"
)
"""What the log has of an application, in this order, among other events."""

_UNCHANGED, _NO_QUOTA = (1 << 63) - 1, -1


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


@pytest.fixture
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=100)
    yield server
    server.close()


def names_of_events(session: Cluster) -> list[str]:
    log = open_event_log(session.configuration)
    try:
        return [record.body.AVRO_NAME.rpartition(".")[2] for batch in read_to_end(log) for record in batch]
    finally:
        log.close()


def find_processes(yarn: EmbeddedYarn, application: str, name: str) -> list[psutil.Process]:
    """Returns the processes of the ApplicationMaster's container: python or java."""
    found = []
    for process in yarn.containers():
        with contextlib.suppress(psutil.Error):
            is_master = process.environ()["CONTAINER_ID"].endswith("_000001")
            if is_master and application.partition("_")[2] in process.environ()["CONTAINER_ID"]:
                found += [process] if process.name().startswith(name) else []
    return found


def test_servers_listen_on_loopback_only(yarn: EmbeddedYarn, client: Any) -> None:
    assert client.getYarnClusterMetrics().getNumNodeManagers() == 2
    connections = psutil.Process(yarn.pid).net_connections("tcp")
    assert {each.laddr.ip for each in connections if each.status == "LISTEN"} == {"127.0.0.1"}


@pytest.mark.soak
def test_session_that_cannot_work_is_refused_and_leaves_nothing(
    session: Cluster, kafka: EmbeddedKafka, yarn: EmbeddedYarn, staged: Callable[[], dict[str, str]]
) -> None:
    """`make test` checks each reason in tests/services/yarn/test_resource_check.py."""

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
    files, home = yarn.mini_hdfs.getFileSystem(), yarn.mini_hdfs.getFileSystem().getHomeDirectory()
    files.mkdirs(home)
    files.setQuota(home, _UNCHANGED, 1 << 20)
    try:
        assert "the quota of the directory is used up: free space there" in refusal()
    finally:
        files.setQuota(home, _UNCHANGED, _NO_QUOTA)
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


@pytest.mark.soak
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


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_story_of_application_from_start_to_what_remains(
    session: Cluster,
    kafka: EmbeddedKafka,
    yarn: EmbeddedYarn,
    client: Any,
    hadoop: JvmGateway,
    staged: Callable[[], dict[str, str]],
    text: TextServer,
) -> None:
    options = {
        "jobmanager.memory.process.size": "1g",
        "taskmanager.memory.process.size": "1g",
        "taskmanager.numberOfTaskSlots": "1",
        "slot.request.timeout": "5 min",
        "yarn.heartbeat.interval": "500 ms",
        "high-availability.storageDir": (session.home.parent / "storage").as_uri(),
    }
    given = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    started = session.ok(
        "run", "-t", "yarn-application", "-d", "-p", "1", "--bootstrap-servers", kafka.bootstrap_servers, *given,
        str(PROGRAM), "--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2",
    )  # fmt: skip
    job_id, application = started.stdout.strip(), session.record.yarn_application
    for shown in ("MiB and 8 vcores", "queue default", "created", "job.json", "ACCEPTED", "RUNNING"):
        assert shown in started.stderr
    records = hadoop.jvm.org.apache.hadoop.yarn.api.records

    def report() -> Any:
        return client.getApplicationReport(records.ApplicationId.fromString(application))

    assert staged() == {application: "rwx------"}
    wait_until(lambda: "RUNNING" in session.ok("list", "--status", "RUNNING").stdout, "the job runs")
    wait_until(lambda: session.ok("output", job_id).stdout.strip(), "the job has counted words")
    for process in find_processes(yarn, application, "python"):
        process.kill()
    registered = "ApplicationMasterRegistered"
    wait_until(lambda: names_of_events(session).count(registered) == 2, "the next attempt registers")
    wait_until(lambda: str(report().getYarnApplicationState().toString()) == "RUNNING", "it runs")
    url = f"{report().getTrackingUrl()}jobs/{job_id[-32:]}/yarn-cancel"
    assert f"/proxy/{application}/" in url
    with urllib.request.urlopen(url, timeout=120) as answer:
        assert answer.status == 202
    wait_until(lambda: str(report().getYarnApplicationState().toString()) == "FINISHED", "it has ended")
    assert str(report().getFinalApplicationStatus().toString()) == "KILLED"
    assert report().getDiagnostics() == f"job {job_id} is CANCELED"
    wait_until(lambda: staged() == {} and not yarn.containers(), "nothing is left in YARN and on HDFS")
    events = names_of_events(session)
    unread = iter(events)
    missing = [name for name in (*START.split(), *END.split()) if name not in unread]
    assert not missing, (missing, events)
    assert events.count("SubmitTask") == 1
    assert not {"RestartScheduled", "TaskExecutorLost", "JobRejected"} & set(events)
    logs = session.ok("logs").stdout
    assert all(f"{attempt:02}_000001 on " in logs for attempt in (1, 2))
    assert "CANCELED" in session.ok("list").stdout
    assert "WorkerStarted" in session.ok("story", "worker-1").stdout


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_killed_session_leaves_directory_that_later_commands_remove(
    session: Cluster,
    kafka: EmbeddedKafka,
    client: Any,
    hadoop: JvmGateway,
    staged: Callable[[], dict[str, str]],
) -> None:
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    session.ok("yarn-session", "-d", *servers, "-jm", "1g")
    application = session.record.yarn_application
    records = hadoop.jvm.org.apache.hadoop.yarn.api.records
    client.killApplication(records.ApplicationId.fromString(application))
    assert f"{application} is KILLED" in session.ok("cluster", "clean").stdout
    assert list(staged()) == [application]
    session.ok("cluster", "clean", "--yes")
    assert staged() == {}
    assert f"{application} has ended (KILLED" in session.ok("cluster", "stop").stderr
    assert not (session.home / "cluster.json").exists()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_attempt_after_end_of_cluster_only_unregisters(
    session: Cluster,
    kafka: EmbeddedKafka,
    yarn: EmbeddedYarn,
    client: Any,
    hadoop: JvmGateway,
    staged: Callable[[], dict[str, str]],
) -> None:
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    session.ok("yarn-session", "-d", *servers, "-jm", "1g")
    application, configuration = session.record.yarn_application, session.configuration
    wait_until(lambda: "ApplicationMasterRegistered" in names_of_events(session), "it has registered")
    for jvm in find_processes(yarn, application, "java"):
        # It cannot unregister now.
        jvm.send_signal(signal.SIGSTOP)
    session.ok("cluster", "stop")
    for process in (*find_processes(yarn, application, "python"), *find_processes(yarn, application, "java")):
        process.kill()
    records = hadoop.jvm.org.apache.hadoop.yarn.api.records

    def report() -> Any:
        return client.getApplicationReport(records.ApplicationId.fromString(application))

    wait_until(lambda: str(report().getYarnApplicationState().toString()) == "FINISHED", "it has ended")
    assert str(report().getFinalApplicationStatus().toString()) == "SUCCEEDED"
    assert report().getCurrentApplicationAttemptId().getAttemptId() == 2
    wait_until(lambda: staged() == {}, "the staging directory is deleted")
    log = open_event_log(configuration)
    events = [record.body.AVRO_NAME.rpartition(".")[2] for batch in read_to_end(log) for record in batch]
    log.close()
    assert (events.count("ClusterTerminated"), events[-1]) == (1, "ClusterTerminated")
