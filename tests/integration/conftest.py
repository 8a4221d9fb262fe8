"""The real parts that integration tests share: one Kafka, one runtime, one cluster for all."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runtime_jobs import ENDS, Job, Reports

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import JobGraph
from tailrace.services.log.topics import log_topic

from ..log_checker import check
from ..log_checker.log_reader import read_topic
from .test_cluster import Cluster, started

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell has it for what it runs in the background; who is started here inherits it, and is to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """A running Kafka; its address is `kafka.bootstrap_servers`. Tests that stop or kill one start their own."""
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture
def cluster_id() -> str:
    """A cluster id that no other test has, so that one Kafka serves them all."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the user and password for schema registries that `four_slots` is started with."""
    file = tmp_path_factory.mktemp("credentials") / "registry"
    file.write_text(f"me:hidden-{uuid.uuid4().hex}\n")
    return file


@pytest.fixture(scope="session")
def four_slots(tmp_path_factory: pytest.TempPathFactory, credentials: Path) -> Iterator[Cluster]:
    """A cluster with one TaskExecutor of four slots, for tests that only run jobs; in the end its log is checked.

    Where it is started from lies what must not be imported by mistake.
    """
    home = tmp_path_factory.mktemp("cluster") / "home"
    for path in ("helpers.py", "pipelines/__init__.py", "services/__init__.py", "schemas/__init__.py"):
        decoy = home.parent / path
        decoy.parent.mkdir(parents=True, exist_ok=True)
        decoy.write_text("VERSION = NAME = 'decoy'\n")
    cluster = Cluster(
        home,
        TAILRACE_HEARTBEAT_INTERVAL="500 ms",
        TAILRACE_HEARTBEAT_TIMEOUT="1 min",
        TAILRACE_SLOT_REQUEST_TIMEOUT="1 min",
        TAILRACE_SCHEMA_REGISTRY_BASIC_AUTH_CREDENTIALS_FILE=str(credentials),
    )
    with started(cluster, "--taskexecutors", "1", "--slots", "4"):
        yield cluster
        servers, topic = cluster.record.bootstrap_servers, log_topic(cluster.record.cluster_id)
        assert [str(each) for each in check(list(read_topic(servers, topic)))] == []


@pytest.fixture(scope="session")
def reports() -> Reports:
    """What `runtime` has reported."""
    return Reports()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `runtime` keeps what it needs."""
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="session")
def runtime(kafka: EmbeddedKafka, reports: Reports, scratch: Path) -> Iterator[TaskRuntime]:
    """A TaskExecutor's runtime with no TaskExecutor around it; it has a Spark, so that one serves all tests."""
    running = TaskRuntime(
        bootstrap_servers=kafka.bootstrap_servers,
        scratch=scratch,
        slots=4,
        report=reports,
        report_checkpoint=reports,
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture
def start(
    runtime: TaskRuntime, reports: Reports, kafka: EmbeddedKafka, cluster_id: str
) -> Iterator[Callable[[JobGraph], Job]]:
    """Makes jobs, and cancels what is left of them."""
    jobs: list[Job] = []

    def make(graph: JobGraph) -> Job:
        jobs.append(Job(runtime, reports, kafka.bootstrap_servers, cluster_id, graph))
        return jobs[-1]

    yield make
    for job in jobs:
        known = {each for each, _, _ in reports.all if each.startswith(job.id)}
        job.cancel_all([each for each in known if not ENDS.intersection(reports.of(each))])
