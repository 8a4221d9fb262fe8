"""The TaskExecutor's evolve and decide (documents 000 and 003).

What to run is read off the state, not off single events: `instructions` name every task that has not ended. A process
that restarts under its old resource id therefore finds its tasks again and goes on with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schemas import everyone, job_master, resource_manager, task_executor
from ...schemas.event import Record
from ...schemas.types import ExecutionState, JobGraph, SlotID, SlotOffer
from ..roles import (
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    IllegalEvent,
    Instruction,
    Owed,
    Steps,
    Time,
    address,
    instance_of,
    unchanged,
)
from .state import (
    TERMINAL,
    FreedSlot,
    JobConnection,
    Registration,
    SlotAnswer,
    Task,
    TaskExecutorState,
)
from .task_slot_table import TaskSlotState


class RunTasks(Instruction, frozen=True):
    """Run these subtasks of one vertex; they were deployed together and share a query."""

    job_id: str
    job_graph: JobGraph
    vertex_id: str
    tasks: tuple[Task, ...]

    @property
    def key(self) -> str:
        # Not of the tasks that are left: when one of them ends, the others are not to be run once more.
        first = self.tasks[0]
        return f"run/{self.job_id}/{self.vertex_id}/{first.attempt_number}/{first.deployed_with}"


class StopTask(Instruction, frozen=True):
    """Cancel a task; the event that it has ended is what removes this instruction."""

    execution_attempt_id: str
    job_id: str
    cause: int

    @property
    def key(self) -> str:
        return f"stop/{self.execution_attempt_id}"


class TaskExecutor:
    """The role; there is one state of it for each resource id."""

    kind = TASK_EXECUTOR

    def initial(self, role_address: str) -> TaskExecutorState:
        return TaskExecutorState(resource_id=instance_of(role_address))

    def evolve(self, state: TaskExecutorState, record: Record) -> TaskExecutorState:
        return _STEPS.take(state, record)

    def decide(self, state: TaskExecutorState, now: Time) -> list[Owed]:
        owed: list[Owed] = []
        registration = state.registration
        if registration is not None and registration.instance_id is not None and not registration.reported:
            report = resource_manager.SendSlotReport(
                resource_id=state.resource_id,
                instance_id=registration.instance_id,
                slots=state.slots.report(state.resource_id),
            )
            owed.append(Owed(RESOURCE_MANAGER, report, registration.cause))
        owed += _slot_answers(state)
        owed += _job_messages(state)
        owed += _acknowledgements(state)
        owed += _freed_slots(state)
        if state.leaving is not None and not state.left and not _unfinished(state):
            goodbye = resource_manager.DisconnectTaskManager(
                resource_id=state.resource_id, reason=state.leaving
            )
            owed.append(Owed(RESOURCE_MANAGER, goodbye, state.leaving_cause))
        return owed

    def deadline(self, state: TaskExecutorState) -> Time | None:
        return None

    def instructions(self, state: TaskExecutorState) -> Sequence[Instruction]:
        groups: dict[tuple[str, str, int, tuple[int, ...]], list[Task]] = {}
        stops = []
        for task in sorted(state.tasks.values(), key=lambda each: each.cause):
            if task.state in TERMINAL:
                continue
            if task.cancel is not None:
                stops.append(StopTask(task.execution_attempt_id, task.job_id, task.cancel))
            together = (task.job_id, task.vertex_id, task.attempt_number, task.deployed_with)
            groups.setdefault(together, []).append(task)
        runs = []
        for (job_id, vertex_id, _, deployed_with), tasks in groups.items():
            graph = state.jobs[job_id].graph if job_id in state.jobs else None
            complete = len(tasks) == len(deployed_with) or any(
                task.state is not ExecutionState.DEPLOYING for task in tasks
            )
            if graph is not None and complete and all(task.cancel is None for task in tasks):
                runs.append(RunTasks(job_id, graph, vertex_id, tuple(tasks)))
        return [*runs, *stops]


def _registered(
    state: TaskExecutorState, record: Record, body: task_executor.TaskExecutorRegistrationSuccess
) -> TaskExecutorState:
    if state.registration is None:
        # The answer to an earlier process under the same resource id.
        return state
    registration = replace(
        state.registration, instance_id=body.instance_id, cause=record.offset, reported=False
    )
    return replace(state, registration=registration)


def _turned_away(
    state: TaskExecutorState, record: Record, body: task_executor.TaskExecutorRegistrationRejection
) -> TaskExecutorState:
    return replace(state, leaving=body.reason, leaving_cause=record.offset)


def _slots_taken(
    state: TaskExecutorState, _record: Record, body: task_executor.SlotsAccepted
) -> TaskExecutorState:
    slots = state.slots
    for allocation_id in body.allocation_ids:
        slots = slots.activate(allocation_id)
    return replace(state, slots=slots)


def _slots_turned_down(
    state: TaskExecutorState, record: Record, body: task_executor.SlotsRejected
) -> TaskExecutorState:
    for allocation_id in body.allocation_ids:
        state = _release(state, allocation_id, record.offset)
    return state


def _slot_not_needed(
    state: TaskExecutorState, record: Record, body: task_executor.FreeSlot
) -> TaskExecutorState:
    return _release(state, body.allocation_id, record.offset)


def _cancel_asked(
    state: TaskExecutorState, record: Record, body: task_executor.CancelTask
) -> TaskExecutorState:
    return _cancel(state, body.execution_attempt_id, record.offset)


def _told_to_leave(
    state: TaskExecutorState, record: Record, body: task_executor.DisconnectResourceManager
) -> TaskExecutorState:
    for attempt in sorted(state.tasks):
        state = _cancel(state, attempt, record.offset)
    return replace(state, leaving=body.reason, leaving_cause=record.offset)


def _new_process(
    state: TaskExecutorState, _record: Record, _body: everyone.LeaderElected
) -> TaskExecutorState:
    # It has to register, and may have been told to leave in an earlier life.
    return replace(state, registration=None, leaving=None, leaving_cause=None, left=False)


def _registers(
    state: TaskExecutorState, _record: Record, body: resource_manager.RegisterTaskExecutor
) -> TaskExecutorState:
    registration = Registration(body.hardware, body.default_slot_profile, body.number_of_slots)
    slots = state.slots.sized(body.number_of_slots, body.default_slot_profile)
    return replace(state, registration=registration, slots=slots)


def _reported(
    state: TaskExecutorState, _record: Record, body: resource_manager.SendSlotReport
) -> TaskExecutorState:
    if state.registration is None or state.registration.instance_id != body.instance_id:
        return state
    return replace(state, registration=replace(state.registration, reported=True))


def _slot_answered(
    state: TaskExecutorState,
    record: Record,
    _body: resource_manager.SlotRequestAccepted | resource_manager.SlotRequestRejected,
) -> TaskExecutorState:
    cause = record.header.cause
    if cause is None or cause not in state.slot_answers:
        return state
    return replace(state, slot_answers=state.slot_answers.delete(cause))


def _freedom_notified(
    state: TaskExecutorState, _record: Record, body: resource_manager.NotifySlotAvailable
) -> TaskExecutorState:
    freed = state.freed.get(body.slot_id.slot_number)
    if freed is None or freed.allocation_id != body.old_allocation_id:
        return state
    return replace(state, freed=state.freed.delete(body.slot_id.slot_number))


def _has_left(
    state: TaskExecutorState, _record: Record, _body: resource_manager.DisconnectTaskManager
) -> TaskExecutorState:
    return replace(state, left=True)


def _job_greeted(
    state: TaskExecutorState, _record: Record, body: job_master.RegisterTaskManager
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    return state if connection is None else _connect(state, replace(connection, registered=True))


def _slots_offered(
    state: TaskExecutorState, _record: Record, body: job_master.OfferSlots
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    if connection is None:
        return state
    offered = connection.offered | {offer.allocation_id for offer in body.slots}
    return _connect(state, replace(connection, offered=offered))


def _acknowledged(
    state: TaskExecutorState, _record: Record, body: job_master.TaskAcknowledged
) -> TaskExecutorState:
    if body.execution_attempt_id not in state.unacknowledged:
        return state
    return replace(state, unacknowledged=state.unacknowledged.delete(body.execution_attempt_id))


def _slot_requested(
    state: TaskExecutorState, record: Record, body: task_executor.RequestSlot
) -> TaskExecutorState:
    number = body.slot_id.slot_number
    held = state.slots.by_allocation(body.allocation_id)
    if held is not None:
        # The same request again: the answer is the slot that it already has.
        answer = SlotAnswer(body.allocation_id, held.number)
        return replace(state, slot_answers=state.slot_answers.set(record.offset, answer))
    slots = state.slots.allocate(number, body.job_id, body.allocation_id)
    if slots is None:
        slot = state.slots.slots.get(number)
        what = "does not exist" if slot is None else f"is {slot.state.value} for job {slot.job_id}"
        answer = SlotAnswer(body.allocation_id, number, f"slot {number} of {state.resource_id} {what}")
        return replace(state, slot_answers=state.slot_answers.set(record.offset, answer))
    connection = state.jobs.get(body.job_id) or JobConnection(body.job_id, record.offset)
    state = replace(
        state,
        slots=slots,
        slot_answers=state.slot_answers.set(record.offset, SlotAnswer(body.allocation_id, number)),
    )
    return _connect(state, replace(connection, cause=record.offset, closing=None))


def _connect(state: TaskExecutorState, connection: JobConnection) -> TaskExecutorState:
    job_id = connection.job_id
    owes = not connection.registered or (
        (connection.graph is not None and bool(_unoffered(state, connection)))
        or job_id not in state.slots.per_job
    )
    owing = state.jobs_owing
    if owes:
        owing = owing.set(job_id, connection.cause)
    elif job_id in owing:
        owing = owing.delete(job_id)
    return replace(state, jobs=state.jobs.set(job_id, connection), jobs_owing=owing)


def _unoffered(state: TaskExecutorState, connection: JobConnection) -> list[SlotOffer]:
    offers = []
    for allocation_id in state.slots.per_job.get(connection.job_id, frozenset()):
        slot = state.slots.by_allocation(allocation_id)
        if (
            slot is not None
            and slot.state is TaskSlotState.ALLOCATED
            and allocation_id not in connection.offered
        ):
            offers.append(
                SlotOffer(allocation_id=allocation_id, slot_number=slot.number, resource_profile=slot.profile)
            )
    return sorted(offers, key=lambda offer: offer.slot_number)


def _job_manager_known(
    state: TaskExecutorState, record: Record, body: task_executor.JobManagerRegistrationSuccess
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    if connection is None:
        return state
    return _connect(state, replace(connection, graph=body.job_graph, cause=record.offset))


def _task_submitted(
    state: TaskExecutorState, record: Record, body: task_executor.SubmitTask
) -> TaskExecutorState:
    if body.execution_attempt_id in state.tasks:
        return state
    slots = state.slots.add_task(body.allocation_id, body.execution_attempt_id)
    if slots is None:
        raise IllegalEvent(record, "slot not held", f"allocation {body.allocation_id} holds no slot here")
    task = Task(
        execution_attempt_id=body.execution_attempt_id,
        job_id=body.job_id,
        vertex_id=body.vertex_id,
        subtask_index=body.subtask_index,
        attempt_number=body.attempt_number,
        allocation_id=body.allocation_id,
        deployed_with=body.deployed_with,
        cause=record.offset,
    )
    return replace(
        state,
        slots=slots,
        tasks=state.tasks.set(task.execution_attempt_id, task),
        unacknowledged=state.unacknowledged.set(task.execution_attempt_id, record.offset),
    )


def _cancel(state: TaskExecutorState, execution_attempt_id: str, cause: int) -> TaskExecutorState:
    task = state.tasks.get(execution_attempt_id)
    if task is None or task.state in TERMINAL or task.cancel is not None:
        return state
    return replace(state, tasks=state.tasks.set(execution_attempt_id, replace(task, cancel=cause)))


def _task_changed(
    state: TaskExecutorState, record: Record, body: job_master.UpdateTaskExecutionState
) -> TaskExecutorState:
    execution_attempt_id, to = body.execution_attempt_id, body.execution_state
    task = state.tasks.get(execution_attempt_id)
    if task is None:
        return state
    if task.state in TERMINAL:
        raise IllegalEvent(record, task.state.value, f"Execution {execution_attempt_id} has ended")
    state = replace(state, tasks=state.tasks.set(execution_attempt_id, replace(task, state=to)))
    if to not in TERMINAL:
        return state
    state = replace(state, slots=state.slots.remove_task(task.allocation_id, execution_attempt_id))
    return _vacate(state, task.allocation_id, record.offset)


def _release(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    slot = state.slots.by_allocation(allocation_id)
    if slot is None:
        return state
    for attempt in sorted(slot.tasks):
        state = _cancel(state, attempt, cause)
    return _vacate(replace(state, slots=state.slots.release(allocation_id)), allocation_id, cause)


def _vacate(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    slot = state.slots.by_allocation(allocation_id)
    slots = state.slots.vacate(allocation_id)
    if slot is None or slots is state.slots:
        return state
    freed = state.freed.set(slot.number, FreedSlot(slot.number, allocation_id, cause))
    state = replace(state, slots=slots, freed=freed)
    connection = state.jobs.get(slot.job_id or "")
    return state if connection is None else _connect(state, replace(connection, cause=cause))


def _job_manager_leaves(
    state: TaskExecutorState, record: Record, body: task_executor.DisconnectJobManager
) -> TaskExecutorState:
    job_id, cause = body.job_id, record.offset
    connection = state.jobs.get(job_id)
    if connection is None:
        return state
    for allocation_id in sorted(state.slots.per_job.get(job_id, frozenset())):
        state = _release(state, allocation_id, cause)
    return _connect(state, replace(state.jobs[job_id], closing=body.reason, cause=cause))


def _job_gone(
    state: TaskExecutorState, _record: Record, body: job_master.DisconnectTaskManager
) -> TaskExecutorState:
    job_id = body.job_id
    if job_id in state.slots.per_job or job_id not in state.jobs:
        # A slot was allocated for the job again between the decision and its place in the log.
        return state
    tasks = state.tasks
    for attempt, task in state.tasks.items():
        if task.job_id == job_id:
            tasks = tasks.delete(attempt)
    owing = state.jobs_owing
    return replace(
        state,
        jobs=state.jobs.delete(job_id),
        jobs_owing=owing.delete(job_id) if job_id in owing else owing,
        tasks=tasks,
    )


def _unfinished(state: TaskExecutorState) -> bool:
    return any(task.state not in TERMINAL for task in state.tasks.values())


def _slot_answers(state: TaskExecutorState) -> list[Owed]:
    owed = []
    for offset, answer in sorted(state.slot_answers.items()):
        slot_id = SlotID(resource_id=state.resource_id, slot_number=answer.slot_number)
        allocation_id = answer.allocation_id
        if answer.reason is None:
            accepted = resource_manager.SlotRequestAccepted(allocation_id=allocation_id, slot_id=slot_id)
            owed.append(Owed(RESOURCE_MANAGER, accepted, offset))
        else:
            rejected = resource_manager.SlotRequestRejected(
                allocation_id=allocation_id, slot_id=slot_id, reason=answer.reason
            )
            owed.append(Owed(RESOURCE_MANAGER, rejected, offset))
    return owed


def _job_messages(state: TaskExecutorState) -> list[Owed]:
    owed = []
    for job_id, _ in sorted(state.jobs_owing.items(), key=lambda pair: (pair[1], pair[0])):
        connection = state.jobs[job_id]
        recipient = address(JOB_MASTER, job_id)
        if job_id not in state.slots.per_job:
            reason = (
                f"TaskExecutor {address(TASK_EXECUTOR, state.resource_id)} "
                f"has no more allocated slots for job {job_id}."
            )
            goodbye = job_master.DisconnectTaskManager(
                job_id=job_id, resource_id=state.resource_id, reason=reason
            )
            owed.append(Owed(recipient, goodbye, connection.cause))
        elif not connection.registered:
            hello = job_master.RegisterTaskManager(job_id=job_id, resource_id=state.resource_id)
            owed.append(Owed(recipient, hello, connection.cause))
        elif connection.graph is not None and (offers := _unoffered(state, connection)):
            offer = job_master.OfferSlots(job_id=job_id, resource_id=state.resource_id, slots=tuple(offers))
            owed.append(Owed(recipient, offer, connection.cause))
    return owed


def _acknowledgements(state: TaskExecutorState) -> list[Owed]:
    owed = []
    for attempt, cause in sorted(state.unacknowledged.items(), key=lambda pair: (pair[1], pair[0])):
        task = state.tasks.get(attempt)
        if task is not None:
            body = job_master.TaskAcknowledged(execution_attempt_id=attempt)
            owed.append(Owed(address(JOB_MASTER, task.job_id), body, cause))
    return owed


def _freed_slots(state: TaskExecutorState) -> list[Owed]:
    registration = state.registration
    if registration is None or registration.instance_id is None:
        return []
    owed = []
    for number, freed in sorted(state.freed.items()):
        body = resource_manager.NotifySlotAvailable(
            instance_id=registration.instance_id,
            slot_id=SlotID(resource_id=state.resource_id, slot_number=number),
            old_allocation_id=freed.allocation_id,
        )
        owed.append(Owed(RESOURCE_MANAGER, body, freed.cause))
    return owed


_STEPS: Steps[TaskExecutorState] = Steps(
    {
        task_executor.TaskExecutorRegistrationSuccess: _registered,
        task_executor.TaskExecutorRegistrationRejection: _turned_away,
        task_executor.RequestSlot: _slot_requested,
        task_executor.JobManagerRegistrationSuccess: _job_manager_known,
        task_executor.SlotsAccepted: _slots_taken,
        task_executor.SlotsRejected: _slots_turned_down,
        task_executor.FreeSlot: _slot_not_needed,
        task_executor.SubmitTask: _task_submitted,
        task_executor.CancelTask: _cancel_asked,
        task_executor.DisconnectJobManager: _job_manager_leaves,
        task_executor.DisconnectResourceManager: _told_to_leave,
        resource_manager.RegisterTaskExecutor: _registers,
        resource_manager.SendSlotReport: _reported,
        resource_manager.SlotRequestAccepted: _slot_answered,
        resource_manager.SlotRequestRejected: _slot_answered,
        resource_manager.NotifySlotAvailable: _freedom_notified,
        resource_manager.DisconnectTaskManager: _has_left,
        job_master.RegisterTaskManager: _job_greeted,
        job_master.OfferSlots: _slots_offered,
        job_master.TaskAcknowledged: _acknowledged,
        job_master.UpdateTaskExecutionState: _task_changed,
        job_master.DisconnectTaskManager: _job_gone,
        everyone.LeaderElected: _new_process,
        everyone.ClusterTerminated: unchanged,
    }
)
