"""All processes of a cluster are replaced by the next release under a running job, and no task restarts.

Kafka, ZooKeeper and all processes are real; tasks are simulated, or real in a soak test. The next release differs in a
schema, a state and a rule, and uses them from the feature level on that it brings
(tests/rolling_upgrade/next_release.py).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.version import __version__
from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.schemas.client import FeatureLevelRejected
from tailrace.schemas.everyone import LeaderElected, SnapshotTaken
from tailrace.schemas.feature_level import FEATURE_LEVEL
from tailrace.schemas.resource_manager import RegisterTaskExecutor
from tailrace.services.cli.local.local_process import LocalProcess
from tailrace.services.client import Client
from tailrace.services.configuration import Configuration
from tailrace.services.core.feature_level import UnknownFeatureLevel
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_candidates import ZooKeeperCandidatesReader
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.factory import create_admin_client

from ..high_availability.job_graphs import LASTING, graph
from ..high_availability.leader_history import LeaderHistory
from ..rolling_upgrade import next_release
from ..rolling_upgrade.next_release import LEVEL, UNWANTED, VERSION, build_next_release

pytestmark = pytest.mark.timeout(600)

MASTERS = ("jobmanager-1", "jobmanager-2")
TASK_EXECUTORS = ("te-1", "te-2")
PARALLELISM = 3


class UpgradedCluster:
    """Two masters and two TaskExecutors of two slots, each of this release or of the next one."""

    def __init__(self, configuration: Configuration, folder: Path) -> None:
        self.configuration = configuration
        self.next = build_next_release(folder / "next")
        self._logs = folder / "log"
        self._processes: dict[str, LocalProcess] = {}
        self.client = Client(configuration, name="upgrade")
        self.history = LeaderHistory(configuration)
        self.candidates = ZooKeeperCandidatesReader(ZooKeeperSettings.from_configuration(configuration))

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> LocalProcess:
        """Starts a process under this name, of this release or of that in the environment."""
        arguments = ["jobmanager"] if name in MASTERS else ["taskexecutor", "--resource-id", name]
        self._processes[name] = LocalProcess.start(
            name,
            arguments,
            log=self._logs / f"{name}.log",
            environment={**self.configuration.environment(), **(environment or {})},
            detached=False,
        )
        return self._processes[name]

    def process(self, name: str) -> LocalProcess:
        return self._processes[name]

    def log_of(self, name: str) -> str:
        """Returns all that the processes of this name have logged."""
        return (self._logs / f"{name}.log").read_text()

    @property
    def leader(self) -> str:
        """The name of the master that leads, according to the log."""
        self.history.catch_up()
        leader = self.history.leader()
        assert leader is not None
        return next(name for name in MASTERS if self.process(name).address == leader.address)

    def levels(self) -> dict[str, int]:
        """Returns the level that each master knows, by the address of the master."""
        return {candidate.address: candidate.feature_level for candidate in self.candidates.read()}

    def until_registered(self, name: str, level: int) -> None:
        """Waits until a TaskExecutor that knows the level has registered."""
        role = f"task_executor/{name}"

        def is_registered() -> bool:
            claims = [
                record.offset
                for record in self.history.records
                if isinstance(body := record.body, LeaderElected)
                and body.role == role
                and body.address == self.process(name).address
                and body.feature_level == level
            ]
            return bool(claims) and any(
                isinstance(record.body, RegisterTaskExecutor)
                and record.header.sender == role
                and record.offset > claims[-1]
                for record in self.history.records
            )

        self.history.until(is_registered, f"registration of {name}")

    def submit(self, job_id: str, parallelism: int) -> None:
        """Submits a job, and waits until all its tasks run."""
        self.client.submit(graph(LASTING, parallelism), job_id=job_id)
        job = self.history.job(job_id)
        self.history.until(lambda: len(job.running) == parallelism, f"{job_id} that runs")

    def refusal(self) -> str:
        """Requests the level of the next release, and returns why it is refused."""
        before = len(self._refusals())
        self.client.raise_feature_level(LEVEL)
        self.history.until(lambda: len(self._refusals()) > before, "answer")
        return self._refusals()[-1]

    def _refusals(self) -> list[str]:
        return [
            record.body.reason
            for record in self.history.said_to.get(self.client.address, ())
            if isinstance(record.body, FeatureLevelRejected)
        ]

    def run_next(self, *arguments: str) -> str:
        """Runs a command of the next release; returns what it prints."""
        environment = {**self.configuration.environment(), **self.next}
        return next_release.run(environment, "tailrace.services.cli", *arguments).stdout

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        self.candidates.close()
        self.history.close()
        self.client.close()


@pytest.fixture(
    params=[
        pytest.param(True, id="simulated tasks"),
        pytest.param(False, id="real tasks", marks=pytest.mark.soak),
    ]
)
def cluster(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[UpgradedCluster]:
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(tmp_path / "zookeeper"))
        configuration = Configuration(
            {
                "cluster.id": cluster_id,
                "bootstrap.servers": kafka.bootstrap_servers,
                "home": str(tmp_path / "home"),
                "simulation.enabled": "true" if request.param else "false",
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": zookeeper.connect_string,
                "high-availability.zookeeper.client.session-timeout": "6 s",
                "heartbeat.interval": "1 s",
                "heartbeat.timeout": "3 min",
                "taskmanager.restart-grace": "3 min",
                "taskmanager.numberOfTaskSlots": "2",
                "snapshot.max-bytes": "64 kb",
            }
        )
        create_cluster_topics(create_admin_client(configuration), kafka.connection, cluster_id)
        yield stack.enter_context(contextlib.closing(UpgradedCluster(configuration, tmp_path)))


def test_rolling_upgrade_restarts_no_task_and_old_release_does_not_return(cluster: UpgradedCluster) -> None:
    history = cluster.history
    for name in (*MASTERS, *TASK_EXECUTORS):
        cluster.start(name)
    for name in TASK_EXECUTORS:
        cluster.until_registered(name, FEATURE_LEVEL)
    cluster.submit("j1", PARALLELISM)
    history.until(lambda: snapshots(history), "snapshot of this release")
    assert f"the leader, knows feature levels up to {FEATURE_LEVEL}" in cluster.refusal()

    first = cluster.leader
    standby = next(name for name in MASTERS if name != first)
    replace_master(cluster, standby)
    assert cluster.leader == first
    replace_master(cluster, first)
    history.until(lambda: cluster.leader == standby, "leader of the next release")
    assert not any("unusable snapshot" in cluster.log_of(name) for name in MASTERS)
    for name in TASK_EXECUTORS:
        refusal = cluster.refusal()
        assert (
            f"do not know feature level {LEVEL}: taskexecutor {name} (up to level {FEATURE_LEVEL})" in refusal
        )
        # SIGTERM would deregister it, and end its tasks.
        cluster.process(name).kill()
        cluster.start(name, cluster.next)
        cluster.until_registered(name, LEVEL)
    # By the rules and with the schemas of this release, which reads all that the next one writes.
    cluster.client.submit(graph(UNWANTED), job_id="j2")
    history.until(lambda: history.job("j2").running, "job at the old level")

    assert json.loads(cluster.run_next("cluster", "upgrade", "-o", "json")) == {
        "before": FEATURE_LEVEL,
        "feature_level": LEVEL,
    }
    with pytest.raises(
        UnknownFeatureLevel, match=rf"install release {VERSION} that the cluster was upgraded to"
    ):
        history.until(lambda: False, "level that this release does not know")
    assert not history.lost
    assert set(history.job("j1").attempts.values()) == {0}
    assert len(history.job("j1").attempts) == PARALLELISM

    cluster.client.submit(graph(UNWANTED), job_id="j3")
    wait_until(lambda: "nobody wants it" in cluster.run_next("log", "--type", "JobRejected"), "the new rule")
    cluster.client.cancel("j2")
    cluster.client.submit(graph(LASTING), job_id="j4")
    wait_until(lambda: new_fields(cluster) == {"j1": 0, "j2": 0, "j4": 1}, "the new field")
    moment = json.loads(cluster.run_next("state", "dispatcher", "-o", "json"))
    assert moment["roles"]["dispatcher"]["accepted_jobs"] == 1
    check_no_restart(cluster)
    for name in (MASTERS[0], TASK_EXECUTORS[0]):
        cluster.process(name).kill()
        returned = cluster.start(name)
        wait_until(lambda process=returned: not process.is_running(), "the end of an old process")  # type: ignore[misc]
        last = returned.last_lines().splitlines()[-1]
        assert f"this release, {__version__}" in last
        assert f"install release {VERSION}" in last


def replace_master(cluster: UpgradedCluster, name: str) -> None:
    """Ends a master in order, and starts one of the next release."""
    process = cluster.process(name)
    process.terminate()
    wait_until(lambda: not process.is_running(), f"the end of {name}")
    address = cluster.start(name, cluster.next).address
    wait_until(lambda: cluster.levels().get(address) == LEVEL, f"{name} of the next release")


def snapshots(history: LeaderHistory) -> list[SnapshotTaken]:
    return [record.body for record in history.records if isinstance(record.body, SnapshotTaken)]


def new_fields(cluster: UpgradedCluster) -> dict[str, int]:
    """Returns the field that this release does not have, by job."""
    lines = cluster.run_next("log", "--type", "JobAccepted", "-o", "json").splitlines()
    return {line["body"]["job_id"]: line["body"]["accepted_jobs"] for line in map(json.loads, lines)}


def check_no_restart(cluster: UpgradedCluster) -> None:
    """Checks in the log that each subtask was deployed once, and that no TaskExecutor was lost."""
    lines = cluster.run_next("log", "--type", "SubmitTask", "-o", "json").splitlines()
    deployed = [
        (subtask["execution_attempt_id"], subtask["attempt_number"])
        for line in map(json.loads, lines)
        for subtask in line["body"]["subtasks"]
    ]
    assert len(deployed) == len(set(deployed)) >= PARALLELISM + 1
    assert {number for _, number in deployed} == {0}
    assert cluster.run_next("log", "--type", "TaskExecutorLost") == ""
