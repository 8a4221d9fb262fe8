"""The entities of a log: jobs, tasks, slots, allocations, TaskExecutors, checkpoints, roles and clients.

A task is one entity over all its attempts: an execution attempt id is another name of the task.
"""

from __future__ import annotations

import functools
from enum import StrEnum

import msgspec

from ...core.role import CLIENT, JOB_MASTER, TASK_EXECUTOR, instance_of, kind_of

_REMEMBERED = 1 << 16


class EntityKind(StrEnum):
    """The kinds of entities. KIND:ID names an entity if ids of several kinds are equal."""

    JOB = "job"
    TASK = "task"
    SLOT = "slot"
    ALLOCATION = "allocation"
    TASK_EXECUTOR = "taskexecutor"
    CHECKPOINT = "checkpoint"
    ROLE = "role"
    CLIENT = "client"


class Entity(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """`id` is unique among its kind: a job's, a JobID; a task's, JOB/VERTEX/INDEX; a slot's, RESOURCE/NUMBER; a
    checkpoint's, JOB/NUMBER; an allocation's, its AllocationID; a TaskExecutor's, its ResourceID."""

    kind: EntityKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.id}"

    @property
    def job(self) -> str | None:
        """The job that a job, task or checkpoint is, or belongs to."""
        match self.kind:
            case EntityKind.JOB:
                return self.id
            case EntityKind.TASK:
                return self.id.rsplit("/", 2)[0]
            case EntityKind.CHECKPOINT:
                return self.id.rsplit("/", 1)[0]
            case _:
                return None


class EntityLifetime(msgspec.Struct, gc=False):
    """The range of events of an entity so far."""

    first: int
    last: int
    events: int = 0
    names: tuple[str, ...] = ()
    """Its names besides its id; the first is the one to show."""


@functools.lru_cache(_REMEMBERED)
def job(job_id: str) -> Entity:
    return Entity(EntityKind.JOB, job_id)


@functools.lru_cache(_REMEMBERED)
def task(job_id: str, vertex_id: str, index: int) -> Entity:
    return Entity(EntityKind.TASK, f"{job_id}/{vertex_id}/{index}")


@functools.lru_cache(_REMEMBERED)
def slot(resource_id: str, number: int) -> Entity:
    return Entity(EntityKind.SLOT, f"{resource_id}/{number}")


@functools.lru_cache(_REMEMBERED)
def allocation(allocation_id: str) -> Entity:
    return Entity(EntityKind.ALLOCATION, allocation_id)


@functools.lru_cache(_REMEMBERED)
def task_executor_of(resource_id: str) -> Entity:
    return Entity(EntityKind.TASK_EXECUTOR, resource_id)


@functools.lru_cache(_REMEMBERED)
def checkpoint(job_id: str, checkpoint_id: int) -> Entity:
    return Entity(EntityKind.CHECKPOINT, f"{job_id}/{checkpoint_id}")


@functools.lru_cache(_REMEMBERED)
def job_entity(part: Entity) -> Entity:
    """The job that a task or a checkpoint belongs to."""
    return job(part.job or "")


@functools.lru_cache(_REMEMBERED)
def entity_from_address(role_address: str) -> Entity | None:
    """Returns the entity of an address; None for all clients and for everyone."""
    kind, instance = kind_of(role_address), instance_of(role_address)
    if kind == JOB_MASTER:
        return job(instance) if instance else None
    if kind == TASK_EXECUTOR:
        return task_executor_of(instance) if instance else None
    if kind == CLIENT:
        return Entity(EntityKind.CLIENT, instance) if instance else None
    return Entity(EntityKind.ROLE, kind) if kind and kind != "*" else None
