"""Writes: the bodies of requests and answers, and what became of a savepoint or checkpoint that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from ....schemas.types import SnapshotType
from ...core.role import CLIENT, address
from ...dispatcher.state import DispatcherState, DisposalRequest, SnapshotRequest
from ...history.snapshot_requests import SnapshotRequestView
from ..endpoint import Parameters
from ..errors import NotFound
from ..moment import Moment
from . import ids
from .job_results import FailureCause, QueueStatus
from .lookup import dispatcher, find_job

_FLINK_EXCEPTION = "org.apache.flink.util.FlinkException"


class TerminationMode(StrEnum):
    """The mode of PATCH /jobs/:jobid."""

    CANCEL = "cancel"
    STOP = "stop"


class Empty(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """{}"""


class SavepointBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """POST /jobs/:jobid/savepoints. Two fields have dashes, as in Flink. tailrace has one format: `formatType` is
    accepted, and says nothing."""

    target_directory: str | None = msgspec.field(default=None, name="target-directory")
    cancel_job: bool = msgspec.field(default=False, name="cancel-job")
    format_type: Literal["CANONICAL", "NATIVE"] | None = None
    trigger_id: str | None = None


class StopBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """POST /jobs/:jobid/stop"""

    target_directory: str | None = None
    drain: bool = False
    format_type: Literal["CANONICAL", "NATIVE"] | None = None
    trigger_id: str | None = None


class CheckpointBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """POST /jobs/:jobid/checkpoints. tailrace decides itself which files a checkpoint writes."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] | None = None
    trigger_id: str | None = None


class DisposalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """POST /savepoint-disposal: the directory of a savepoint, as a URI or absolute path."""

    savepoint_path: str


class RescaleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /jobs/:jobid/rescale of tailrace. `parallelism`: of all vertices at the default parallelism of the job;
    `bounds`: the name or id of a vertex -> its least and its wanted parallelism."""

    parallelism: Annotated[int, msgspec.Meta(ge=1, le=1 << 15)] | None = None
    bounds: Mapping[str, tuple[int, int]] = {}
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class TriggerResponse(msgspec.Struct, frozen=True, rename="kebab"):
    """The id to ask for the result with."""

    request_id: str


class SavepointInfo(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The location of a savepoint, or why there is none."""

    location: str | None = None
    failure_cause: FailureCause | None = None


class SavepointResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """GET /jobs/:jobid/savepoints/:triggerid"""

    status: QueueStatus
    operation: SavepointInfo | None = None


class CheckpointInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The number of a checkpoint, or why there is none."""

    checkpoint_id: int | None = None
    failure_cause: FailureCause | None = None


class CheckpointResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """GET /jobs/:jobid/checkpoints/:triggerid"""

    status: QueueStatus
    operation: CheckpointInfo | None = None


class DisposalInfo(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """Why a savepoint still exists; empty: it is deleted."""

    failure_cause: FailureCause | None = None


class DisposalResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """GET /savepoint-disposal/:triggerid"""

    status: QueueStatus
    operation: DisposalInfo | None = None


class SubmissionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /submissions. `target`: module:function, importable where the jobmanager runs. `arguments`: its arguments.
    `configuration`: options of the job."""

    target: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
    arguments: Sequence[str] = ()
    configuration: Mapping[str, str] = {}
    parallelism: Annotated[int, msgspec.Meta(ge=1, le=1 << 15)] | None = None
    savepoint_path: str | None = None
    allow_non_restored_state: bool = False


class Submission(msgspec.Struct, frozen=True):
    """A job that is accepted: tailrace's id, and Flink's."""

    job_id: str
    flink_job_id: str


def requester_of(trigger_id: str) -> str:
    """Returns the address under which a savepoint or checkpoint, or a disposal, is requested."""
    return address(CLIENT, f"rest-{trigger_id}")


def savepoint_result(moment: Moment, parameters: Parameters) -> SavepointResult:
    """GET /jobs/:jobid/savepoints/:triggerid: IN_PROGRESS, or the location or failure"""
    found = _find_request(moment, parameters, SnapshotType.SAVEPOINT)
    if found.failure is not None:
        return SavepointResult(QueueStatus("COMPLETED"), SavepointInfo(failure_cause=_cause(found.failure)))
    if found.uri is None:
        return SavepointResult(QueueStatus("IN_PROGRESS"))
    return SavepointResult(QueueStatus("COMPLETED"), SavepointInfo(location=found.uri))


def checkpoint_result(moment: Moment, parameters: Parameters) -> CheckpointResult:
    """GET /jobs/:jobid/checkpoints/:triggerid: IN_PROGRESS, or the number or failure"""
    found = _find_request(moment, parameters, SnapshotType.CHECKPOINT)
    if found.failure is not None:
        return CheckpointResult(QueueStatus("COMPLETED"), CheckpointInfo(failure_cause=_cause(found.failure)))
    if found.checkpoint_id is None:
        return CheckpointResult(QueueStatus("IN_PROGRESS"))
    return CheckpointResult(QueueStatus("COMPLETED"), CheckpointInfo(checkpoint_id=found.checkpoint_id))


def disposal_result(moment: Moment, parameters: Parameters) -> DisposalResult:
    """GET /savepoint-disposal/:triggerid: IN_PROGRESS, or whether the savepoint is deleted"""
    requester = requester_of(parameters["triggerid"])
    found = moment.fold.snapshot_requests.get_disposal(requester)
    if found is not None:
        cause = None if found.failure is None else FailureCause(_FLINK_EXCEPTION, found.failure)
        return DisposalResult(QueueStatus("COMPLETED"), DisposalInfo(cause))
    if is_disposal_pending(dispatcher(moment), requester):
        return DisposalResult(QueueStatus("IN_PROGRESS"))
    raise NotFound(f"There is no savepoint disposal with triggerId={parameters['triggerid'][:80]}.")


def is_disposal_pending(state: DispatcherState, requester: str) -> bool:
    """Returns whether a client waits for the disposal of a savepoint."""
    asked = (each for each in state.requests.values() if isinstance(each, DisposalRequest))
    return any(each.requester == requester for each in (*asked, *state.disposals.values()))


def find_snapshot_request(moment: Moment, requester: str) -> SnapshotRequestView | None:
    """Returns the request of a client for a checkpoint or savepoint, from the moment it is in the log."""
    if (found := moment.fold.snapshot_requests.get(requester)) is not None:
        return found
    for request in dispatcher(moment).requests.values():
        if isinstance(request, SnapshotRequest) and request.requester == requester:
            return SnapshotRequestView(request.job_id, request.snapshot_type)
    return None


def _find_request(moment: Moment, parameters: Parameters, wanted: SnapshotType) -> SnapshotRequestView:
    """Returns the request with a trigger id. One that was refused early has no type. Raises NotFound."""
    _, view = find_job(moment, parameters)
    found = find_snapshot_request(moment, requester_of(parameters["triggerid"]))
    if found is None or found.job_id != view.job_id or found.snapshot_type not in (wanted, None):
        raise NotFound(
            f"There is no {wanted.value.lower()} operation with triggerId={parameters['triggerid'][:80]} for job "
            f"{ids.to_job_id(view.job_id)}."
        )
    return found


def _cause(reason: str) -> FailureCause:
    return FailureCause("org.apache.flink.runtime.checkpoint.CheckpointException", reason)
