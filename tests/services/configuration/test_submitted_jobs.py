"""The options of a submission: invalid ones are rejected at once, valid ones precede the cluster's."""

from __future__ import annotations

import msgspec
import pytest

from tailrace.pipelines.graph.job_options import ExecutionMode
from tailrace.pipelines.runtime.common.settings import TaskSettings
from tailrace.schemas import dispatcher
from tailrace.schemas.client import JobRejected
from tailrace.schemas.job_master import StartJob
from tailrace.schemas.task_executor import JobManagerRegistrationSuccess
from tailrace.schemas.types import EntryPoint

from ..simulated_cluster.cluster import Cluster, graph

WRONG = {"restart-strategy.typ": "none"}


def started() -> Cluster:
    cluster = Cluster()
    cluster.start_master()
    cluster.settle()
    return cluster


@pytest.mark.parametrize(
    "body",
    [
        dispatcher.SubmitJob(job_id="j", job_graph=msgspec.structs.replace(graph(), configuration=WRONG)),
        dispatcher.SubmitJob(
            job_id="j", entry_point=EntryPoint(target="a:b", arguments=(), configuration=WRONG)
        ),
    ],
    ids=["job_graph", "entry_point"],
)
def test_unknown_key_is_rejected_with_nearest_key(body: dispatcher.SubmitJob) -> None:
    cluster = started()
    cluster.send("client/test", "dispatcher", body)
    cluster.settle()
    (rejected,) = [record.body for record in cluster.events_of("JobRejected")]
    assert isinstance(rejected, JobRejected)
    assert (
        "there is no option 'restart-strategy.typ': the nearest is restart-strategy.type" in rejected.reason
    )
    assert not cluster.events_of("StartJob")


def test_job_starts_with_its_options() -> None:
    cluster = Cluster(
        configuration={
            "restart-strategy.type": "failure-rate",
            "slot.idle.timeout": "7 s",
            "execution.mode": "micro-batch",
        }
    )
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.submit("j", msgspec.structs.replace(graph(), configuration={"restart-strategy.type": "none"}))
    cluster.settle()
    (start,) = [record.body for record in cluster.events_of("StartJob")]
    assert isinstance(start, StartJob)
    assert start.configuration["restart-strategy.type"] == "none"
    assert start.configuration["slot.idle.timeout"] == "7 s"
    event = cluster.events_of("JobManagerRegistrationSuccess")[-1].body
    assert isinstance(event, JobManagerRegistrationSuccess)
    assert TaskSettings.from_configuration(event.job_graph.configuration).mode is ExecutionMode.MICRO_BATCH
