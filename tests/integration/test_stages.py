"""Jobs in BATCH mode on real servers: stages one after another, in fewer slots than tasks; each result once."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tailrace.pipelines.api import Formats, KafkaSink, StreamExecutionEnvironment
from tailrace.pipelines.graph.execution_graph import stages_of
from tailrace.schemas.job_master import SlowTaskDetected, UpdateTaskExecutionState
from tailrace.schemas.resource_manager import RequestSlot
from tailrace.schemas.types import ExecutionState, JobGraph
from tailrace.services.log.topics import log_topic

from ..fault_injection import running_job
from ..fault_injection.faults import ALL, Injector, sequence
from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import OPTIONS, RunningJob
from ..log_checker.log_reader import violations_at_rest
from ..replay_check import differences
from ..submitted_tasks import submitted_tasks

pytestmark = pytest.mark.timeout(300)
BATCH = {**OPTIONS, "execution.runtime-mode": "BATCH"}
MOVES = {
    "execution.batch.speculative.enabled": "true",
    "slow-task-detector.execution-time.baseline-lower-bound": "3 s",
    "slow-task-detector.execution-time.baseline-ratio": "0.5",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("stages") / "home"),
        "taskmanager.numberOfTaskSlots": "1",
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": "5 s",
        "resourcemanager.standalone.start-up-time": "0 s",
    }
    with FaultInjectionCluster(values) as cluster:
        yield cluster


def check_log(cluster: FaultInjectionCluster) -> None:
    configuration = cluster.configuration
    _, violations = violations_at_rest(configuration.bootstrap_servers, log_topic(configuration.cluster_id))
    assert violations == []
    results, _ = differences(configuration)
    assert results == []


def stages_in_log(job: RunningJob) -> tuple[list[int], list[int]]:
    """Returns the stages of the tasks that were submitted and that finished, in this order, and checks that a stage
    begins behind the last."""
    stages = stages_of(job.graph)
    stage_of = {attempt: stages[task.vertex_id] for attempt, task in job.attempts().items()}
    sizes = [0] * (1 + max(stages.values()))
    for vertex in job.graph.vertices:
        sizes[stages[vertex.vertex_id]] += vertex.parallelism
    submitted: list[int] = []
    finished: list[int] = []
    for record in job.read:
        body = record.body
        for task in submitted_tasks([body]):
            if task.job_id == job.id:
                stage = stages[task.vertex_id]
                assert len(finished) >= sum(sizes[:stage]), f"stage {stage} begins too early"
                submitted.append(stage)
        if not isinstance(body, UpdateTaskExecutionState) or body.job_id != job.id:
            continue
        if body.execution_state is ExecutionState.FINISHED:
            finished.append(stage_of[body.execution_attempt_id])
    return submitted, finished


def test_job_runs_stage_by_stage_in_two_slots(cluster: FaultInjectionCluster) -> None:
    with contextlib.closing(RunningJob(cluster, Shape(records=10_000), options=BATCH)) as job:
        job.wait_for_its_end()
        job.check()
        subtasks = sum(vertex.parallelism for vertex in job.graph.vertices)
        submitted, finished = stages_in_log(job)
        assert submitted == finished == sorted(submitted)
        assert len(submitted) == subtasks > 2
        requests = [each for each in job.read_events(RequestSlot) if each.job_id == job.id]
        assert len(requests) == 2
    check_log(cluster)


@pytest.mark.soak
def test_slow_task_continues_on_other_task_executor(cluster: FaultInjectionCluster, tmp_path: Path) -> None:
    first = str(tmp_path / "first")

    def is_slow(pair: tuple[str, int]) -> bool:
        # The first process that comes is slow, whatever it does later; its successor is another process.
        with contextlib.suppress(FileExistsError), open(first, "x") as file:
            file.write(str(os.getpid()))
        if Path(first).read_text() == str(os.getpid()):
            time.sleep(0.05)
        return True

    def program(shape: Shape, counts: str, *_: object) -> JobGraph:
        env = StreamExecutionEnvironment(parallelism=shape.parallelism, configuration={**BATCH, **MOVES})
        pairs = env.generate(shape.item, count=shape.records).map(lambda item: (item.key, 1), tuple[str, int])
        counted = pairs.key_by(lambda pair: pair[0], str).reduce(lambda a, b: (a[0], a[1] + b[1]))
        lines = counted.filter(is_slow).map(lambda pair: f"{pair[0]} {pair[1]}", str)
        lines.sink_to(KafkaSink(counts, Formats.text()))
        return env.get_job_graph("slow")

    shape = Shape(records=2_000)
    with (
        mock.patch.object(running_job, "fault_injection_job", program),
        contextlib.closing(RunningJob(cluster, shape)) as job,
    ):
        job.wait_for_its_end()
        assert job.results()[0] == shape.counts()
        (move,) = job.read_events(SlowTaskDetected)
        places = job.places()
        slow = job.attempts()[move.execution_attempt_id]
        attempts = [
            places[attempt]
            for attempt, task in job.attempts().items()
            if (task.vertex_id, task.subtask_index) == (slow.vertex_id, slow.subtask_index)
        ]
        assert len(set(attempts)) == len(attempts) == 2
    check_log(cluster)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_jobs_in_stages_with_faults_have_each_result_once(cluster: FaultInjectionCluster) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"SEED={seed}", flush=True)
    draw = random.Random(seed)
    injector, faults = Injector(cluster, draw), sequence(draw, 20, ALL)
    while faults:
        injector.heal()
        shape = Shape(records=100_000, rate=draw.choice((10_000, 50_000)))
        with contextlib.closing(RunningJob(cluster, shape, options={**BATCH, **MOVES})) as job:
            while faults and not job.has_ended():
                print(injector.inject(faults.pop(0)), flush=True)
            injector.heal()
            job.wait_for_its_end()
            job.check()
            stages_in_log(job)
    check_log(cluster)
