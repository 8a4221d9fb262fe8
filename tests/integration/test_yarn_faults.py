"""Faults of a real YARN: its ResourceManager restarts, a node is lost, a queue takes a container back.

One application and one job serve all tests, in order. Each of the two TaskExecutors fills most of a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from polling import wait_until
from process_status import environment

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.services.cli.demo.text_server import TextServer

from .test_cluster import PROGRAM
from .test_kill import LogFollower, runs
from .test_yarn_application_master import YarnCluster, container_of

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]

SETTINGS = {
    # Otherwise a NodeManager calls the object of the first ResourceManager.
    "yarn.minicluster.use-rpc": "true",
    "yarn.resourcemanager.recovery.enabled": "true",
    "yarn.resourcemanager.store.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
    ),
    "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "500",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "4000",
    "yarn.resourcemanager.scheduler.monitor.enable": "true",
    "yarn.resourcemanager.monitor.capacity.preemption.monitoring_interval": "500",
    "yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill": "2000",
    "yarn.resourcemanager.monitor.capacity.preemption.total_preemption_per_round": "1.0",
    "yarn.resourcemanager.monitor.capacity.preemption.natural_termination_factor": "1.0",
    "yarn.resourcemanager.monitor.capacity.preemption.max_ignored_over_capacity": "0.0",
    "yarn.scheduler.capacity.root.queues": "default,urgent",
    "yarn.scheduler.capacity.root.default.capacity": "50",
    "yarn.scheduler.capacity.root.default.maximum-capacity": "100",
    "yarn.scheduler.capacity.root.urgent.capacity": "50",
}
RESTARTS = (everyone.TaskExecutorLost, job_master.RestartScheduled, task_executor.SubmitTask)


@pytest.fixture(scope="module")
def own_yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedYarn]:
    """Yields a YARN of three nodes that keeps its state, and takes containers back for the queue `urgent`."""
    store = {"yarn.resourcemanager.fs.state-store.uri": tmp_path_factory.mktemp("store").as_uri()}
    with EmbeddedYarn(node_managers=3, settings=SETTINGS | store) as running:
        yield running


@pytest.fixture(scope="module")
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=100)
    yield server
    server.close()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka, own_yarn: EmbeddedYarn, text: TextServer
) -> Iterator[YarnCluster]:
    """Yields a cluster with a running job on two TaskExecutors."""
    made = YarnCluster(tmp_path_factory.mktemp("yarn") / "home", kafka, "yarn-faults", own_yarn)
    made.submit(
        TAILRACE_TASKMANAGER_MEMORY_PROCESS_SIZE="5 gb",
        TAILRACE_TASKMANAGER_SPARK_START_ON_DEMAND="true",
        TAILRACE_HEARTBEAT_TIMEOUT="5 min",
    )
    wait_until(lambda: made.state == "RUNNING")
    follower = LogFollower(made)
    restarts = ["-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=100"]
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    made.job_id = made.ok("run", "-d", "-p", "2", *restarts, str(PROGRAM), *options).stdout.strip()
    follower.until(resource_manager.WorkerStarted)
    follower.until(resource_manager.WorkerStarted)
    follower.until(job_master.UpdateTaskExecutionState, runs)
    follower.until_silent()
    follower.close()
    yield made
    made.close()


@pytest.fixture
def log(cluster: YarnCluster) -> Iterator[LogFollower]:
    conversation = LogFollower(cluster)
    yield conversation
    conversation.close()


def workers(cluster: YarnCluster) -> set[str]:
    """Returns the ids of all containers but the ApplicationMaster's."""
    found = {environment(each).get("CONTAINER_ID") for each in cluster.containers()}
    return {each for each in found if each is not None} - {cluster.master_container}


def node_manager_of(yarn: EmbeddedYarn, container_id: str) -> Any:
    """Returns Hadoop's NodeManager of a container."""
    for number in range(3):
        found = yarn.mini_yarn.getNodeManager(number)
        # An array: the end of a Java iterator is an error in a process that has used PySpark.
        containers = found.getNMContext().getContainers().keySet().toArray()
        if any(str(each.toString()) == container_id for each in containers):
            return found
    raise AssertionError(f"no node has {container_id}")


def silence(yarn: EmbeddedYarn, node_manager: Any) -> None:
    """Ends the heartbeats of a NodeManager. Its containers continue."""
    updater = node_manager.getNodeStatusUpdater()
    kind = yarn.jvm.java.lang.Class.forName("org.apache.hadoop.yarn.server.nodemanager.NodeStatusUpdaterImpl")
    field = kind.getDeclaredField("isStopped")
    field.setAccessible(True)
    field.set(updater, True)


def test_restarted_resource_manager_loses_no_container_and_restarts_no_task(
    cluster: YarnCluster, log: LogFollower, own_yarn: EmbeddedYarn
) -> None:
    before = workers(cluster)
    assert len(before) == 2
    own_yarn.mini_yarn.restartResourceManager(0)
    assert own_yarn.mini_yarn.waitForNodeManagersToConnect(60_000)

    def is_known() -> bool:
        """Returns whether the new ResourceManager counts the containers, and the ApplicationMaster has registered."""
        usage = cluster.report().getApplicationResourceUsageReport()
        return cluster.state == "RUNNING" and usage.getNumUsedContainers() == 3

    wait_until(is_known)
    log.until_silent()
    assert workers(cluster) == before
    assert not [record for record in log.read if isinstance(record.body, RESTARTS)]


def test_container_of_lost_node_is_replaced(
    cluster: YarnCluster, log: LogFollower, own_yarn: EmbeddedYarn
) -> None:
    master = node_manager_of(own_yarn, cluster.master_container)
    home = master.getNMContext().getNodeId()
    lost = min(
        each
        for each in workers(cluster)
        if not node_manager_of(own_yarn, each).getNMContext().getNodeId().equals(home)
    )
    silence(own_yarn, node_manager_of(own_yarn, lost))
    completed = log.until(resource_manager.ContainerCompleted).body
    assert isinstance(completed, resource_manager.ContainerCompleted)
    assert (completed.container_id, completed.exit_status) == (lost, -100)
    started = log.until(resource_manager.WorkerStarted)
    assert container_of(started) not in {lost, cluster.master_container}
    log.until(job_master.UpdateTaskExecutionState, runs)
    log.until_silent()
    (node,) = (each.body for each in log.read if isinstance(each.body, resource_manager.NodeStateChanged))
    assert (node.node, node.state) == (completed.node, "LOST")
    assert node.resource_ids == (completed.resource_id,)
    story = cluster.ok("story", lost).stdout
    assert "exit_status=-100" in story
    assert "LOST" in story


def test_preempted_container_is_replaced_when_there_is_room(cluster: YarnCluster, log: LogFollower) -> None:
    urgent = cluster.submit_sleeper("urgent", memory_mib=6144)
    announced = log.until(resource_manager.PreemptionAnnounced).body
    completed = log.until(resource_manager.ContainerCompleted).body
    assert isinstance(announced, resource_manager.PreemptionAnnounced)
    assert isinstance(completed, resource_manager.ContainerCompleted)
    assert (completed.container_id, completed.exit_status) == (announced.container_id, -102)
    log.until(resource_manager.StartWorker)
    cluster.kill_application(urgent)
    log.until(resource_manager.WorkerStarted)
    log.until(job_master.UpdateTaskExecutionState, runs)
    assert "exit_status=-102" in cluster.ok("story", completed.resource_id).stdout
