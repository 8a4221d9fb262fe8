"""A job that is moved by a quarantine, restarted, paused and resumed, on real servers: each result once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from polling import wait_until

from tailrace.schemas.types import QuarantineMode
from tailrace.services.cli.execution import job_operations
from tailrace.services.cli.execution.quarantines import set_quarantine
from tailrace.services.cli.readers.cluster_state import replay_log
from tailrace.services.history import cluster_view
from tailrace.services.log.topics import log_topic

from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import OPTIONS, RunningJob
from ..log_checker.log_reader import violations_at_rest

pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("control") / "home"),
        "taskmanager.numberOfTaskSlots": "4",
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": "5 s",
        "resourcemanager.standalone.start-up-time": "0 s",
    }
    with FaultInjectionCluster(values) as cluster:
        yield cluster


def held_slots(cluster: FaultInjectionCluster) -> dict[str, int]:
    """Returns TaskExecutor -> the number of its slots that jobs hold."""
    workers = cluster_view.workers(replay_log(cluster.configuration).replica)
    return {worker.resource_id: worker.slots - worker.free_slots for worker in workers}


def test_job_that_moves_restarts_and_pauses_has_each_result_once(cluster: FaultInjectionCluster) -> None:
    configuration = cluster.configuration
    shape = Shape(records=40_000, rate=4_000)
    with contextlib.closing(RunningJob(cluster, shape, options=OPTIONS)) as job:
        job.wait_for_progress()
        before = held_slots(cluster)
        apart = max(before, key=lambda resource_id: before[resource_id])
        assert before[apart] > 0
        set_quarantine(configuration, apart, None, QuarantineMode.QUARANTINED, "a test")
        wait_until(lambda: held_slots(cluster)[apart] == 0)
        job.wait_for_progress()
        job_operations.restart(configuration, job.id, None, None, detached=False)
        job.wait_for_progress()
        job_operations.pause(configuration, job.id, detached=False)
        assert set(held_slots(cluster).values()) == {0}
        set_quarantine(configuration, apart, None, QuarantineMode.RELEASED, "a test")
        job_operations.resume(configuration, job.id, detached=False)
        job.wait_for_its_end()
        job.check()
    _, violations = violations_at_rest(configuration.bootstrap_servers, log_topic(configuration.cluster_id))
    assert violations == []
