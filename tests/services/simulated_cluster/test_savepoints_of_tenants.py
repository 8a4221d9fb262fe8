"""Which tenant's jobs start from a savepoint, and which tenant deletes it."""

from __future__ import annotations

from typing import TypeVar

import pytest

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES

from ..async_simulator import AsyncSimulator
from .cluster import graph
from .invariants import check_tenants

TENANTS = ("", "pay", "search")
B = TypeVar("B", bound=Body)


def bodies(world: AsyncSimulator, kind: type[B]) -> list[B]:
    return [record.body for record in world.accepted() if isinstance(record.body, kind)]


@pytest.mark.parametrize("owner", TENANTS)
@pytest.mark.parametrize("tenant", TENANTS)
def test_savepoint_serves_jobs_of_its_tenant_and_of_operator(owner: str, tenant: str) -> None:
    world = AsyncSimulator({**DIRECTORIES, "dispatcher.tenants": "pay;search"})
    world.start_master()
    world.start_worker("te-1", 2)
    world.settle()
    world.request(dispatcher.SubmitJob(job_id="first", job_graph=graph()), tenant=owner)
    world.settle()
    world.request(dispatcher.StopWithSavepoint(job_id="first"), tenant=owner)
    world.settle()
    (taken,) = bodies(world, client.CheckpointSucceeded)
    path = taken.checkpoint.uri

    submission = dispatcher.SubmitJob(job_id="second", job_graph=graph(), savepoint_path=path)
    world.request(submission, tenant=tenant)
    world.settle()
    if {owner, tenant} == {"pay", "search"}:
        assert not bodies(world, job_master.CheckpointRestored)
        ended = bodies(world, client.JobFinished)[-1]
        assert (ended.job_id, ended.status) == ("second", JobStatus.FAILED)
        assert "belongs to another tenant" in (ended.reason or "")
    else:
        assert [each.job_id for each in bodies(world, job_master.CheckpointRestored)] == ["second"]
        world.request(dispatcher.CancelJob(job_id="second"), tenant=tenant)
        world.settle()

    world.request(dispatcher.DisposeSavepoint(path=path), tenant=tenant)
    world.settle()
    (disposed,) = bodies(world, client.SavepointDisposed)
    assert (disposed.failure is None) == (tenant in ("", owner))
    check_tenants(world.accepted())
