"""The real parts that integration tests share: one Kafka for the session, a cluster id for each test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runtime_jobs import ENDS, Job, Reports

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.runtime import TaskRuntime
from tailrace.schemas.types import JobGraph


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """A running Kafka; its address is `kafka.bootstrap_servers`. Tests that stop or kill one start their own."""
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture
def cluster_id() -> str:
    """A cluster id that no other test has, so that one Kafka serves them all."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="module")
def reports() -> Reports:
    """What `runtime` has reported."""
    return Reports()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `runtime` keeps what it needs."""
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="module")
def runtime(kafka: EmbeddedKafka, reports: Reports, scratch: Path) -> Iterator[TaskRuntime]:
    """A TaskExecutor's runtime with no TaskExecutor around it."""
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
