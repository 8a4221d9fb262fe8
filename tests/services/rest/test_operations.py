"""What a trigger id is answered at every prefix of a log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tailrace.schemas import client, dispatcher
from tailrace.schemas.types import SnapshotType
from tailrace.services.history import HistoryProjection
from tailrace.services.rest.errors import NotFound
from tailrace.services.rest.flink.ids import to_job_id
from tailrace.services.rest.flink.operations import (
    checkpoint_result,
    disposal_result,
    requester_of,
    savepoint_result,
)
from tailrace.services.rest.moment import Moment
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES

from ..async_simulator import AsyncSimulator
from ..simulated_cluster.cluster import graph

DELETED, REFUSED, UNKNOWN = "1" * 32, "2" * 32, "3" * 32


def world_with_disposals() -> AsyncSimulator:
    """Returns a cluster in which a savepoint was deleted, and a request was refused. Each was sent by two servers at
    the same time."""
    world = AsyncSimulator({**DIRECTORIES})
    world.start_master()
    world.start_worker("te-1", 2)
    world.settle()
    world.request(dispatcher.SubmitJob(job_id="first", job_graph=graph()))
    world.settle()
    world.request(dispatcher.StopWithSavepoint(job_id="first"))
    world.settle()
    (path,) = (
        record.body.checkpoint.uri
        for record in world.log
        if isinstance(record.body, client.CheckpointSucceeded)
    )
    for trigger_id, place in ((DELETED, path), (REFUSED, "a/relative/path")):
        for _ in range(2):
            world.request(dispatcher.DisposeSavepoint(path=place), requester=requester_of(trigger_id))
    world.settle()
    return world


def result(fold: HistoryProjection, trigger_id: str) -> Any:
    """Returns the body of the answer; None: 404."""
    try:
        found = disposal_result(Moment(fold, 0), {"triggerid": trigger_id})
    except NotFound:
        return None
    return msgspec.json.decode(msgspec.json.encode(found))


def test_disposal_is_in_progress_until_its_first_answer() -> None:
    fold = HistoryProjection()
    found: dict[str, list[Any]] = {DELETED: [], REFUSED: [], UNKNOWN: []}
    for record in world_with_disposals().log:
        fold.apply(record)
        for trigger_id, results in found.items():
            now = result(fold, trigger_id)
            assert result(fold.copy(), trigger_id) == now
            if not results or results[-1] != now:
                results.append(now)
    begun, done = [None, {"status": {"id": "IN_PROGRESS"}}], {"id": "COMPLETED"}
    assert found[DELETED] == [*begun, {"status": done, "operation": {}}]
    assert found[UNKNOWN] == [None]
    refused = found[REFUSED].pop()
    assert found[REFUSED] == begun
    cause = refused["operation"].pop("failure-cause")
    assert refused == {"status": done, "operation": {}}
    assert cause["class"] == "org.apache.flink.util.FlinkException"
    assert "a/relative/path" in cause["stack-trace"]


@pytest.mark.parametrize("snapshot_type", SnapshotType)
def test_snapshot_is_in_progress_from_its_request_on(snapshot_type: SnapshotType) -> None:
    """A server answers 202 when the request is in the log: from there on, no server may answer 404."""
    world = AsyncSimulator({**DIRECTORIES})
    world.start_master()
    world.start_worker("te-1", 2)
    world.settle()
    world.request(dispatcher.SubmitJob(job_id="first", job_graph=graph()))
    world.settle()
    is_savepoint = snapshot_type is SnapshotType.SAVEPOINT
    request = dispatcher.TriggerSavepoint if is_savepoint else dispatcher.TriggerCheckpoint
    for _ in range(2):
        world.request(request(job_id="first"), requester=requester_of("1" * 32))
    world.settle()
    find_result = savepoint_result if is_savepoint else checkpoint_result
    fold, found = HistoryProjection(), []
    for record in world.log:
        fold.apply(record)
        if isinstance(record.body, request) or found:
            parameters = {"jobid": to_job_id("first"), "triggerid": "1" * 32}
            found.append(find_result(Moment(fold, 0), parameters).status.id)
    assert set(found) == {"IN_PROGRESS", "COMPLETED"}
    assert found == sorted(found, reverse=True)
