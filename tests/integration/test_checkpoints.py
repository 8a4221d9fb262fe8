"""Checkpoints on real servers: taken while a job runs, retained as configured, and restored by rollbacks.

A rollback repeats what came after the checkpoint, so a reader may find those results twice; none is missing, and none
is wrong.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tailrace.pipelines.checkpoint.layout import METADATA
from tailrace.pipelines.graph.physical_plan import changelog_topic
from tailrace.schemas.job_master import CheckpointCompleted, CheckpointRestored, UpdateTaskExecutionState
from tailrace.schemas.types import CompletedCheckpoint, JobStatus
from tailrace.services.client import Client
from tailrace.services.client.checkpoint_requests import request_checkpoint
from tailrace.services.log.topics import log_topic

from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import OPTIONS, RunningJob
from ..log_checker.log_reader import violations_at_rest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

# Slow enough for some checkpoints to be completed meanwhile, also on a machine that has much else to do.
SHAPE = Shape(records=60_000, rate=1_500)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints") / "home"


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(home),
        "taskmanager.numberOfTaskSlots": "3",
        "resourcemanager.standalone.start-up-time": "0 s",
    }
    with FaultInjectionCluster(values, taskexecutors=1) as cluster:
        yield cluster


def running_job(cluster: FaultInjectionCluster, **options: str) -> contextlib.closing[RunningJob]:
    """Yields a job whose tasks all run. Options have `_` for `.` and `__` for `-`."""
    named = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    job = RunningJob(cluster, SHAPE, options={**OPTIONS, **named})
    job.until(job.are_all_running, "job that runs")
    return contextlib.closing(job)


def completed(job: RunningJob) -> list[CompletedCheckpoint]:
    return [event.checkpoint for event in job.read_events(CheckpointCompleted) if event.job_id == job.id]


def chk(directory: Path) -> set[str]:
    """Returns the intact checkpoints in storage."""
    return {path.parent.name for path in directory.glob(f"chk-*/{METADATA}")}


def asked_for(cluster: FaultInjectionCluster, job: RunningJob) -> CompletedCheckpoint:
    """Requests a checkpoint, with some records after it."""
    checkpoint = request_checkpoint(
        cluster.configuration, job.id, lambda client: client.trigger_checkpoint(job.id)
    )
    job.wait_for_progress()
    return checkpoint


def lose_progress(cluster: FaultInjectionCluster, job: RunningJob) -> None:
    """Deletes the changelog of the counts, and kills one of their tasks so that it looks for it."""
    vertex = next(
        vertex for vertex in job.graph.vertices if "Reduce" in vertex.name and "Sink" in vertex.name
    )
    topic = changelog_topic(cluster.configuration.cluster_id, job.id, vertex.vertex_id)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)
    for task in cluster.stream_tasks(cluster.taskexecutors[0]):
        cluster.kill(task)


def restored(job: RunningJob) -> list[CheckpointRestored]:
    return [event for event in job.read_events(CheckpointRestored) if event.job_id == job.id]


def all_there(job: RunningJob) -> None:
    """Checks that no result is missing or wrong; some may be duplicates, one for each time they were computed."""
    for counts, right in zip(job.results(), (SHAPE.counts(), SHAPE.sums()), strict=True):
        assert set(counts) == set(right)
        assert max(counts.values()) <= 2


def test_checkpoints_are_taken_while_job_runs_and_deleted_with_it(
    cluster: FaultInjectionCluster, home: Path
) -> None:
    with running_job(cluster, execution_checkpointing_interval="500 ms") as job:
        job.until(lambda: len(completed(job)) >= 3 or job.has_ended(), "third checkpoint")
        directory = home / "checkpoints" / job.id
        assert completed(job)[-1].checkpoint_id >= 3
        job.until(lambda: "chk-1" not in chk(directory) and len(chk(directory)) <= 2, "discarded checkpoint")
        job.wait_for_its_end()
        job.check()
        assert chk(directory) == set(), "nothing is kept by default"


def test_job_with_lost_changelog_rolls_back_to_last_checkpoint(
    cluster: FaultInjectionCluster,
) -> None:
    with running_job(cluster, execution_checkpointing_interval="1 s") as job:
        job.until(lambda: bool(completed(job)), "checkpoint")
        lose_progress(cluster, job)
        job.until(lambda: bool(restored(job)), "rollback")
        assert any(event.progress_lost for event in job.read_events(UpdateTaskExecutionState))
        job.wait_for_its_end()
        all_there(job)


def test_corrupt_checkpoint_is_skipped(cluster: FaultInjectionCluster, home: Path) -> None:
    options = {"execution_checkpointing_interval": "1 h", "state_checkpoints_num__retained": "3"}
    with running_job(cluster, **options) as job:
        whole, torn = asked_for(cluster, job), asked_for(cluster, job)
        metadata = home / "checkpoints" / job.id / f"chk-{torn.checkpoint_id}" / METADATA
        metadata.write_bytes(metadata.read_bytes()[:-7])
        lose_progress(cluster, job)
        job.until(lambda: bool(restored(job)), "rollback")
        (back,) = restored(job)
        assert back.checkpoint is not None
        assert back.checkpoint.checkpoint_id == whole.checkpoint_id
        assert [item.rpartition("/")[2] for item in back.passed_over] == [f"chk-{torn.checkpoint_id}"]
        job.wait_for_its_end()
        all_there(job)


def test_checkpoint_retained_on_cancellation_is_restored_at_other_parallelism(
    cluster: FaultInjectionCluster, home: Path
) -> None:
    retained = "RETAIN_ON_CANCELLATION"
    with running_job(
        cluster,
        execution_checkpointing_interval="1 h",
        execution_checkpointing_externalized__checkpoint__retention=retained,
    ) as job:
        job.until(lambda: all(job.results()), "result of each kind")
        checkpoint = asked_for(cluster, job)
        with Client(cluster.configuration) as client:
            client.cancel(job.id)
        job.until(job.has_ended, "end")
        assert job.status is JobStatus.CANCELED
        before = job.results()
    directory = home / "checkpoints" / job.id
    assert chk(directory) == {f"chk-{checkpoint.checkpoint_id}"}
    rescaled = Shape(records=60_000, rate=20_000, parallelism=3)
    with contextlib.closing(RunningJob(cluster, rescaled, savepoint=checkpoint.uri)) as successor:
        successor.wait_for_its_end()
        for earlier, later, right in zip(
            before, successor.results(), (SHAPE.counts(), SHAPE.sums()), strict=True
        ):
            assert set(later.values()) == {1}, "no result is there twice"
            assert set(later) < set(right), "it did not begin anew"
            assert set(earlier) | set(later) == set(right)
            assert_suffix(later, right)


def assert_suffix(later: Counter[str], right: Counter[str]) -> None:
    """Checks that each key has all results from some point on."""
    by_key: dict[str, list[int]] = {}
    for item in later:
        key, number = item.split()[:2]
        by_key.setdefault(key, []).append(int(number))
    last: dict[str, int] = {}
    for item in right:
        key, number = item.split()[:2]
        last[key] = max(last.get(key, 0), int(number))
    for key, numbers in by_key.items():
        assert sorted(numbers) == list(range(min(numbers), last[key] + 1)), key


def test_log_has_no_violations(cluster: FaultInjectionCluster) -> None:
    configuration = cluster.configuration
    _, violations = violations_at_rest(configuration.bootstrap_servers, log_topic(configuration.cluster_id))
    assert violations == []
