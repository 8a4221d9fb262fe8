"""Requests for checkpoints and savepoints: checked here, and passed on to the job's JobMaster, which answers the
client.

Requests that can't be met are rejected at once: the job is unknown, does not run, or is about to end, or the directory
is relative to a process. A savepoint to dispose of belongs to no job any more: the Dispatcher's shell deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...infra.config.option_types import LOCATION
from ...infra.config.options import shown
from ...pipelines.checkpoint.layout import METADATA
from ...schemas import client, dispatcher, job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SnapshotType
from ..core.immutable_maps import delete_key
from ..core.role import JOB_MASTER, IllegalEvent, Instruction, OutgoingEvent, Step, address
from .state import DispatcherState, Disposal, Job, Phase, Rejection, RejectionKind, Trigger

MAX_DISPOSALS = 1_000
"""Savepoints that wait to be deleted; further ones are refused."""
_LONGEST = 2_048
"""Characters of a directory."""
_SNAPSHOT_REQUEST = dispatcher.TriggerCheckpoint | dispatcher.TriggerSavepoint | dispatcher.StopWithSavepoint


class DisposeSavepoint(Instruction, frozen=True):
    """Delete a savepoint. `request` is the offset of the client's request."""

    path: str
    request: int

    @property
    def key(self) -> str:
        return f"dispose/{self.request}"


def find_location_error(text: str, *, what: str) -> str | None:
    """Why a text from outside is not a location in storage; None if it is one."""
    try:
        if len(text) <= _LONGEST:
            LOCATION.read(text)
            return None
    except ValueError:
        pass
    return f"{what} {shown(text)} is not possible: give {LOCATION.wanted}"


def _snapshot_requested(state: DispatcherState, record: Record, body: _SNAPSHOT_REQUEST) -> DispatcherState:
    requester, offset = record.header.sender, record.offset
    directory = None if isinstance(body, dispatcher.TriggerCheckpoint) else body.directory
    fault = _find_job_error(state, body.job_id)
    if fault is None and directory is not None:
        fault = find_location_error(directory, what="the directory")
    if fault is not None:
        return _reject(state, offset, requester, body.job_id, fault)
    stops = isinstance(body, dispatcher.StopWithSavepoint)
    trigger = Trigger(
        requester=requester,
        job_id=body.job_id,
        snapshot_type=(
            SnapshotType.CHECKPOINT
            if isinstance(body, dispatcher.TriggerCheckpoint)
            else SnapshotType.SAVEPOINT
        ),
        directory=None if directory is None else LOCATION.read(directory),
        stops=stops,
        drains=isinstance(body, dispatcher.StopWithSavepoint) and body.drain,
    )
    return replace(state, triggers=state.triggers.set(offset, trigger))


def _find_job_error(state: DispatcherState, job_id: str) -> str | None:
    job = state.jobs.get(job_id)
    if job is None:
        return f"job {job_id[:80]} is unknown: `tailrace list` shows those there are"
    why = _not_running(job)
    return None if why is None else f"job {job_id} {why}"


def _not_running(job: Job) -> str | None:
    match job.phase:
        case Phase.TERMINATED | Phase.ENDED:
            return f"has ended already: {job.status.value}"
        case Phase.BUILDING | Phase.ADMITTED | Phase.ACCEPTED:
            return "is not started yet: ask again when it runs"
        case Phase.SUSPENDED | Phase.SUSPEND_REQUESTED | Phase.RESUME_REQUESTED:
            return "is suspended: ask again when it runs"
        case Phase.RUNNING | Phase.CANCEL_REQUESTED:
            if job.cancel:
                return "is being cancelled"
            return "is being suspended: ask again when it runs" if job.suspend else None


def _reject(state: DispatcherState, offset: int, requester: str, job_id: str, reason: str) -> DispatcherState:
    refusal = Rejection(requester, job_id, reason, RejectionKind.CHECKPOINT)
    return replace(state, refusals=state.refusals.set(offset, refusal))


def on_job_master_trigger_checkpoint(
    state: DispatcherState, record: Record, _body: job_master.TriggerCheckpoint
) -> DispatcherState:
    cause = record.header.cause
    if cause is None:
        return state
    refusal = state.refusals.get(cause)
    if refusal is not None and refusal.of is RejectionKind.CHECKPOINT:
        # The job has ended between the decision and its place in the log: its JobMaster answers.
        return replace(state, refusals=state.refusals.delete(cause))
    return replace(state, triggers=delete_key(state.triggers, cause))


def forget_triggers(state: DispatcherState, job: Job) -> DispatcherState:
    """The job has ended or pauses: rejects requests that were not passed on yet."""
    for offset, each in state.triggers.items():
        if each.job_id == job.job_id:
            state = replace(state, triggers=state.triggers.delete(offset))
            state = _reject(
                state, offset, each.requester, job.job_id, f"job {job.job_id} {_not_running(job)}"
            )
    return state


def on_dispose_savepoint(
    state: DispatcherState, record: Record, body: dispatcher.DisposeSavepoint
) -> DispatcherState:
    path, fault = body.path, find_location_error(body.path, what="the savepoint")
    if fault is None:
        path = _directory(LOCATION.read(body.path))
        user = next(
            (each for each in sorted({*state.live, *state.suspended}) if _uses(state, each, path)), None
        )
        if user is not None:
            fault = f"job {user} began with it and may need it again: end the job first"
    if fault is None and len(state.disposals) >= MAX_DISPOSALS:
        fault = f"{MAX_DISPOSALS:,} savepoints wait to be deleted already: ask again later"
    disposal = Disposal(record.header.sender, path, fault, done=fault is not None)
    return replace(state, disposals=state.disposals.set(record.offset, disposal))


def _uses(state: DispatcherState, job_id: str, path: str) -> bool:
    own = state.jobs[job_id].savepoint_path
    return own is not None and _directory(own) == path


def _directory(path: str) -> str:
    """The savepoint's directory. A savepoint may also be named by its metadata file."""
    return path.removesuffix(f"/{METADATA}")


def on_dispatcher_savepoint_disposed(
    state: DispatcherState, record: Record, body: dispatcher.SavepointDisposed
) -> DispatcherState:
    disposal = state.disposals.get(body.request)
    if disposal is None or disposal.done:
        raise IllegalEvent(
            record, "any", f"nobody waits for an answer to the request at offset {body.request}"
        )
    done = replace(disposal, failure=body.failure, left=body.left, done=True)
    return replace(state, disposals=state.disposals.set(body.request, done))


def on_client_savepoint_disposed(
    state: DispatcherState, record: Record, _body: client.SavepointDisposed
) -> DispatcherState:
    cause = record.header.cause
    if cause is None or cause not in state.disposals:
        return state
    return replace(state, disposals=state.disposals.delete(cause))


def outgoing_events(state: DispatcherState) -> list[tuple[tuple[int, str], OutgoingEvent]]:
    """TriggerCheckpoint to JobMasters and SavepointDisposed to clients, each with its sort key."""
    owed = []
    for offset, each in state.triggers.items():
        trigger = job_master.TriggerCheckpoint(
            job_id=each.job_id,
            snapshot_type=each.snapshot_type,
            directory=each.directory,
            stops=each.stops,
            drains=each.drains,
            requester=each.requester,
        )
        owed.append(((offset, ""), OutgoingEvent(address(JOB_MASTER, each.job_id), trigger, offset)))
    for offset, disposal in state.disposals.items():
        if disposal.done:
            answer = client.SavepointDisposed(
                path=disposal.path, failure=disposal.failure, left=disposal.left
            )
            owed.append(((offset, ""), OutgoingEvent(disposal.requester, answer, offset)))
    return owed


def instructions(state: DispatcherState) -> list[Instruction]:
    """A DisposeSavepoint for each savepoint to delete, in the order of the requests."""
    waiting = sorted((offset, each) for offset, each in state.disposals.items() if not each.done)
    return [DisposeSavepoint(each.path, offset) for offset, each in waiting]


on_dispatcher_trigger_checkpoint = on_trigger_savepoint = on_stop_with_savepoint = _snapshot_requested

STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.TriggerCheckpoint: on_dispatcher_trigger_checkpoint,
    dispatcher.TriggerSavepoint: on_trigger_savepoint,
    dispatcher.StopWithSavepoint: on_stop_with_savepoint,
    dispatcher.DisposeSavepoint: on_dispose_savepoint,
    dispatcher.SavepointDisposed: on_dispatcher_savepoint_disposed,
    client.SavepointDisposed: on_client_savepoint_disposed,
    job_master.TriggerCheckpoint: on_job_master_trigger_checkpoint,
}
