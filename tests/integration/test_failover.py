"""Failover continues a job: lost tasks restart alone from their last commit; a TaskExecutor that returns resumes its
tasks.

One cluster of two TaskExecutors, over which jobs are spread evenly. A TaskExecutor that dies may return with its own id
within the heartbeat timeout; one that leaves in order is not waited for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import pytest
from submitted_tasks import SubmittedTask

from tailrace.pipelines.graph.physical_plan import consumer_group
from tailrace.schemas.everyone import TaskExecutorLost
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.types import ExecutionState

from ..fault_injection.consumer_group_lag import describe
from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import RunningJob

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

SHAPE = Shape(records=60_000, rate=4_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("failover") / "home"),
        "taskmanager.numberOfTaskSlots": "2",
        "cluster.evenly-spread-out-slots": "true",
        "taskmanager.restart-grace": "2 min",
        "resourcemanager.standalone.start-up-time": "0 s",
    }
    with FaultInjectionCluster(values) as cluster:
        yield cluster


def running_job(cluster: FaultInjectionCluster, shape: Shape = SHAPE) -> contextlib.closing[RunningJob]:
    """Yields a job whose tasks all run, on both TaskExecutors."""
    job = RunningJob(cluster, shape)
    job.until(job.are_all_running, "job that runs")
    assert len(set(job.places().values())) == 2
    return contextlib.closing(job)


def current(job: RunningJob) -> dict[str, SubmittedTask]:
    """Returns the last attempt of every subtask."""
    last = {(body.vertex_id, body.subtask_index): body for body in job.attempts().values()}
    return {body.execution_attempt_id: body for body in last.values()}


def failures(job: RunningJob) -> dict[str, str | None]:
    """Returns the reason of each failed attempt."""
    return {
        body.execution_attempt_id: body.failure
        for body in job.read_events(UpdateTaskExecutionState)
        if body.job_id == job.id and body.execution_state is ExecutionState.FAILED
    }


def ended(cluster: FaultInjectionCluster, job: RunningJob) -> None:
    """Waits for the end of the job, and checks that each result is there once."""
    job.wait_for_its_end()
    job.check()


def test_restarted_task_executor_resumes_its_tasks_without_failover(
    cluster: FaultInjectionCluster,
) -> None:
    with running_job(cluster) as job:
        job.wait_for_progress()
        before = set(job.attempts())
        victim = cluster.process("taskexecutor-1")
        assert victim is not None
        cluster.kill(victim)
        cluster.start()
        ended(cluster, job)
        assert set(job.attempts()) == before
        assert not job.read_events(TaskExecutorLost)


def test_tasks_of_failed_process_restart_alone_and_reason_is_kept(cluster: FaultInjectionCluster) -> None:
    with running_job(cluster) as job:
        job.wait_for_progress()
        before, earlier = current(job), failures(job)
        cluster.kill(cluster.stream_tasks("taskexecutor-2")[0])
        job.until(lambda: current(job).keys() != before.keys(), "new attempt")
        ended(cluster, job)
        since = {item: why for item, why in failures(job).items() if item not in earlier}
        assert set(since.values()) == {"the process of its StreamTask died"}
        failed = [before[element] for element in since]
        again = [body for value, body in current(job).items() if value not in before]
        assert len({body.subtask_index for body in failed}) == 1, "they are those of one slot"
        assert subtasks(again) == subtasks(failed)
        assert {body.attempt_number for body in again} == {body.attempt_number + 1 for body in failed}


def test_only_tasks_of_lost_task_executor_restart_elsewhere(
    cluster: FaultInjectionCluster,
) -> None:
    with running_job(cluster) as job:
        job.wait_for_progress()
        before, places = current(job), job.places()
        victim = cluster.process("taskexecutor-2")
        assert victim is not None
        victim.terminate()
        job.until(lambda: bool(job.read_events(TaskExecutorLost)), "TaskExecutorLost")
        ended(cluster, job)
        lost = [body for item, body in before.items() if places[item] == "taskexecutor-2"]
        again = [body for element, body in current(job).items() if element not in before]
        assert subtasks(again) == subtasks(lost)
        new_places = {job.places()[task.execution_attempt_id] for task in again}
        assert new_places == {"taskexecutor-1"}
    cluster.start()


def subtasks(attempts: Iterable[SubmittedTask]) -> list[tuple[str, int]]:
    return sorted((attempt.vertex_id, attempt.subtask_index) for attempt in attempts)


def lags(cluster: FaultInjectionCluster, job: RunningJob) -> dict[str, int]:
    """Returns for each group of this job how many messages it has yet to read."""
    result: dict[str, int] = {}
    for lag in describe(cluster.bootstrap_servers):
        if f".{job.id}." in lag.group and lag.committed >= 0:
            assert 0 <= lag.lag == lag.end - lag.committed
            result[lag.group] = result.get(lag.group, 0) + lag.lag
    return result


def test_kafka_tool_reads_lag_of_every_subtask(cluster: FaultInjectionCluster) -> None:
    with running_job(cluster, Shape(records=200_000, rate=4_000)) as job:
        job.wait_for_progress()
        readers = {edge.target_vertex_id for edge in job.graph.edges}
        places = {
            consumer_group(cluster.configuration.cluster_id, job.id, body.vertex_id, body.subtask_index): (
                job.places()[attempt]
            )
            for attempt, body in job.attempts().items()
            if body.vertex_id in readers
        }
        job.until(lambda: set(lags(cluster, job)) == set(places), "lag of every subtask that reads a channel")
        behind = {group for group, place in places.items() if place == "taskexecutor-1"}
        stopped = cluster.stream_tasks("taskexecutor-1")
        for process in stopped:
            cluster.stop(process)
        try:
            # Half of what they would read comes from the other TaskExecutor, some tens of messages each second.
            job.until(lambda: _least(lags(cluster, job), behind) > 50, "subtask that is behind")
        finally:
            for process in stopped:
                cluster.resume(process)
        job.until(lambda: max(lags(cluster, job).values(), default=0) < 50, "job that has caught up")
        ended(cluster, job)


def _least(found: dict[str, int], groups: set[str]) -> int:
    return min(lag for group, lag in found.items() if group in groups)
