"""A job rescaled while it runs, on real servers: no result is lost or repeated."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from polling import wait_until

from tailrace.schemas.client import JobFinished, JobRescaled
from tailrace.schemas.event import Record
from tailrace.schemas.job_master import ScalingDecided
from tailrace.services.client import Client
from tailrace.services.client.rescale_requests import RescaleFailedError, RescaleRequest
from tailrace.services.log.factory import open_event_log
from tailrace.services.log.topics import log_topic

from ..fault_injection import result_topics
from ..fault_injection.faults import ALL, Injector, sequence
from ..fault_injection.jobs import Shape, catching_up
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import OPTIONS, RunningJob
from ..log_checker.log_reader import violations_at_rest
from ..replay_check import differences

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("rescale") / "home"),
        "taskmanager.numberOfTaskSlots": "4",
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": "5 s",
        "resourcemanager.standalone.start-up-time": "0 s",
    }
    with FaultInjectionCluster(values) as cluster:
        yield cluster


def rescale(cluster: FaultInjectionCluster, job: RunningJob, parallelism: int) -> dict[str, int]:
    """Changes the parallelism, and waits until the job runs at it."""
    with Client(cluster.configuration, name="rescale") as client, client.subscribe() as conversation:
        conversation.follow(job.id)
        client.rescale(job.id, parallelism)
        changed = RescaleRequest(job.id, client.address).wait(conversation, timeout_s=120)
        return dict(changed)


def try_to_rescale(cluster: FaultInjectionCluster, job: RunningJob, parallelism: int) -> str:
    """Changes the parallelism; returns what became of that: faults may prevent it, and the job may end."""
    try:
        return f"{parallelism}: {len(rescale(cluster, job, parallelism))} vertices"
    except RescaleFailedError as error:
        return f"{parallelism}: {error}"


def check_log(cluster: FaultInjectionCluster) -> None:
    configuration = cluster.configuration
    _, violations = violations_at_rest(configuration.bootstrap_servers, log_topic(configuration.cluster_id))
    assert violations == []
    results, _ = differences(configuration)
    assert results == []


def test_rescaled_job_has_each_result_once(cluster: FaultInjectionCluster) -> None:
    shape = Shape(records=30_000, rate=4_000)
    with contextlib.closing(RunningJob(cluster, shape, options=OPTIONS)) as job:
        job.wait_for_progress()
        for parallelism in (4, 2):
            assert set(rescale(cluster, job, parallelism).values()) == {parallelism}
            job.wait_for_progress()
        job.wait_for_its_end()
        job.check()
    check_log(cluster)


@pytest.mark.parametrize("is_keyed", [False, True], ids=["in Spark", "in the StreamTask"])
def test_backlog_of_a_slow_function_scales_the_job_up_and_its_end_down_again(
    cluster: FaultInjectionCluster, is_keyed: bool
) -> None:
    servers, partitions = cluster.bootstrap_servers, 4
    shape = Shape(records=16_000 if is_keyed else 30_000, keys=100, parallelism=1)
    source = result_topics.make(servers, "backlog", partitions)
    counts = result_topics.make(servers, "counts", 1)
    result_topics.write(servers, source, map(str, range(shape.records)), partitions)
    options = {
        **OPTIONS,
        "job.autoscaler.enabled": "true",
        "job.autoscaler.stabilization.interval": "0 s",
        "job.autoscaler.metrics.window": "2 s",
        "job.autoscaler.catch-up.duration": "1 s",
        "job.autoscaler.scale-up.grace-period": "1 s",
        "job.autoscaler.backlog-processing.lag-threshold": "1 s",
        "job.autoscaler.scale-down.max-factor": "1.0",
        "job.autoscaler.vertex.max-parallelism": str(partitions),
    }
    graph = catching_up(shape, source, counts, options, 0.001, is_keyed=is_keyed)
    log = open_event_log(cluster.configuration)
    with (
        contextlib.closing(log),
        contextlib.closing(log.tail(log.end())) as tail,
        Client(cluster.configuration) as client,
    ):
        job_id = client.submit(graph)
        read: list[Record] = []

        def said(kind: type[Any]) -> list[Any]:
            read.extend(tail.poll(0.05))
            return [each.body for each in read if isinstance(each.body, kind) and each.body.job_id == job_id]

        def parallelism() -> dict[str, int]:
            return {name: count for each in said(JobRescaled) for name, count in each.parallelism.items()}

        wait_until(lambda: said(JobRescaled), "a rescale")
        assert set(said(JobRescaled)[0].parallelism.values()) == {partitions}
        wait_until(lambda: result_topics.read(servers, counts).total() >= shape.records, "all results")
        wait_until(lambda: set(parallelism().values()) == {1}, "a rescale to parallelism 1")
        client.cancel(job_id)
        wait_until(lambda: said(JobFinished), "the end")
        reasons = [each.reason for each in said(ScalingDecided)]
    assert not result_topics.difference(result_topics.read(servers, counts), shape.counts()), reasons
    check_log(cluster)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_job_rescaled_twenty_times_with_faults_has_each_result_once(cluster: FaultInjectionCluster) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"SEED={seed}", flush=True)
    draw = random.Random(seed)
    injector, faults = Injector(cluster, draw), sequence(draw, 20, ALL)
    rescales = 0
    while rescales < 20:
        injector.heal()
        options = {**OPTIONS, "execution.checkpointing.interval": "1 s"}
        shape = Shape(records=2_000_000, keys=100, window_ms=10_000, rate=20_000)
        with contextlib.closing(RunningJob(cluster, shape, options=options)) as job:
            job.wait_for_progress()
            while rescales < 20 and not job.has_ended():
                if faults and draw.random() < 0.7:
                    print(injector.inject(faults.pop(0)), flush=True)
                outcome = try_to_rescale(cluster, job, draw.choice((1, 2, 3, 4)))
                print(f"rescale {rescales} to {outcome}", flush=True)
                rescales += outcome.endswith("vertices")
            job.wait_for_its_end()
            job.check()
    check_log(cluster)
