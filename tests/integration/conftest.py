"""Servers that integration tests share: one Kafka, one runtime, one cluster for all."""

from __future__ import annotations

import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from polling import TIMEOUT_S
from runtime_jobs import ENDS, Job, Reports
from secured_kafka import SecuredKafka, secured_kafka
from trace_collector import Collector, run_collector

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import JobGraph
from tailrace.services.log.topics import log_topic

from ..log_checker.log_reader import violations_at_rest
from .test_cluster import EAGER_SPARK, Cluster, started

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell has it for what it runs in the background; who is started here inherits it, and is to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """Yields a running Kafka; its address is `kafka.bootstrap_servers`. Tests that stop or kill a Kafka start their
    own."""
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yields Debian's Chromium without windows."""
    found = [
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    ]
    if not found:
        pytest.skip("there is no Chromium: apt-get install -y chromium")
    # By default an expectation waits for 5 s, which a busy machine does not hold.
    expect.set_options(timeout=TIMEOUT_S * 1000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found[0], args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredKafka]:
    """Yields a running secured Kafka: SASL_SSL, users of SCRAM and PLAIN, ACLs. Each test adds its own users."""
    with secured_kafka() as running:
        yield running


@pytest.fixture(scope="session")
def yarn() -> Iterator[EmbeddedYarn]:
    """Yields a YARN with two NodeManagers, and an HDFS."""
    with EmbeddedYarn() as running:
        yield running


@pytest.fixture(scope="session")
def other_kafka() -> Iterator[EmbeddedKafka]:
    """Yields a second Kafka cluster."""
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture
def cluster_id() -> str:
    """Returns a unique cluster id, so that one Kafka serves all tests."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the file with the user and password for schema registries that `four_slots` is started with."""
    file = tmp_path_factory.mktemp("credentials") / "registry"
    file.write_text(f"me:hidden-{uuid.uuid4().hex}\n")
    return file


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Returns the collector that `four_slots` exports its traces to."""
    with run_collector() as running:
        yield running


@pytest.fixture(scope="session")
def four_slots(
    tmp_path_factory: pytest.TempPathFactory, credentials: Path, collector: Collector
) -> Iterator[Cluster]:
    """Yields a cluster with one TaskExecutor of four slots, for tests that only run jobs; at the end its log is
    checked.

    Its working directory has modules that must not be imported by mistake.
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
        TAILRACE_METRICS_REPORTER_PROM_PORT="0",
        TAILRACE_KAFKA_STATISTICS_INTERVAL_MS="1000",
        TAILRACE_TRACES_REPORTER_OTLP_EXPORTER_ENDPOINT=collector.url,
        TAILRACE_SCHEMA_REGISTRY_BASIC_AUTH_CREDENTIALS_FILE=str(credentials),
        **EAGER_SPARK,
    )
    with started(cluster, "--taskexecutors", "1", "--slots", "4"):
        yield cluster
        servers, topic = cluster.record.bootstrap_servers, log_topic(cluster.record.cluster_id)
        assert violations_at_rest(servers, topic)[1] == []


@pytest.fixture(scope="session")
def reports() -> Reports:
    """Returns the reports of `runtime`."""
    return Reports()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory of `runtime`."""
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="session")
def runtime(kafka: EmbeddedKafka, reports: Reports, scratch: Path) -> Iterator[TaskRuntime]:
    """Yields the runtime of a TaskExecutor without the TaskExecutor; one serves all tests because it starts Spark."""
    running = TaskRuntime(
        kafka=kafka.connection,
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
    """Creates jobs, and cancels the remaining ones at the end."""
    jobs: list[Job] = []

    def make(graph: JobGraph) -> Job:
        jobs.append(Job(runtime, reports, kafka.bootstrap_servers, cluster_id, graph))
        return jobs[-1]

    yield make
    for job in jobs:
        known = {item for item, _, _ in reports.all if item.startswith(job.id)}
        job.cancel_all([element for element in known if not ENDS.intersection(reports.of(element))])
