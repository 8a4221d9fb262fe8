"""Groups a state difference by entity: entities that appeared, disappeared or changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, instance_of, kind_of
from ..dispatcher.state import DispatcherState
from ..job_master.state import JobMasterState
from ..resource_manager.state import ResourceManagerState
from .entity_attributes import CLUSTER, EntityAttributes, entity_attributes
from .entity_history.entities import Entity, EntityKind, job, task_executor_of
from .state_diff import StateChange, StateDifference, changed_addresses, diff_states

_ORDER = (
    EntityKind.ROLE,
    EntityKind.TASK_EXECUTOR,
    EntityKind.SLOT,
    EntityKind.JOB,
    EntityKind.CHECKPOINT,
    EntityKind.TASK,
)


class EntityChange(StrEnum):
    """How an entity changed."""

    APPEARED = "appeared"
    GONE = "gone"
    CHANGED = "changed"


class EntityDifference(msgspec.Struct, frozen=True):
    """An entity that differs between the two states."""

    entity: Entity
    name: str
    """Under which people know it; empty: none but its id."""
    became: EntityChange
    facts: dict[str, tuple[str | None, str | None]]
    """What -> how before, and after; none of what is the same."""
    changes: tuple[StateChange, ...]
    """Of the states: all of what belongs to it and is not the same."""


def entity_differences(before: Replica, after: Replica) -> tuple[StateDifference, list[EntityDifference]]:
    """Returns the differences between two replicas: all of them, and grouped by entity."""
    found = diff_states(before, after)
    addresses = changed_addresses(before, after)
    jobs = _find_changed_jobs(before, after)
    then, now = (entity_attributes(each, addresses, jobs) for each in (before, after))
    belonging = _by_entity(found, before, after)
    ended = [_ended_jobs(each, addresses) for each in (before, after)]
    differences = []
    for entity in sorted({*then, *now, *belonging}, key=_place):
        was, is_ = then.get(entity), now.get(entity)
        if entity.kind is EntityKind.TASK and entity.job in ended[0 if was is None else 1]:
            # A job that has ended counts its tasks; it does not know them one by one any more.
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
    state = replica.states.get(DISPATCHER)
    return state.jobs if isinstance(state, DispatcherState) else {}


def _workers(replica: Replica) -> Collection[str]:
    state = replica.states.get(RESOURCE_MANAGER)
    return {*state.workers, *state.pool.workers} if isinstance(state, ResourceManagerState) else ()


def _ended_jobs(replica: Replica, addresses: Collection[str]) -> set[str]:
    """The jobs that have ended, of those addresses, or were not there yet."""
    found = set()
    for each in addresses:
        if kind_of(each) == JOB_MASTER:
            state = replica.states.get(each)
            if isinstance(state, JobMasterState) and state.terminated is not None:
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
    """The job or TaskExecutor that the path of a change names first; else the role whose state it is."""
    parts = [str(each) for each in change.path[1:]]
    for part in parts:
        kind, instance = kind_of(part), instance_of(part)
        if part in jobs or (kind == JOB_MASTER and instance):
            return job(instance or part)
        if part in workers or (kind == TASK_EXECUTOR and instance):
            return task_executor_of(instance or part)
    return Entity(EntityKind.ROLE, parts[0]) if parts else CLUSTER


def _place(entity: Entity) -> tuple[int, str, int, str]:
    """Roles, TaskExecutors with their slots, jobs with their checkpoints and tasks."""
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
