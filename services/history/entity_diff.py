"""Describes the difference of two states entity by entity: which entities appeared, are gone or changed, and how.

An entity has a few attributes for people. States have more, such as owed events. The exact difference is that of the
states (state_diff.py); each of its changes belongs to one entity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

import msgspec

from ..core.leadership import LeadershipState
from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, instance_of, kind_of
from ..dispatcher.state import DispatcherState
from ..job_master.exception_history import TaskException
from ..job_master.state import Execution, StartedJob, TerminatedJob
from ..resource_manager.state import ResourceManagerState
from ..task_executor.state import TaskExecutorState
from .cluster_view import find_dispatcher
from .entity_history.entities import Entity, EntityKind, checkpoint, job, slot, task, task_executor_of
from .state_diff import StateChange, StateDifference, changed_addresses, diff_states
from .state_tree import LEADERS, LEVEL

EntityAttributes = dict[str, str]
"""Name -> value, in the order of the output."""
CLUSTER = Entity(EntityKind.ROLE, "cluster")
"""The cluster as a whole."""
_ORDER = (
    EntityKind.ROLE,
    EntityKind.TASK_EXECUTOR,
    EntityKind.SLOT,
    EntityKind.JOB,
    EntityKind.CHECKPOINT,
    EntityKind.TASK,
)


class EntityChange(StrEnum):
    """The kind of change of an entity."""

    APPEARED = "appeared"
    GONE = "gone"
    CHANGED = "changed"


class EntityDifference(msgspec.Struct, frozen=True):
    """An entity that differs between the two states."""

    entity: Entity
    name: str
    """The name of the entity; empty if it has only an id."""
    became: EntityChange
    facts: dict[str, tuple[str | None, str | None]]
    """The attributes that differ: name -> (before, after)."""
    changes: tuple[StateChange, ...]
    """All changes of states that belong to the entity."""


def entity_differences(before: Replica, after: Replica) -> tuple[StateDifference, list[EntityDifference]]:
    """Returns the differences between two replicas: all of them, and grouped by entity."""
    found = diff_states(before, after)
    addresses = changed_addresses(before, after)
    jobs = _find_changed_jobs(before, after)
    then, now = (entity_attributes(replica, addresses, jobs) for replica in (before, after))
    belonging = _by_entity(found, before, after)
    ended = [_ended_jobs(replica, addresses) for replica in (before, after)]
    differences = []
    for entity in sorted({*then, *now, *belonging}, key=_place):
        was, is_ = then.get(entity), now.get(entity)
        if entity.kind is EntityKind.TASK and entity.job in ended[0 if was is None else 1]:
            # The state of an ended job has only the number of its tasks.
            continue
        changed = _compare(was or {}, is_ or {})
        changes = belonging.get(entity, ())
        if not changed and not changes:
            continue
        became = EntityChange.CHANGED
        if (was is None) != (is_ is None):
            became = EntityChange.APPEARED if was is None else EntityChange.GONE
        name = (is_ or was or {}).get("name", "")
        differences.append(EntityDifference(entity, name, became, changed, tuple(changes)))
    return found, differences


def _compare(before: EntityAttributes, after: EntityAttributes) -> dict[str, tuple[str | None, str | None]]:
    names = dict.fromkeys([*before, *after])
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: (was, now) for name, (was, now) in pairs.items() if was != now}


def _find_changed_jobs(before: Replica, after: Replica) -> list[str]:
    then, now = _jobs(before), _jobs(after)
    return [job_id for job_id in {**then, **now} if then.get(job_id) != now.get(job_id)]


def _jobs(replica: Replica) -> Mapping[str, object]:
    return find_dispatcher(replica.states).jobs


def _workers(replica: Replica) -> Collection[str]:
    state = replica.states.get(RESOURCE_MANAGER)
    return {*state.workers, *state.pool.workers} if isinstance(state, ResourceManagerState) else ()


def _ended_jobs(replica: Replica, addresses: Collection[str]) -> set[str]:
    """Returns the ended jobs among the addresses."""
    found = set()
    for address in addresses:
        if kind_of(address) == JOB_MASTER:
            state = replica.states.get(address)
            if isinstance(state, TerminatedJob):
                found.add(state.job_id)
    return found


def _by_entity(found: StateDifference, before: Replica, after: Replica) -> dict[Entity, list[StateChange]]:
    jobs = {*_jobs(before), *_jobs(after)}
    workers = {*_workers(before), *_workers(after)}
    belonging: dict[Entity, list[StateChange]] = {}
    for change in found.changes:
        belonging.setdefault(_entity_of(change, jobs, workers), []).append(change)
    return belonging


def _entity_of(change: StateChange, jobs: Collection[str], workers: Collection[str]) -> Entity:
    """Returns the job or TaskExecutor that the path of a change names first; otherwise the role of the state."""
    first, *rest = map(str, change.path)
    if first in (JOB_MASTER, TASK_EXECUTOR) and rest:
        return job(rest[0]) if first == JOB_MASTER else task_executor_of(rest[0])
    for part in rest:
        kind, instance = kind_of(part), instance_of(part)
        if part in jobs or (kind == JOB_MASTER and instance):
            return job(instance or part)
        if part in workers or (kind == TASK_EXECUTOR and instance):
            return task_executor_of(instance or part)
    if first == LEADERS and rest:
        return Entity(EntityKind.ROLE, rest[0])
    return CLUSTER if first == LEVEL else Entity(EntityKind.ROLE, first)


def _place(entity: Entity) -> tuple[int, str, int, str]:
    """Returns a sort key: roles, TaskExecutors with their slots, jobs with their checkpoints and tasks."""
    kind = _ORDER.index(entity.kind)
    match entity.kind:
        case EntityKind.SLOT:
            resource_id, _, number = entity.id.rpartition("/")
            return (_ORDER.index(EntityKind.TASK_EXECUTOR), resource_id, kind, number.rjust(8))
        case EntityKind.CHECKPOINT | EntityKind.TASK:
            _, _, number = entity.id.rpartition("/")
            return (
                _ORDER.index(EntityKind.JOB),
                entity.job or "",
                kind,
                f"{entity.id[: -len(number)]}{number:>8}",
            )
        case EntityKind.ROLE:
            return (kind, "" if entity == CLUSTER else entity.id, 0, "")
        case _:
            return (kind, entity.id, 0, "")


def entity_attributes(
    replica: Replica, addresses: Collection[str], jobs: Collection[str]
) -> dict[Entity, EntityAttributes]:
    """Returns the attributes in the states of some addresses, and the leaders; `jobs`: the jobs of the Dispatcher."""
    found: dict[Entity, EntityAttributes] = {}
    for entity, some in _attributes(replica, addresses, jobs):
        found.setdefault(entity, {}).update(some)
    return found


def _attributes(
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
            yield from _worker_attributes(state)
    for address in addresses:
        state = replica.states.get(address)
        if isinstance(state, StartedJob | TerminatedJob):
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
        found["ends"] = f"{state.ending.reason or 'asked to'}{', is over' if state.ending.is_over else ''}"
    for key, value in (state.configuration or {}).items():
        found[f"configuration {key}"] = value
    return found


def _worker_attributes(state: ResourceManagerState) -> Iterator[tuple[Entity, EntityAttributes]]:
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


def _job(state: StartedJob | TerminatedJob) -> Iterator[tuple[Entity, EntityAttributes]]:
    this = job(state.job_id)
    missing_slots = state.missing_slots if isinstance(state, StartedJob) else 0
    some = {
        "name": state.graph.name if isinstance(state, StartedJob) else state.name,
        "status": state.status.value,
        "reason": state.reason,
        "required slots": str(state.required_slots),
        "missing slots": str(missing_slots) if missing_slots else "",
        "tasks": _format_task_counts(state),
        "rolled back": f"{state.generation} times" if state.generation else "",
        "last failure": "" if state.root_cause is None else _failure(state.root_cause),
    }
    yield this, _without_empty(some)
    completed = state.checkpoints.completed if isinstance(state, StartedJob) else state.retained_checkpoints
    for stored in completed:
        yield (
            checkpoint(state.job_id, stored.checkpoint_id),
            {"is": stored.snapshot_type.value, "at": stored.uri},
        )
    if isinstance(state, TerminatedJob):
        return
    names = {vertex.vertex_id: (vertex.name, vertex.parallelism) for vertex in state.graph.vertices}
    for (vertex_id, index), attempt in state.current_attempts.items():
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


def _format_task_counts(state: StartedJob | TerminatedJob) -> str:
    counted = sorted((state_name.value, count) for state_name, count in state.tasks.items())
    return ", ".join(f"{count} {name}" for name, count in counted)


def _without_empty(some: Mapping[str, str | None]) -> EntityAttributes:
    return {name: value for name, value in some.items() if value}


def _failure(found: TaskException) -> str:
    lines = [line for line in found.text.splitlines() if line.strip()]
    return f"{found.task}: {lines[-1].strip() if lines else ''}"
