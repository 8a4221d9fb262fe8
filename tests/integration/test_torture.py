"""Every process of a job is killed, or stopped past its timeouts, at random moments: each result is there once.

There is one jobmanager, or several that ZooKeeper elects, whose network is cut, too. The job
(tests/fault_injection/jobs.py) counts and sums generated records into two topics; with any faults, a reader of
committed messages finds exactly the right multisets at the end, and the checker no violation in the log. `FAULTS=20
pytest tests/integration/test_torture.py` injects so many faults into millions of records, with a random seed, which it
prints; `SEED=n` repeats the faults of that seed, though not their times.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator

import pytest

from tailrace.services.log.topics import log_topic

from ..fault_injection import result_topics
from ..fault_injection.faults import (
    ALL,
    HEARTBEAT_TIMEOUT_S,
    SESSION_S,
    WITH_ELECTIONS,
    Fault,
    Injector,
    sequence,
)
from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import OPTIONS, RunningJob
from ..log_checker.log_reader import violations_at_rest
from ..replay_check import differences

FAULTS = int(os.environ.get("FAULTS", "0"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32) if FAULTS else 1))
MANY = Shape(records=2_000_000, keys=100, window_ms=10_000, rate=20_000)
FEW = Shape(records=36_000, rate=3_000)
FEW_FAULTS = (
    Fault("StreamTask", "killed"),
    Fault("kafka", "killed"),
    Fault("taskexecutor", "stopped"),
    # Nobody takes its place: that would be most of the test's time.
    Fault("taskexecutor", "killed", late=True),
)

pytestmark = [pytest.mark.timeout(300 + 120 * FAULTS), *([pytest.mark.soak] if FAULTS else [])]


@pytest.fixture(scope="module")
def draw() -> random.Random:
    print(f"SEED={SEED} FAULTS={FAULTS}", flush=True)
    return random.Random(SEED)


@pytest.fixture(scope="module")
def masters(draw: random.Random) -> int:
    """One jobmanager leads without an election; of several, ZooKeeper elects one."""
    return draw.choice((1, 2, 3)) if FAULTS else 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, masters: int) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("torture") / "home"),
        "taskmanager.numberOfTaskSlots": "2",
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": f"{HEARTBEAT_TIMEOUT_S:g} s",
        "resourcemanager.standalone.start-up-time": "0 s",
    }
    if masters > 1:
        values["high-availability.type"] = "zookeeper"
        values["high-availability.zookeeper.client.session-timeout"] = f"{SESSION_S:g} s"
    with FaultInjectionCluster(values, masters=masters) as cluster:
        yield cluster


def run(cluster: FaultInjectionCluster, shape: Shape, faults: list[Fault], draw: random.Random) -> None:
    """Runs one job after the other until so many faults were injected; each has the right results."""
    injector = Injector(cluster, draw)
    while faults:
        injector.heal()
        source = None
        if draw.random() < 0.5:
            source = result_topics.make(cluster.bootstrap_servers, "indices", 2)
            result_topics.write(cluster.bootstrap_servers, source, map(str, range(shape.records)), 2)
        options = {**OPTIONS, "execution.checkpointing.interval": "1 s"}
        with contextlib.closing(RunningJob(cluster, shape, source, options)) as job:
            print(f"{job.id} reads {source or 'a generator'}", flush=True)
            job.wait_for_progress()
            while faults and not job.has_ended():
                print(injector.inject(faults.pop(0)), flush=True)
                if draw.random() < 0.8:
                    job.wait_for_progress()
                time.sleep(draw.uniform(0, 1))
            job.wait_for_its_end()
            job.check()


def test_each_result_is_there_once_with_random_faults(
    cluster: FaultInjectionCluster, masters: int, draw: random.Random
) -> None:
    kinds = WITH_ELECTIONS if masters > 1 else ALL
    run(cluster, MANY if FAULTS else FEW, sequence(draw, FAULTS, kinds) if FAULTS else list(FEW_FAULTS), draw)
    configuration = cluster.configuration
    _, violations = violations_at_rest(configuration.bootstrap_servers, log_topic(configuration.cluster_id))
    assert violations == []
    results, counts = differences(configuration)
    assert results == []
    assert counts.decided > 0
