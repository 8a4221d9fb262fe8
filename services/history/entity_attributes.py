"""What people would say of a moment: of each entity of a cluster, in a few words, what it is and how it is.

The entities are those of stories (story/entities.py), with the same names. States hold more than this: what is owed, to
whom, and because of which event. So facts are for reading; what is exact is the states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..core.leadership import LeadershipState
from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, instance_of, kind_of
from ..dispatcher.state import DispatcherState
from ..job_master.exception_history import TaskException
from ..job_master.state import Execution, JobMasterState
from ..resource_manager.state import ResourceManagerState
from ..task_executor.state import TaskExecutorState
from .entity_history.entities import Entity, EntityKind, checkpoint, job, slot, task, task_executor_of

EntityAttributes = dict[str, str]
"""What -> how, in the order in which they are told."""
CLUSTER = Entity(EntityKind.ROLE, "cluster")
"""What concerns the cluster as a whole."""


def entity_attributes(
    replica: Replica, addresses: Collection[str], jobs: Collection[str]
) -> dict[Entity, EntityAttributes]:
    """The facts that the states of some addresses hold, and who leads; `jobs`: of which the Dispatcher's are told."""
    found: dict[Entity, EntityAttributes] = {}
    for entity, some in _all(replica, addresses, jobs):
        found.setdefault(entity, {}).update(some)
    return found


def _all(
    replica: Replica, addresses: Collection[str], jobs: Collection[str]
) -> Iterator[tuple[Entity, EntityAttributes]]:
    yield from _leaders(replica.leadership)
    dispatcher = replica.states.get(DISPATCHER)
    if isinstance(dispatcher, DispatcherState):
        yield CLUSTER, _cluster(dispatcher)
        for job_id in jobs:
            if (known := dispatcher.jobs.get(job_id)) is not None:
                some = {"name": known.name, "status": known.status.value, "phase": known.phase.value}
                yield job(job_id), _without_empty({**some, "reason": known.reason or ""})
    if RESOURCE_MANAGER in addresses:
        state = replica.states.get(RESOURCE_MANAGER)
        if isinstance(state, ResourceManagerState):
            yield from _workers(state)
    for each in addresses:
        state = replica.states.get(each)
        if isinstance(state, JobMasterState) and state.known:
            yield from _job(state)
        elif isinstance(state, TaskExecutorState):
            yield task_executor_of(state.resource_id), _task_executor(state)


def _leaders(leadership: LeadershipState) -> Iterator[tuple[Entity, EntityAttributes]]:
    for role, leader in leadership.leaders.items():
        led = {"leader": leader.address, "epoch": str(leader.epoch)}
        kind = kind_of(role)
        if kind == JOB_MASTER:
            yield job(instance_of(role)), led
        elif kind == TASK_EXECUTOR:
            yield task_executor_of(instance_of(role)), {"process": leader.address, "epoch": str(leader.epoch)}
        else:
            yield Entity(EntityKind.ROLE, role), led


def _cluster(state: DispatcherState) -> EntityAttributes:
    found = {}
    if state.ending is not None:
        found["ends"] = f"{state.ending.reason or 'asked to'}{', is over' if state.ending.over else ''}"
    for key, value in (state.configuration or {}).items():
        found[f"configuration {key}"] = value
    return found


def _workers(state: ResourceManagerState) -> Iterator[tuple[Entity, EntityAttributes]]:
    for resource_id, worker in state.workers.items():
        reported = state.slot_manager.slots.workers.get(resource_id)
        counts = {}
        if reported is not None:
            counts = {"slots": str(len(reported.slots)), "free": str(len(reported.free))}
            for number, held in reported.slots.items():
                some = {"state": held.state.value, "allocation": held.allocation_id, "job": held.job_id}
                yield slot(resource_id, number), _without_empty(some)
        yield (
            task_executor_of(resource_id),
            {"registered": worker.instance_id, "address": worker.address, **counts},
        )


def _task_executor(state: TaskExecutorState) -> EntityAttributes:
    found = {"runs": f"{len(state.tasks)} tasks"} if state.tasks else {}
    if state.left:
        found["left"] = state.leaving or "yes"
    elif state.leaving is not None:
        found["leaves"] = state.leaving
    return found


def _job(state: JobMasterState) -> Iterator[tuple[Entity, EntityAttributes]]:
    this = job(state.job_id)
    graph, ended = state.graph, state.terminated
    some = {
        "name": graph.name if graph is not None else ended.name if ended is not None else "",
        "status": state.status.value,
        "reason": state.reason,
        "required slots": str(state.required_slots),
        "missing slots": str(len(state.slots.requests)) if state.slots.requests else "",
        "tasks": _format_task_counts(state),
        "rolled back": f"{state.generation} times" if state.generation else "",
        "last failure": "" if state.root_cause is None else _failure(state.root_cause),
    }
    yield this, _without_empty(some)
    completed = state.checkpoints.completed if ended is None else ended.checkpoints
    for each in completed:
        yield checkpoint(state.job_id, each.checkpoint_id), {"is": each.snapshot_type.value, "at": each.uri}
    if graph is None:
        return
    names = {vertex.vertex_id: (vertex.name, vertex.parallelism) for vertex in graph.vertices}
    for (vertex_id, index), attempt in state.current.items():
        execution = state.executions[attempt]
        yield task(state.job_id, vertex_id, index), _task(execution, names.get(vertex_id))


def _task(execution: Execution, named: tuple[str, int] | None) -> EntityAttributes:
    name = "" if named is None else f"{named[0]} ({execution.subtask_index + 1}/{named[1]})"
    return _without_empty(
        {
            "name": name,
            "state": execution.state.value,
            "attempt": str(execution.attempt_number),
            "on": execution.resource_id,
            "allocation": execution.allocation_id,
        }
    )


def _format_task_counts(state: JobMasterState) -> str:
    counted = sorted((each.value, count) for each, count in state.tasks().items())
    return ", ".join(f"{count} {name}" for name, count in counted)


def _without_empty(some: Mapping[str, str | None]) -> EntityAttributes:
    return {name: value for name, value in some.items() if value}


def _failure(found: TaskException) -> str:
    lines = [line for line in found.text.splitlines() if line.strip()]
    return f"{found.task}: {lines[-1].strip() if lines else ''}"
