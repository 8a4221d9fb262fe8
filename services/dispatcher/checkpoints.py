"""Requests for checkpoints and savepoints: forwarded to the job's JobMaster, which answers the client, or rejected.

A request is rejected if the job is unknown or of another tenant, does not run, or is about to end, or if the directory
is a relative path. A savepoint to dispose of belongs to no job any more: the Dispatcher's shell deletes it. Its
metadata names its tenant, and a tenant deletes its own savepoints only.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...infra.config.option_types import LOCATION
from ...schemas import client, dispatcher, job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SnapshotType
from ..core.role import DISPATCHER, JOB_MASTER, IllegalEvent, Instruction, OutgoingEvent, Step, address
from .state import Command, DispatcherState, Disposal, DisposalRequest, Job, Phase, SnapshotRequest, tenant_of
from .submission_validation import find_location_error, savepoint_directory
from .turn import Turn

MAX_DISPOSALS = 1_000
"""Savepoints that wait to be deleted; further ones are refused."""
MAX_TRIGGER_ID_LENGTH = 128
_SNAPSHOT_REQUEST = dispatcher.TriggerCheckpoint | dispatcher.TriggerSavepoint | dispatcher.StopWithSavepoint


class DisposeSavepoint(Instruction, frozen=True):
    """Delete a savepoint. `request` is the offset of the client's request, `tenant` the tenant of this client."""

    path: str
    request: int
    tenant: str = ""

    @property
    def key(self) -> str:
        return f"dispose/{self.request}"


def _snapshot_requested(state: DispatcherState, record: Record, body: _SNAPSHOT_REQUEST) -> DispatcherState:
    is_checkpoint = isinstance(body, dispatcher.TriggerCheckpoint)
    request = SnapshotRequest(
        requester=record.header.sender,
        job_id=body.job_id,
        snapshot_type=SnapshotType.CHECKPOINT if is_checkpoint else SnapshotType.SAVEPOINT,
        directory=None if isinstance(body, dispatcher.TriggerCheckpoint) else body.directory,
        stops=isinstance(body, dispatcher.StopWithSavepoint),
        drains=isinstance(body, dispatcher.StopWithSavepoint) and body.drain,
        tenant=tenant_of(record.header),
        trigger_id=None if isinstance(body, dispatcher.TriggerCheckpoint) else body.trigger_id,
    )
    return state.with_request(record.offset, request)


def judge_snapshot_request(state: DispatcherState, offset: int, request: SnapshotRequest, turn: Turn) -> bool:
    """Takes the verdict on a request for a checkpoint or savepoint; returns False if the job changes in this turn."""
    job_id, directory = request.job_id, request.directory
    job = state.find_job_of(request.tenant, job_id)
    is_foreign = job is None and job_id in state.jobs
    if not is_foreign and (
        job_id in turn.changed_jobs or (job is not None and job.phase in (Phase.BUILT, Phase.ACCEPTED))
    ):
        return False
    error = f"job {job_id[:80]} is unknown: `tailrace list` shows those there are"
    if job is not None:
        why = not_running(job)
        error = "" if why is None else f"job {job_id} {why}"
    if not error and directory is not None:
        error = find_location_error(directory, what="the directory") or ""
    if not error and len(request.trigger_id or "") > MAX_TRIGGER_ID_LENGTH:
        error = f"trigger_id has more than {MAX_TRIGGER_ID_LENGTH} characters"
    if error:
        failed = client.CheckpointFailed(job_id=job_id, reason=error)
        turn.add_verdict(offset, OutgoingEvent(request.requester, failed, offset, request.tenant))
        return True
    trigger = job_master.TriggerCheckpoint(
        job_id=job_id,
        snapshot_type=request.snapshot_type,
        directory=None if directory is None else LOCATION.read(directory),
        stops=request.stops,
        drains=request.drains,
        requester=request.requester,
        tenant=request.tenant,
        trigger_id=request.trigger_id,
    )
    turn.add_verdict(offset, OutgoingEvent(address(JOB_MASTER, job_id), trigger, offset))
    return True


def not_running(job: Job) -> str | None:
    """Returns why the job does not run; None if it does."""
    match job.phase:
        case Phase.TERMINATED | Phase.ENDED:
            return f"has ended already: {job.status.value}"
        case Phase.BUILDING | Phase.BUILT | Phase.BUILD_FAILED | Phase.ACCEPTED:
            return "is not started yet: ask again when it runs"
        case Phase.SUSPENDED | Phase.SUSPENDING:
            return "is suspended: ask again when it runs"
        case Phase.CANCELLING:
            return "is being cancelled"
        case Phase.RUNNING:
            if job.owed_command is Command.CANCEL:
                return "is being cancelled"
            return None if job.owed_command is None else "is being suspended: ask again when it runs"


def on_job_master_trigger_checkpoint(
    state: DispatcherState, record: Record, _body: job_master.TriggerCheckpoint
) -> DispatcherState:
    return state.without_request(record.header.cause)


def on_checkpoint_failed(
    state: DispatcherState, record: Record, _body: client.CheckpointFailed
) -> DispatcherState:
    return state.without_request(record.header.cause)


def on_dispose_savepoint(
    state: DispatcherState, record: Record, body: dispatcher.DisposeSavepoint
) -> DispatcherState:
    request = DisposalRequest(record.header.sender, body.path, tenant_of(record.header))
    return state.with_request(record.offset, request)


def judge_disposal(state: DispatcherState, offset: int, request: DisposalRequest, turn: Turn) -> None:
    """Takes the verdict on a DisposeSavepoint."""
    error = find_location_error(request.path, what="the savepoint")
    path = savepoint_directory(request.path) or request.path
    if error is None:
        jobs = sorted({*state.live, *state.suspended})
        users = (job_id for job_id in jobs if savepoint_directory(state.jobs[job_id].savepoint_path) == path)
        user = next(users, None)
        if user is not None:
            named = "a job" if state.find_job_of(request.tenant, user) is None else f"job {user}"
            error = f"{named} started from it and may need it again: end the job first"
    if error is None and len(state.disposals) + turn.accepted_disposals >= MAX_DISPOSALS:
        error = f"{MAX_DISPOSALS:,} savepoints wait to be deleted already: ask again later"
    if error is not None:
        rejected = client.SavepointDisposed(path=path, failure=error)
        turn.add_verdict(offset, OutgoingEvent(request.requester, rejected, offset, request.tenant))
        return
    turn.accepted_disposals += 1
    accepted = dispatcher.SavepointDisposalAccepted(path=path, request=offset)
    turn.add_verdict(offset, OutgoingEvent(DISPATCHER, accepted, offset))


def on_savepoint_disposal_accepted(
    state: DispatcherState, record: Record, body: dispatcher.SavepointDisposalAccepted
) -> DispatcherState:
    request = state.requests.get(body.request)
    if not isinstance(request, DisposalRequest):
        raise IllegalEvent(record, None, f"no request at offset {body.request} waits for a verdict")
    disposal = Disposal(request.requester, body.path, tenant=request.tenant)
    state = state.without_request(body.request)
    return replace(state, disposals=state.disposals.set(body.request, disposal))


def on_dispatcher_savepoint_disposed(
    state: DispatcherState, record: Record, body: dispatcher.SavepointDisposed
) -> DispatcherState:
    disposal = state.disposals.get(body.request)
    if disposal is None or disposal.done:
        raise IllegalEvent(
            record, None, f"nobody waits for an answer to the request at offset {body.request}"
        )
    done = replace(disposal, failure=body.failure, left=body.left, done=True)
    return replace(state, disposals=state.disposals.set(body.request, done))


def on_client_savepoint_disposed(
    state: DispatcherState, record: Record, _body: client.SavepointDisposed
) -> DispatcherState:
    cause = record.header.cause
    if cause is not None and cause in state.disposals:
        return replace(state, disposals=state.disposals.delete(cause))
    return state.without_request(cause)


def send_owed(state: DispatcherState, turn: Turn) -> None:
    """Adds the answers to clients whose savepoints are deleted."""
    for offset, disposal in state.disposals.items():
        if disposal.done:
            answer = client.SavepointDisposed(
                path=disposal.path, failure=disposal.failure, left=disposal.left
            )
            turn.add_event(offset, "", OutgoingEvent(disposal.requester, answer, offset, disposal.tenant))


def instructions(state: DispatcherState) -> list[Instruction]:
    """Returns a DisposeSavepoint for each savepoint to delete, in the order of the requests."""
    waiting = sorted((offset, each) for offset, each in state.disposals.items() if not each.done)
    return [DisposeSavepoint(each.path, offset, each.tenant) for offset, each in waiting]


on_dispatcher_trigger_checkpoint = on_trigger_savepoint = on_stop_with_savepoint = _snapshot_requested

STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.TriggerCheckpoint: on_dispatcher_trigger_checkpoint,
    dispatcher.TriggerSavepoint: on_trigger_savepoint,
    dispatcher.StopWithSavepoint: on_stop_with_savepoint,
    dispatcher.DisposeSavepoint: on_dispose_savepoint,
    dispatcher.SavepointDisposalAccepted: on_savepoint_disposal_accepted,
    dispatcher.SavepointDisposed: on_dispatcher_savepoint_disposed,
    client.SavepointDisposed: on_client_savepoint_disposed,
    client.CheckpointFailed: on_checkpoint_failed,
    job_master.TriggerCheckpoint: on_job_master_trigger_checkpoint,
}
