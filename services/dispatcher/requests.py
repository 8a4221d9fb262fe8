"""The verdicts on requests of clients.

1. The step of a request only records it (`DispatcherState.requests`), whatever it asks for.
2. `decide` takes one verdict on each recorded request, in the order of the log. The event of the verdict removes the
   request, and its step does what the event says. So the log has the outcome, and nobody decides it again.
3. A verdict depends on the requests before it. A request whose verdict depends on another one of this turn waits for
   the next turn. Later requests about the same job or savepoint wait as well: none overtakes another.

| request | accepted | rejected |
|---|---|---|
| SubmitJob with a graph | client.JobAccepted | client.JobRejected |
| SubmitJob with an entry point | dispatcher.ProgramAccepted | client.JobRejected |
| a submission that was refused at its admission | | client.JobRejected |
| CancelJob | job_master.CancelJob | client.CancelJobRejected |
| CancelJob of a program that is not built | dispatcher.JobGraphFailed, then client.CancelJobRejected | |
| TriggerCheckpoint, TriggerSavepoint, StopWithSavepoint | job_master.TriggerCheckpoint | client.CheckpointFailed |
| RescaleJob | job_master.RescaleJob | client.RescaleFailed |
| DisposeSavepoint | dispatcher.SavepointDisposalAccepted | client.SavepointDisposed |
| PauseJob | job_master.SuspendJob | client.JobRequestRejected |
| ResumeJob | job_master.ResumeJob | client.JobRequestRejected |
| RestartTasks | job_master.RestartTasks | client.JobRequestRejected |
| ConfigureJob | job_master.JobConfigurationChanged | client.JobRequestRejected |
| ResetOffsets | job_master.ResetOffsets | client.JobRequestRejected |
| SetQuarantine | resource_manager.QuarantineChanged | |
"""

from __future__ import annotations

from ...schemas import client
from ..core.role import OutgoingEvent
from . import checkpoints, job_control, jobs, rescaling
from .state import (
    Cancellation,
    DispatcherState,
    DisposalRequest,
    JobControl,
    ParallelismRequest,
    QuarantineRequest,
    RefusedSubmission,
    Request,
    SnapshotRequest,
    Submission,
)
from .submission_validation import savepoint_directory
from .turn import Turn


def take_verdicts(state: DispatcherState, turn: Turn) -> None:
    """Adds the verdicts on all requests that need not wait."""
    for offset, request in sorted(state.requests.items(), key=lambda pair: pair[0]):
        if _is_blocked(request, turn) or not _judge(state, offset, request, turn):
            _hold(request, turn)


def _judge(state: DispatcherState, offset: int, request: Request, turn: Turn) -> bool:
    """Takes the verdict on one request; returns False if it waits."""
    match request:
        case Submission():
            return jobs.judge_submission(state, offset, request, turn)
        case Cancellation():
            return jobs.judge_cancellation(state, offset, request, turn)
        case SnapshotRequest():
            return checkpoints.judge_snapshot_request(state, offset, request, turn)
        case DisposalRequest():
            checkpoints.judge_disposal(state, offset, request, turn)
        case ParallelismRequest():
            return rescaling.judge_rescale_request(state, offset, request, turn)
        case JobControl():
            return job_control.judge(state, offset, request, turn)
        case QuarantineRequest():
            job_control.judge_quarantine(offset, request, turn)
        case RefusedSubmission(requester=requester, job_id=job_id, reason=reason, tenant=tenant):
            rejected = client.JobRejected(job_id=job_id, reason=reason)
            turn.add_verdict(offset, OutgoingEvent(requester, rejected, offset, tenant))
    return True


def _is_blocked(request: Request, turn: Turn) -> bool:
    match request:
        case DisposalRequest(path=path):
            return savepoint_directory(path) in turn.used_savepoints
        case RefusedSubmission() | QuarantineRequest():
            return False
        case Submission(savepoint_path=path) if savepoint_directory(path) in turn.waiting_disposals:
            return True
        case _:
            return request.job_id in turn.waiting_jobs


def _hold(request: Request, turn: Turn) -> None:
    """Later requests that depend on this one wait as well."""
    if isinstance(request, DisposalRequest):
        turn.waiting_disposals.add(savepoint_directory(request.path) or "")
        return
    if isinstance(request, QuarantineRequest):
        return
    turn.waiting_jobs.add(request.job_id)
    if isinstance(request, Submission) and (path := savepoint_directory(request.savepoint_path)) is not None:
        turn.used_savepoints.add(path)
