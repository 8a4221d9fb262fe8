"""A savepoint that two REST servers ask for under one address is taken once, whenever the second request arrives before
its end."""

from __future__ import annotations

import itertools

import pytest

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.types import SnapshotType
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES

from ..async_simulator import AsyncSimulator
from .cluster import graph

REQUESTER = "client/rest-1"


@pytest.mark.parametrize("kills_master", [False, True])
@pytest.mark.parametrize("kind", [dispatcher.TriggerSavepoint, dispatcher.StopWithSavepoint])
def test_savepoint_that_two_servers_ask_for_is_taken_once(
    kind: type[dispatcher.TriggerSavepoint | dispatcher.StopWithSavepoint], kills_master: bool
) -> None:
    for turns in itertools.count():
        world = AsyncSimulator({**DIRECTORIES})
        world.start_master()
        world.start_worker("te-1", 2)
        world.settle()
        world.request(dispatcher.SubmitJob(job_id="first", job_graph=graph()))
        world.settle()
        world.request(kind(job_id="first"), requester=REQUESTER)
        for _ in range(turns):
            world.turn()
        if any(isinstance(record.body, job_master.CheckpointCompleted) for record in world.log):
            assert turns > 2, "the second request came at several moments"
            return
        world.request(kind(job_id="first"), requester=REQUESTER)
        if kills_master:
            world.kill_master()
            world.start_master()
        world.settle()
        (taken,) = (
            record.body.checkpoint
            for record in world.accepted()
            if isinstance(record.body, job_master.CheckpointCompleted)
            and record.body.checkpoint.snapshot_type is SnapshotType.SAVEPOINT
        )
        answers = [record.body for record in world.accepted() if record.header.recipient == REQUESTER]
        assert answers == [client.CheckpointSucceeded(job_id="first", checkpoint=taken)] * 2
