"""A difference entity by entity, for people: what appeared, what is gone, and what is another way than it was."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, instance_of, kind_of
from ..dispatcher.state import DispatcherState
from ..job_master.state import JobMasterState
from ..resource_manager.state import ResourceManagerState
from .entity_attributes import CLUSTER, Facts, facts
from .entity_history.entities import Entity, Kind, job, task_executor_of
from .state_diff import Change, Difference, changed_addresses, difference

_ORDER = (Kind.ROLE, Kind.TASK_EXECUTOR, Kind.SLOT, Kind.JOB, Kind.CHECKPOINT, Kind.TASK)


class Became(StrEnum):
    """What became of an entity."""

    APPEARED = "appeared"
    GONE = "gone"
    CHANGED = "changed"


class EntityDifference(msgspec.Struct, frozen=True):
    """One entity that is not as it was."""

    entity: Entity
    name: str
    """Under which people know it; empty: none but its id."""
    became: Became
    facts: dict[str, tuple[str | None, str | None]]
    """What -> how before, and after; none of what is the same."""
    changes: tuple[Change, ...]
    """Of the states: all of what belongs to it and is not the same."""


def entity_differences(before: Replica, after: Replica) -> tuple[Difference, list[EntityDifference]]:
    """What is different between what two replicas know, whole, and entity by entity."""
    found = difference(before, after)
    addresses = changed_addresses(before, after)
    jobs = _changed_jobs(before, after)
    then, now = (facts(each, addresses, jobs) for each in (before, after))
    belonging = _by_entity(found, before, after)
    ended = [_ended(each, addresses) for each in (before, after)]
    differences = []
    for entity in sorted({*then, *now, *belonging}, key=_place):
        was, is_ = then.get(entity), now.get(entity)
        if entity.kind is Kind.TASK and entity.job in ended[0 if was is None else 1]:
            # A job that has ended counts its tasks; it does not know them one by one any more.
            continue
        changed = _compared(was or {}, is_ or {})
        changes = belonging.get(entity, ())
        if not changed and not changes:
            continue
        became = Became.CHANGED
        if (was is None) != (is_ is None):
            became = Became.APPEARED if was is None else Became.GONE
        name = (is_ or was or {}).get("name", "")
        differences.append(EntityDifference(entity, name, became, changed, tuple(changes)))
    return found, differences


def _compared(before: Facts, after: Facts) -> dict[str, tuple[str | None, str | None]]:
    names = dict.fromkeys([*before, *after])
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: (was, now) for name, (was, now) in pairs.items() if was != now}


def _changed_jobs(before: Replica, after: Replica) -> list[str]:
    then, now = _jobs(before), _jobs(after)
    return [job_id for job_id in {**then, **now} if then.get(job_id) != now.get(job_id)]


def _jobs(replica: Replica) -> Mapping[str, object]:
    state = replica.states.get(DISPATCHER)
    return state.jobs if isinstance(state, DispatcherState) else {}


def _workers(replica: Replica) -> Collection[str]:
    state = replica.states.get(RESOURCE_MANAGER)
    return {*state.workers, *state.pool.workers} if isinstance(state, ResourceManagerState) else ()


def _ended(replica: Replica, addresses: Collection[str]) -> set[str]:
    """The jobs that have ended, of those addresses, or were not there yet."""
    found = set()
    for each in addresses:
        if kind_of(each) == JOB_MASTER:
            state = replica.states.get(each)
            if isinstance(state, JobMasterState) and state.terminated is not None:
                found.add(state.job_id)
    return found


def _by_entity(found: Difference, before: Replica, after: Replica) -> dict[Entity, list[Change]]:
    jobs = {*_jobs(before), *_jobs(after)}
    workers = {*_workers(before), *_workers(after)}
    belonging: dict[Entity, list[Change]] = {}
    for change in found.changes:
        belonging.setdefault(_entity_of(change, jobs, workers), []).append(change)
    return belonging


def _entity_of(change: Change, jobs: Collection[str], workers: Collection[str]) -> Entity:
    """The job or TaskExecutor that the path of a change names first; else the role whose state it is."""
    parts = [str(each) for each in change.path[1:]]
    for part in parts:
        kind, instance = kind_of(part), instance_of(part)
        if part in jobs or (kind == JOB_MASTER and instance):
            return job(instance or part)
        if part in workers or (kind == TASK_EXECUTOR and instance):
            return task_executor_of(instance or part)
    return Entity(Kind.ROLE, parts[0]) if parts else CLUSTER


def _place(entity: Entity) -> tuple[int, str, int, str]:
    """Roles, TaskExecutors with their slots, jobs with their checkpoints and tasks."""
    kind = _ORDER.index(entity.kind)
    match entity.kind:
        case Kind.SLOT:
            resource_id, _, number = entity.id.rpartition("/")
            return (_ORDER.index(Kind.TASK_EXECUTOR), resource_id, kind, number.rjust(8))
        case Kind.CHECKPOINT | Kind.TASK:
            _, _, number = entity.id.rpartition("/")
            return (_ORDER.index(Kind.JOB), entity.job or "", kind, f"{entity.id[: -len(number)]}{number:>8}")
        case Kind.ROLE:
            return (kind, "" if entity == CLUSTER else entity.id, 0, "")
        case _:
            return (kind, entity.id, 0, "")
