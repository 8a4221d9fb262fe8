"""What matters in whose story: what is told on a line of its own, what with its like, and what only on request.

A job of a thousand tasks is told in tens of lines: what each of its tasks was told and said is one step, its life's
turns stand alone. The same event may be a detail to a job and all there is to a slot. Failures, and what was ignored,
are never details.
"""

from __future__ import annotations

from enum import IntEnum

from ....schemas import client, dispatcher, everyone, job_master, resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.types import ExecutionState
from .entities import EntityKind
from .event_annotator import AnnotatedEvent
from .failure_chains import Severity


class Relevance(IntEnum):
    """How much an event means to an entity."""

    DETAIL = 0
    STEP = 1
    """Told with others of its kind that came before the next turn."""
    TURN = 2


_TURNS: frozenset[type[Body]] = frozenset(
    (
        client.CancelJobRejected,
        client.CheckpointFailed,
        client.FeatureLevelRejected,
        client.CheckpointSucceeded,
        client.JobAccepted,
        client.JobFinished,
        client.JobRejected,
        client.JobStatusChanged,
        dispatcher.CancelJob,
        dispatcher.DisposeSavepoint,
        dispatcher.JobGraphBuilt,
        dispatcher.JobGraphFailed,
        dispatcher.JobReachedTerminalState,
        dispatcher.ShutDownCluster,
        dispatcher.StopWithSavepoint,
        dispatcher.SubmitJob,
        dispatcher.TriggerCheckpoint,
        dispatcher.TriggerSavepoint,
        everyone.ClusterTerminated,
        everyone.ConfigurationChanged,
        everyone.FeatureLevelRaised,
        everyone.LeaderElected,
        everyone.TaskExecutorLost,
        job_master.CancelJob,
        job_master.ChannelsFailed,
        job_master.CheckpointRestored,
        job_master.HeartbeatTimedOut,
        job_master.JobMasterFailed,
        job_master.RestoreFailed,
        job_master.ResumeJob,
        job_master.StartJob,
        job_master.SuspendJob,
        resource_manager.RegisterTaskExecutor,
        resource_manager.StartWorker,
        resource_manager.StopWorker,
        resource_manager.WorkerLost,
        resource_manager.WorkerStarted,
    )
)
_DETAILS: frozenset[type[Body]] = frozenset(
    (
        job_master.AcknowledgeCheckpoint,
        job_master.ChannelsCreated,
        job_master.ChannelsDeleted,
        job_master.CheckpointDiscarded,
        job_master.CheckpointTriggered,
        job_master.CheckpointsRemoved,
        job_master.DisconnectTaskManager,
        job_master.JobManagerRegistrationSuccess,
        job_master.RegisterTaskManager,
        job_master.TaskAcknowledged,
        resource_manager.DisconnectJobManager,
        resource_manager.NotifySlotAvailable,
        resource_manager.RegisterJobManager,
        resource_manager.SlotRequestAccepted,
        task_executor.AbortCheckpoint,
        task_executor.ConfirmCheckpoint,
        task_executor.DisconnectJobManager,
        task_executor.JobManagerRegistrationSuccess,
        task_executor.SlotsAccepted,
        task_executor.TriggerCheckpoint,
    )
)
_TASK_EVENTS: frozenset[type[Body]] = frozenset(
    (
        job_master.TaskAcknowledged,
        task_executor.TriggerCheckpoint,
    )
)
# To look a member of an enum up takes as long as all else that is done for an event here.
_DETAIL, _STEP, _TURN = Relevance.DETAIL, Relevance.STEP, Relevance.TURN
_FAILURE, _TASK = Severity.FAILURE, EntityKind.TASK
_WHOLE = frozenset({EntityKind.JOB, EntityKind.TASK_EXECUTOR})
"""Of which there is so much to tell that details are left out."""
_IN_PHASES = frozenset({EntityKind.JOB, EntityKind.TASK_EXECUTOR, EntityKind.ROLE, EntityKind.CLIENT})
_MINOR_STATES = frozenset({ExecutionState.INITIALIZING, ExecutionState.CANCELING})


def relevance(kind: EntityKind, told: AnnotatedEvent) -> Relevance:
    """What an event means to an entity of a kind."""
    body = told.body
    of = type(body)
    if of in _TURNS:
        return _TURN
    if told.severity >= _FAILURE or told.entry.ignored is not None:
        return _STEP
    if kind in _WHOLE:
        dull = isinstance(body, job_master.UpdateTaskExecutionState) and body.execution_state in _MINOR_STATES
        return _DETAIL if dull or of in _DETAILS else _STEP
    return _DETAIL if kind is _TASK and of in _TASK_EVENTS else _STEP


def is_grouped_in_phases(kind: EntityKind) -> bool:
    """Whether steps of a kind are told together though others lie between them, up to the next turn; else only those
    that follow each other."""
    return kind in _IN_PHASES
