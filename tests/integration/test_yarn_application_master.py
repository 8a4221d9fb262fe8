"""The jobmanager as ApplicationMaster in a real YARN: TaskExecutors run in containers, and survive it.

One application and one job serve all tests, in order.
"""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from polling import wait_until
from process_status import command_line, environment

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.event import Record
from tailrace.services.cli.demo.text_server import TextServer
from tailrace.services.configuration import Configuration
from tailrace.services.yarn.jvm_gateway import JvmGateway

from .test_cluster import PROGRAM, Cluster
from .test_kill import LogFollower, runs

pytestmark = pytest.mark.timeout(600)


class YarnCluster(Cluster):
    """A cluster whose jobmanager is an ApplicationMaster, submitted by Hadoop's own client."""

    def __init__(self, home: Path, kafka: EmbeddedKafka, cluster_id: str, yarn: EmbeddedYarn) -> None:
        super().__init__(
            home, TAILRACE_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, TAILRACE_CLUSTER_ID=cluster_id
        )
        self._yarn = yarn
        self._gateway = JvmGateway(yarn.configuration_dir)
        self._client = self._gateway.jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
        self._client.init(self._gateway.configuration())
        self._client.start()
        self._application: Any = None
        self._files: Any = None
        self._staging: Any = None
        self.job_id = ""

    @property
    def configuration(self) -> Configuration:
        return Configuration(
            {
                "home": str(self.home),
                "bootstrap.servers": self.environment["TAILRACE_BOOTSTRAP_SERVERS"],
                "cluster.id": self.environment["TAILRACE_CLUSTER_ID"],
            }
        )

    def submit(self, **options: str) -> None:
        """`options`: further environment of the ApplicationMaster."""
        records = self._gateway.jvm.org.apache.hadoop.yarn.api.records
        context = self._client.createApplication().getApplicationSubmissionContext()
        self._application = context.getApplicationId()
        apache = self._gateway.jvm.org.apache.hadoop
        self._files = apache.fs.FileSystem.get(self._gateway.configuration())
        self._staging = self._files.makeQualified(
            apache.fs.Path(f"staging-of-{self.environment['TAILRACE_CLUSTER_ID']}")
        )
        self._files.mkdirs(self._staging)
        own = {
            **{name: value for name, value in self.environment.items() if name.startswith("TAILRACE_")},
            "TAILRACE_HOME": "$PWD",
            "TAILRACE_YARN_STAGING": str(self._staging.toString()),
            "TAILRACE_HIGH_AVAILABILITY_STORAGEDIR": (self.home / "storage").as_uri(),
            "TAILRACE_RESOURCEMANAGER_MODE": "active",
            "TAILRACE_RESOURCEMANAGER_WORKER_DRIVER": "yarn",
            "TAILRACE_TASKMANAGER_NUMBEROFTASKSLOTS": "1",
            "TAILRACE_TASKMANAGER_MEMORY_PROCESS_SIZE": "1 gb",
            "TAILRACE_YARN_HEARTBEAT_INTERVAL": "500 ms",
            "TAILRACE_SLOT_REQUEST_TIMEOUT": "4 min",
            "TAILRACE_RESOURCEMANAGER_TASKMANAGER_TIMEOUT": "2 s",
            "TAILRACE_SLOT_IDLE_TIMEOUT": "500 ms",
            "HADOOP_CONF_DIR": str(self._yarn.configuration_dir),
            "PATH": os.environ["PATH"],
            **options,
        }
        command = f"{sys.executable} -P -m tailrace.services.cli jobmanager"
        context.setAMContainerSpec(
            records.ContainerLaunchContext.newInstance(
                self._gateway.jvm.java.util.HashMap(),
                self._gateway.jvm.java.util.HashMap(own),
                self._gateway.list_of([f"{command} 1> <LOG_DIR>/jobmanager.out 2> <LOG_DIR>/jobmanager.err"]),
                None,
                None,
                None,
            )
        )
        context.setResource(records.Resource.newInstance(1024, 1))
        context.setApplicationName("tailrace")
        context.setKeepContainersAcrossApplicationAttempts(True)
        context.setMaxAppAttempts(3)
        self._client.submitApplication(context)

    def submit_sleeper(self, queue: str, memory_mib: int) -> Any:
        """Submits an application that only occupies its container; returns its id."""
        records = self._gateway.jvm.org.apache.hadoop.yarn.api.records
        context = self._client.createApplication().getApplicationSubmissionContext()
        context.setAMContainerSpec(
            records.ContainerLaunchContext.newInstance(
                self._gateway.jvm.java.util.HashMap(),
                self._gateway.jvm.java.util.HashMap(),
                self._gateway.list_of(["sleep 600"]),
                None,
                None,
                None,
            )
        )
        context.setResource(records.Resource.newInstance(memory_mib, 1))
        context.setQueue(queue)
        context.setMaxAppAttempts(1)
        return self._client.submitApplication(context)

    def kill_application(self, application_id: Any) -> None:
        self._client.killApplication(application_id)

    def report(self) -> Any:
        return self._client.getApplicationReport(self._application)

    def has_staging_directory(self) -> bool:
        return bool(self._files.exists(self._staging))

    @property
    def state(self) -> str:
        return str(self.report().getYarnApplicationState().toString())

    @property
    def master_container(self) -> str:
        attempt = self.report().getCurrentApplicationAttemptId()
        return str(self._client.getApplicationAttemptReport(attempt).getAMContainerId().toString())

    def containers(self) -> list[psutil.Process]:
        return self._yarn.containers()

    def kill(self, container_id: str) -> None:
        """Sends SIGKILL to the Python process of a container."""
        for process in self._yarn.containers():
            is_of_container = environment(process).get("CONTAINER_ID") == container_id
            if is_of_container and command_line(process)[1:3] == ["-P", "-m"]:
                process.kill()

    def close(self) -> None:
        self._client.killApplication(self._application)
        wait_until(lambda: not self._yarn.containers())
        self._gateway.close()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka, yarn: EmbeddedYarn
) -> Iterator[YarnCluster]:
    made = YarnCluster(tmp_path_factory.mktemp("yarn") / "home", kafka, "yarn", yarn)
    made.submit()
    wait_until(lambda: made.state == "RUNNING")
    yield made
    made.close()


@pytest.fixture(scope="module")
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=100)
    yield server
    server.close()


@pytest.fixture
def log(cluster: YarnCluster) -> Iterator[LogFollower]:
    conversation = LogFollower(cluster)
    yield conversation
    conversation.close()


def container_of(started: Record) -> str:
    assert isinstance(started.body, resource_manager.WorkerStarted)
    return started.body.address.rpartition(":")[2]


def test_killed_container_completes_with_exit_status_and_is_replaced(
    cluster: YarnCluster, log: LogFollower, text: TextServer
) -> None:
    restarts = ["-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=100"]
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    cluster.job_id = cluster.ok("run", "-d", "-p", "1", *restarts, str(PROGRAM), *options).stdout.strip()
    first = container_of(log.until(resource_manager.WorkerStarted))
    log.until(job_master.UpdateTaskExecutionState, runs)

    cluster.kill(first)
    completed = log.until(resource_manager.ContainerCompleted)
    assert isinstance(completed.body, resource_manager.ContainerCompleted)
    assert (completed.body.container_id, completed.body.exit_status) == (first, 128 + signal.SIGKILL)
    assert "exit code 137" in completed.body.diagnostics
    log.until(resource_manager.WorkerStarted)
    log.until(job_master.UpdateTaskExecutionState, runs)
    for entity in (cluster.job_id, "worker-1", first):
        assert "exit_status=137" in cluster.ok("story", entity).stdout


def test_next_application_master_adopts_containers_and_restarts_no_task(
    cluster: YarnCluster, log: LogFollower
) -> None:
    cluster.kill(cluster.master_container)
    registered = log.until(resource_manager.ApplicationMasterRegistered)
    assert isinstance(registered.body, resource_manager.ApplicationMasterRegistered)
    assert registered.body.attempt == 2
    assert len(registered.body.previous_containers) == 1
    log.until_silent()
    restarts = (everyone.TaskExecutorLost, job_master.RestartScheduled, task_executor.SubmitTask)
    assert not [record for record in log.read if isinstance(record.body, restarts)]


def test_idle_container_is_given_back_and_application_ends_in_order(
    cluster: YarnCluster, log: LogFollower
) -> None:
    # As a user of YARN's web page does.
    proxied = cluster.report().getTrackingUrl()
    assert "/proxy/application_" in proxied
    with urllib.request.urlopen(f"{proxied}jobs/{cluster.job_id[-32:]}/yarn-cancel") as answer:
        assert answer.status == 202
    stopped = log.until(resource_manager.StopWorker)
    completed = log.until(resource_manager.ContainerCompleted)
    assert stopped.body.resource_id == completed.body.resource_id  # type: ignore[attr-defined]
    assert cluster.has_staging_directory()
    urllib.request.urlopen(
        urllib.request.Request(f"{cluster.report().getOriginalTrackingUrl()}/cluster", method="DELETE")
    )
    terminated = log.until(everyone.ClusterTerminated)
    assert isinstance(terminated.body, everyone.ClusterTerminated)
    assert log.until(resource_manager.ApplicationMasterUnregistered).header.cause == terminated.offset
    assert not cluster.has_staging_directory()
    wait_until(lambda: cluster.state == "FINISHED")
    assert str(cluster.report().getFinalApplicationStatus().toString()) == "SUCCEEDED"
    assert terminated.body.reason in cluster.report().getDiagnostics()
    wait_until(lambda: not cluster.containers())
