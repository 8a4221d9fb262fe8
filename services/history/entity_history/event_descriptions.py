"""What each type of event says, in the words that a person would use of it: who says it and to whom stands before.

`EventTemplate` takes the event's body and the names of things, and gives what follows "te-1 -> JobMaster j1:". A
type that is not here (of a later version) is told by its name and its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ....schemas import client, dispatcher, everyone, job_master, resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.types import ExecutionState, JobGraph, JobStatus, SlotID, SnapshotType
from .event_formatting import shorten_ids

_MAX_NAMES = 4


class EntityNames(Protocol):
    """What people call things."""

    def task(self, execution_attempt_id: str) -> str:
        """The task that an Execution is an attempt of."""
        ...

    def vertex(self, job_id: str, vertex_id: str, index: int) -> str:
        """A task, before there is an attempt to run it."""
        ...


EventTemplate = Callable[[Any, EntityNames], str]


def find_template(kind: type[Body]) -> EventTemplate | None:
    """How to say events of a type; None for types that this version has no words for."""
    return _PHRASES.get(kind)


def format_list(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    found = list(dict.fromkeys(names))
    more = len(found) - _MAX_NAMES
    return ", ".join(found[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def format_count(count: int, noun: str) -> str:
    """1 slot, 2 slots."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_size(count: int) -> str:
    """Bytes."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def format_graph(graph: JobGraph) -> str:
    """A job's name and its vertices."""
    return f'"{graph.name}" ({format_list(f"{each.name} x{each.parallelism}" for each in graph.vertices)})'


def slot_name(slot: SlotID) -> str:
    return f"{slot.resource_id}/{slot.slot_number}"


def _because(reason: str | None) -> str:
    """The first line, in which people are told; a stack may follow it."""
    lines = [line for line in (reason or "").splitlines() if line.strip()]
    return f": {shorten_ids(lines[0].strip())}" if lines else ""


def _failed(reason: str | None) -> str:
    """What was raised stands in a stack's last line."""
    lines = [line.strip() for line in (reason or "").splitlines() if line.strip()]
    stack = len(lines) > 1 and lines[0].startswith("Traceback")
    return f": {shorten_ids(lines[-1 if stack else 0])}" if lines else ""


def loss(body: everyone.TaskExecutorLost) -> str:
    """Why a TaskExecutor is lost, without saying once more that it is."""
    return body.reason.removeprefix(f"TaskExecutor {body.resource_id} is lost: ")


def _chosen(reason: str) -> str:
    return f" (chosen by {' '.join(shorten_ids(reason).split())})" if reason else ""


def _job(job_id: str) -> str:
    return f"job {shorten_ids(job_id)}"


def _keeping(body: dispatcher.CancelJob | job_master.CancelJob) -> str:
    return " and keep its checkpoints" if body.keep_checkpoints else ""


def _allocation(allocation_id: str) -> str:
    return f"allocation {shorten_ids(allocation_id)}"


def _allocations(ids: Sequence[str]) -> str:
    noun = "allocation" if len(ids) == 1 else "allocations"
    return f"{noun} {format_list(shorten_ids(each) for each in ids)}"


def _slots(body: Any, _: EntityNames) -> str:
    used = [each for each in body.slots if each.allocation_id]
    held = (
        f" ({format_list(f'{slot_name(each.slot_id)} {_allocation(each.allocation_id)}' for each in used)})"
    )
    return f"reports {format_count(len(body.slots), 'slot')}, {len(used)} in use{held if used else ''}"


def _submit_job(body: dispatcher.SubmitJob, _: EntityNames) -> str:
    if body.job_graph is not None:
        what = format_graph(body.job_graph)
    else:
        what = f"the program {body.entry_point.target}" if body.entry_point else "nothing"
    begins = f", beginning with {body.savepoint_path}" if body.savepoint_path else ""
    return f"asks to run {_job(body.job_id)}: {what}{begins}"


def _snapshot(body: job_master.CheckpointTriggered) -> str:
    options = body.options
    kind = "savepoint" if options.snapshot_type is SnapshotType.SAVEPOINT else "checkpoint"
    ends = ", with which the job ends" if options.stops else ""
    asked = " as it was asked to" if body.requests else ""
    return (
        f"begins {kind} {body.checkpoint_id}{asked}{ends}: "
        f"{format_count(len(body.to_acknowledge), 'task')} to acknowledge it"
    )


def _wanted(body: Any) -> str:
    kind = "savepoint" if body.snapshot_type is SnapshotType.SAVEPOINT else "checkpoint"
    ends = ", and to end with it" if body.stops else ""
    return f"passes on that {body.requester.replace('/', ' ')} wants a {kind}{ends}"


def _restored(body: job_master.CheckpointRestored, _: EntityNames) -> str:
    passed = f", passing over {format_count(len(body.passed_over), 'newer one')}" if body.passed_over else ""
    if body.checkpoint is None:
        return f"finds no checkpoint: tasks begin with nothing{passed}"
    return f"found checkpoint {body.checkpoint.checkpoint_id} whole: tasks begin with it{passed}"


def _submit_task(body: task_executor.SubmitTask, names: EntityNames) -> str:
    attempt = f", attempt {body.attempt_number + 1}" if body.attempt_number else ""
    begins = f", from checkpoint {body.restore.checkpoint_id}" if body.restore else ""
    task = names.vertex(body.job_id, body.vertex_id, body.subtask_index)
    return f"runs {task} in the slot of {_allocation(body.allocation_id)}{attempt}{begins}"


_STATES: Mapping[ExecutionState, str] = {
    ExecutionState.INITIALIZING: "is getting ready",
    ExecutionState.RUNNING: "is RUNNING",
    ExecutionState.FINISHED: "has FINISHED",
    ExecutionState.CANCELED: "was CANCELED",
    ExecutionState.FAILED: "FAILED",
}


def _task_changed(body: job_master.UpdateTaskExecutionState, names: EntityNames) -> str:
    state = body.execution_state
    words = _STATES.get(state, f"is {state.value}")
    lost = " (what it was to go on from is gone)" if body.progress_lost else ""
    return f"{names.task(body.execution_attempt_id)} {words}{lost}{_failed(body.failure)}"


def _status(body: client.JobStatusChanged, _: EntityNames) -> str:
    return f"the job is {body.status.value}"


def _completed(checkpoint: Any) -> str:
    kind = "savepoint" if checkpoint.snapshot_type is SnapshotType.SAVEPOINT else "checkpoint"
    where = f", in {checkpoint.uri}" if kind == "savepoint" else ""
    return f"{kind} {checkpoint.checkpoint_id} is complete ({format_size(checkpoint.size)}{where})"


def _contradicted(body: task_executor.AllocatedSlotsContradicted, _: EntityNames) -> str:
    parts = []
    if body.missing:
        parts.append(
            f"the JobMaster counts on {_allocations(body.missing)}, which nothing here is held under"
        )
    if body.surplus:
        parts.append(f"{_allocations(body.surplus)} is held here, and the JobMaster knows nothing of it")
    return f"sees that it and {_job(body.job_id)} differ: {'; '.join(parts)}"


def _disposed(body: dispatcher.SavepointDisposed | client.SavepointDisposed, _: EntityNames) -> str:
    if body.failure is not None:
        return f"the savepoint {body.path} could not be deleted{_because(body.failure)}"
    return f"the savepoint {body.path} is deleted"


def _elected(body: everyone.LeaderElected, _: EntityNames) -> str:
    if body.role.startswith("task_executor/"):
        return f"its process {body.address} begins (epoch {body.epoch})"
    return f"is led by {body.address} from here on (epoch {body.epoch})"


def _configured(body: everyone.ConfigurationChanged, _: EntityNames) -> str:
    given = format_list(f"{key}={value}" for key, value in sorted(body.configuration.items()))
    return f"uses {format_count(len(body.configuration), 'option')} from now on{': ' if given else ''}{given}"


def _shut_down(body: dispatcher.ShutDownCluster, _: EntityNames) -> str:
    jobs = "jobs are suspended" if body.suspend else "jobs are cancelled"
    return f"asks for the cluster to end ({jobs}){_because(body.reason)}"


def _ended(body: client.JobFinished | dispatcher.JobReachedTerminalState, _: EntityNames) -> str:
    how = "is" if body.status is JobStatus.SUSPENDED else "has ended:"
    return f"{_job(body.job_id)} {how} {body.status.value}{_failed(body.reason)}"


_PHRASES: Mapping[type[Body], EventTemplate] = {
    client.CancelJobRejected: lambda b, _: f"{_job(b.job_id)} can't be cancelled{_because(b.reason)}",
    client.CheckpointFailed: lambda b, _: f"what was asked for was not completed{_because(b.reason)}",
    client.CheckpointSucceeded: lambda b, _: _completed(b.checkpoint),
    client.FeatureLevelRejected: lambda b, _: f"refuses feature level {b.level}{_because(b.reason)}",
    client.JobAccepted: lambda b, _: f'accepts {_job(b.job_id)}, "{b.name}"',
    client.JobFinished: _ended,
    client.JobRejected: lambda b, _: f"rejects {_job(b.job_id)}{_because(b.reason)}",
    client.JobStatusChanged: _status,
    client.SavepointDisposed: _disposed,
    dispatcher.CancelJob: lambda b, _: f"asks to cancel {_job(b.job_id)}{_keeping(b)}",
    dispatcher.DisposeSavepoint: lambda b, _: f"asks to delete the savepoint {b.path}",
    dispatcher.JobGraphBuilt: lambda b, _: f"the program has built its graph: {format_graph(b.job_graph)}",
    dispatcher.JobGraphFailed: lambda b, _: f"the program could not build its graph{_failed(b.reason)}",
    dispatcher.JobReachedTerminalState: _ended,
    dispatcher.RaiseFeatureLevel: lambda b, _: f"asks to raise the feature level to {b.level}",
    dispatcher.SavepointDisposed: _disposed,
    dispatcher.ShutDownCluster: _shut_down,
    dispatcher.StopWithSavepoint: lambda b, _: f"asks to end {_job(b.job_id)} with a savepoint",
    dispatcher.SubmissionRefused: lambda b, _: (
        f"refuses record {b.source.offset} of {b.source.topic}{_because(b.reason)}"
    ),
    dispatcher.SubmissionsTopicChanged: lambda b, _: (
        f"says where submissions are read from{_because(b.reason)}"
    ),
    dispatcher.SubmitJob: _submit_job,
    dispatcher.TriggerCheckpoint: lambda b, _: f"asks for a checkpoint of {_job(b.job_id)}",
    dispatcher.TriggerSavepoint: lambda b, _: f"asks for a savepoint of {_job(b.job_id)}",
    everyone.ClusterTerminated: lambda b, _: f"the cluster has ended{_because(b.reason)}",
    everyone.ConfigurationChanged: _configured,
    everyone.FeatureLevelRaised: lambda b, _: f"the cluster is at feature level {b.level} from here on",
    everyone.LeaderElected: _elected,
    everyone.SnapshotTaken: lambda b, _: f"keeps the state behind offset {b.offset} ({format_size(b.size)})",
    everyone.StateHash: lambda b, _: f"tells what the state behind offset {b.offset} comes to",
    everyone.TaskExecutorLost: lambda b, _: f"gives TaskExecutor {b.resource_id} up{_because(loss(b))}",
    job_master.AcknowledgeCheckpoint: lambda b, n: (
        f"{n.task(b.execution_attempt_id)} has its part of checkpoint {b.checkpoint_id} in storage"
    ),
    job_master.CancelJob: lambda b, _: f"passes on that {_job(b.job_id)} is to be cancelled{_keeping(b)}",
    job_master.ChannelsCreated: lambda _b, _: "the topics between its tasks are there",
    job_master.ChannelsDeleted: lambda _b, _: "the topics between its tasks are deleted",
    job_master.ChannelsFailed: lambda b, _: f"the topics between its tasks can't be made{_because(b.reason)}",
    job_master.CheckpointAborted: lambda b, _: f"gives checkpoint {b.checkpoint_id} up{_because(b.reason)}",
    job_master.CheckpointCompleted: lambda b, _: _completed(b.checkpoint),
    job_master.CheckpointDiscarded: lambda b, _: f"the files of checkpoint {b.checkpoint_id} are deleted",
    job_master.CheckpointRestored: _restored,
    job_master.CheckpointTriggered: lambda b, _: _snapshot(b),
    job_master.CheckpointsRemoved: lambda _b, _: "what its checkpoints left in storage is deleted",
    job_master.DeclineCheckpoint: lambda b, n: (
        f"{n.task(b.execution_attempt_id)} can't take part in checkpoint {b.checkpoint_id}{_because(b.reason)}"
    ),
    job_master.DisconnectTaskManager: lambda _b, _: "has no slots for the job any more",
    job_master.FailSlot: lambda b, _: (
        f"the slot of {_allocation(b.allocation_id)} is gone{_because(b.reason)}"
    ),
    job_master.HeartbeatTimedOut: lambda b, _: f"does not hear {b.resource_id} any more{_because(b.reason)}",
    job_master.JobManagerRegistrationSuccess: lambda _b, _: "knows the JobMaster now",
    job_master.OfferSlots: lambda b, _: (
        f"offers {format_count(len(b.slots), 'slot')}: "
        + format_list(f"{b.resource_id}/{each.slot_number}" for each in b.slots)
    ),
    job_master.RegisterTaskManager: lambda _b, _: "registers with the job, which it holds a slot for",
    job_master.JobMasterFailed: lambda b, _: f"its JobMaster can't go on{_because(b.reason)}",
    job_master.RestoreFailed: lambda b, _: f"there is no checkpoint to begin with{_because(b.reason)}",
    job_master.ResumeJob: lambda b, _: f"{_job(b.job_id)} is to go on",
    job_master.SlotAllocationFailed: lambda b, _: (
        f"has no slot for {_allocation(b.allocation_id)}{_because(b.reason)}"
    ),
    job_master.StartJob: lambda b, _: f'starts the job, "{b.job_graph.name}"',
    job_master.SuspendJob: lambda b, _: f"{_job(b.job_id)} is to pause{_because(b.reason)}",
    job_master.TaskAcknowledged: lambda b, n: f"has taken {n.task(b.execution_attempt_id)}",
    job_master.TasksContradicted: lambda b, n: (
        f"sees that {b.resource_id} does not run {format_list(map(n.task, b.execution_attempt_ids))}"
        f"{_because(b.reason)}"
    ),
    job_master.TriggerCheckpoint: lambda b, _: _wanted(b),
    job_master.UpdateTaskExecutionState: _task_changed,
    resource_manager.CancelSlotRequest: lambda b, _: (
        f"does not want the slot of {_allocation(b.allocation_id)} any more{_because(b.reason)}"
    ),
    resource_manager.DisconnectJobManager: lambda b, _: f"leaves: the job has ended ({b.status.value})",
    resource_manager.DisconnectTaskManager: lambda b, _: f"leaves{_because(b.reason)}",
    resource_manager.NotifySlotAvailable: lambda b, _: (
        f"slot {slot_name(b.slot_id)} is free ({_allocation(b.old_allocation_id)} is over)"
    ),
    resource_manager.RegisterJobManager: lambda _b, _: "registers",
    resource_manager.RegisterTaskExecutor: lambda b, _: (
        f"registers with {format_count(b.number_of_slots, 'slot')}, from {b.address}"
    ),
    resource_manager.RequestSlot: lambda b, _: f"asks for a slot ({_allocation(b.allocation_id)})",
    resource_manager.SendSlotReport: _slots,
    resource_manager.ShutDownCluster: lambda b, _: (
        f"passes on that the cluster is to end{_because(b.reason)}"
    ),
    resource_manager.SlotReportContradicted: lambda b, n: (
        f"sees that {b.resource_id} has other slots than the log says: it {_slots(b, n)}"
    ),
    resource_manager.SlotRequestAccepted: lambda b, _: (
        f"holds slot {slot_name(b.slot_id)} for {_allocation(b.allocation_id)}"
    ),
    resource_manager.SlotRequestRejected: lambda b, _: (
        f"can't hold slot {slot_name(b.slot_id)} for {_allocation(b.allocation_id)}{_because(b.reason)}"
    ),
    resource_manager.StartWorker: lambda b, _: (
        f"wants another worker, {b.resource_id}, with {format_count(b.number_of_slots, 'slot')}{_because(b.reason)}"
    ),
    resource_manager.StopWorker: lambda b, _: f"releases worker {b.resource_id}{_because(b.reason)}",
    resource_manager.WorkerLost: lambda b, _: f"sees that worker {b.resource_id} is gone{_because(b.reason)}",
    resource_manager.WorkerStarted: lambda b, _: f"worker {b.resource_id} was started, as {b.address}",
    task_executor.AbortCheckpoint: lambda b, _: f"checkpoint {b.checkpoint_id} is given up",
    task_executor.AllocatedSlotsContradicted: _contradicted,
    task_executor.CancelTask: lambda b, n: f"stops {n.task(b.execution_attempt_id)}",
    task_executor.ConfirmCheckpoint: lambda b, _: f"checkpoint {b.checkpoint_id} is complete",
    task_executor.DisconnectJobManager: lambda b, _: f"ends the connection{_because(b.reason)}",
    task_executor.DisconnectResourceManager: lambda b, _: f"ends the connection{_because(b.reason)}",
    task_executor.FreeSlot: lambda b, _: (
        f"gives the slot of {_allocation(b.allocation_id)} back{_because(b.reason)}"
    ),
    task_executor.HeartbeatTimedOut: lambda b, _: f"does not hear {b.peer} any more{_because(b.reason)}",
    task_executor.JobManagerRegistrationSuccess: lambda _b, _: "knows the TaskExecutor now",
    task_executor.RequestSlot: lambda b, _: (
        f"asks for slot {slot_name(b.slot_id)} for {_job(b.job_id)}, {_allocation(b.allocation_id)}"
        f"{_chosen(b.reason)}"
    ),
    task_executor.SlotsAccepted: lambda b, _: f"takes the slots of {_allocations(b.allocation_ids)}",
    task_executor.SlotsRejected: lambda b, _: (
        f"does not take the slots of {_allocations(b.allocation_ids)}{_because(b.reason)}"
    ),
    task_executor.SubmitTask: _submit_task,
    task_executor.TaskExecutorRegistrationRejection: lambda b, _: f"does not take it{_because(b.reason)}",
    task_executor.TaskExecutorRegistrationSuccess: lambda _b, _: "has registered it",
    task_executor.TriggerCheckpoint: lambda b, _: (
        f"tells {format_count(len(b.execution_attempt_ids), 'task')} to begin checkpoint {b.checkpoint_id}"
    ),
}
