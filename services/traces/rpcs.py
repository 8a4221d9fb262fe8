"""The requests of the log that are answered: type of a request -> types of its answers.

An RPC between roles ends with the first answer that it causes. A request of a client ends with the first answer in its
trace. All other events are messages without an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...schemas import client, dispatcher, everyone, job_master, resource_manager, task_executor
from ...schemas.body import Body


def _types(*kinds: type[Body]) -> frozenset[type[Body]]:
    return frozenset(kinds)


_SNAPSHOT: Final = _types(client.CheckpointSucceeded, client.CheckpointFailed)

CLIENT_REQUESTS: Final[Mapping[type[Body], frozenset[type[Body]]]] = {
    dispatcher.SubmitJob: _types(client.JobAccepted, client.JobRejected),
    dispatcher.CancelJob: _types(client.CancelJobRejected, client.JobFinished),
    dispatcher.TriggerCheckpoint: _SNAPSHOT,
    dispatcher.TriggerSavepoint: _SNAPSHOT,
    dispatcher.StopWithSavepoint: _SNAPSHOT,
    dispatcher.DisposeSavepoint: _types(client.SavepointDisposed),
    dispatcher.RescaleJob: _types(client.JobRescaled, client.RescaleFailed),
    dispatcher.RaiseFeatureLevel: _types(client.FeatureLevelRejected, everyone.FeatureLevelRaised),
    dispatcher.PauseJob: _types(client.JobRequestRejected, client.JobStatusChanged),
    dispatcher.ResumeJob: _types(client.JobRequestRejected, client.JobStatusChanged),
    dispatcher.RestartTasks: _types(client.JobRequestRejected, job_master.RestartTasks),
    dispatcher.ConfigureJob: _types(client.JobRequestRejected, job_master.JobConfigurationChanged),
    dispatcher.ResetOffsets: _types(client.JobRequestRejected, job_master.ResetOffsets),
    dispatcher.SetQuarantine: _types(resource_manager.QuarantineChanged),
    dispatcher.ShutDownCluster: _types(everyone.ClusterTerminated),
}
RPCS: Final[Mapping[type[Body], frozenset[type[Body]]]] = {
    resource_manager.RegisterTaskExecutor: _types(
        task_executor.TaskExecutorRegistrationSuccess, task_executor.TaskExecutorRegistrationRejection
    ),
    resource_manager.RegisterJobManager: _types(job_master.JobManagerRegistrationSuccess),
    resource_manager.StartWorker: _types(resource_manager.WorkerStarted, resource_manager.WorkerLost),
    task_executor.RequestSlot: _types(
        resource_manager.SlotRequestAccepted, resource_manager.SlotRequestRejected
    ),
    task_executor.SubmitTask: _types(job_master.TaskAcknowledged, job_master.UpdateTaskExecutionState),
    task_executor.CancelTask: _types(job_master.UpdateTaskExecutionState),
    task_executor.TriggerCheckpoint: _types(job_master.AcknowledgeCheckpoint, job_master.DeclineCheckpoint),
    job_master.RegisterTaskManager: _types(
        task_executor.JobManagerRegistrationSuccess, task_executor.DisconnectJobManager
    ),
    job_master.OfferSlots: _types(task_executor.SlotsAccepted, task_executor.SlotsRejected),
}
