"""Finds the entities that each event of a log concerns.

An event concerns the entities that its fields name, its sender and its recipient, and those that depend on them: the
loss of a TaskExecutor, or a new process of it, concerns its slots, the tasks in them, and their jobs. Every event
concerns at least one entity: without any other, the role that sends it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....schemas import job_master, resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.everyone import ClusterTerminated, LeaderElected, TaskExecutorLost
from ....schemas.types import JobGraph
from ...core.role import CLIENT, DISPATCHER, JOB_MASTER, TASK_EXECUTOR, address, instance_of, kind_of
from ...job_master.slot_pool import SlotPool
from ...job_master.state import StartedJob
from ...task_executor.state import TaskExecutorState
from ..event_formatting import FormattedEvent
from ..projection import HistoryProjection, find_task_name
from .entities import (
    Entity,
    EntityKind,
    EntityLifetime,
    allocation,
    checkpoint,
    entity_from_address,
    job,
    job_entity,
    slot,
    task,
    task_executor_of,
)

_NAMING = frozenset({"job_id", "resource_id", "allocation_id", "execution_attempt_id", "slot_id"})
_HAVE_TASKS = frozenset({JOB_MASTER, TASK_EXECUTOR})
_DEPENDING: frozenset[type[Body]] = frozenset(
    {
        ClusterTerminated,
        LeaderElected,
        TaskExecutorLost,
        job_master.UpdateTaskExecutionState,
        task_executor.CancelTask,
    }
)
"""Events that concern more entities than they name."""
_MAX_REMEMBERED = 1 << 16

Found = dict[Entity, None]
"""In the order in which they were found."""
States = Mapping[str, Any]
Extract = Callable[["EntityResolver", Record, Any, Found], None]
"""(resolver, event, value of a field, to which the entities in it are added)."""


class EntityResolver:
    """All entities of the log so far, and their relations. It follows a HistoryProjection, event by event."""

    def __init__(self, fold: HistoryProjection) -> None:
        self._fold = fold
        self.lives: dict[Entity, EntityLifetime] = {}
        """In the order of their first events."""
        self.task_of: dict[str, Entity] = {}
        """Execution attempt id -> its task."""
        self.slot_of: dict[str, Entity] = {}
        """AllocationID -> its last slot."""

    def adopt(self) -> None:
        """Takes the entities from the states of a snapshot that the projection begins with."""
        replica = self._fold.replica
        for state in replica.states.values():
            if not isinstance(state, StartedJob):
                continue
            found: Found = {}
            self._find_new(state, None, found)
            for attempt, execution in state.executions.items():
                found[self._add_task(attempt, state, *execution.vertex)] = None
            for entity in found:
                self._life(entity).events += 1
            self.add_name(job(state.job_id), state.graph.name)
            for held in state.slots.slots.values():
                self.slot_of[held.allocation_id] = slot(held.resource_id, held.slot_number)

    def resolve(self, entry: FormattedEvent, before: States) -> tuple[Entity, ...]:
        """Returns the entities of an event that the projection has just applied. `before`: the states by address
        before it."""
        record = entry.record
        header, body, kind = record.header, record.body, type(record.body)
        plan, names_something = _extraction_plan(kind)
        heeded = entry.ignored is None
        if heeded:
            self._learn(record)
        found = _participants(header.sender, header.recipient, names_something).copy()
        # Tasks and allocations begin where a JobMaster's state has them first: events may name them later, or never.
        states = self._fold.replica.states
        for changed in self._fold.changed:
            state, known = states[changed], before.get(changed)
            if changed in before and isinstance(state, StartedJob):
                self._find_new(state, known if isinstance(known, StartedJob) else None, found)
        for name, extract in plan:
            value = getattr(body, name)
            if value is not None:
                extract(self, record, value, found)
        if kind in _DEPENDING:
            found.update(dict.fromkeys(self._dependent(record, before)))
        if entry.job is not None:
            found[job(entry.job)] = None
        if not found or (not heeded and kind_of(header.sender) != CLIENT):
            # The events of a deposed leader are part of its role's history.
            speaker = entity_from_address(header.sender) or Entity(EntityKind.ROLE, kind_of(header.sender))
            found[speaker] = None
        for entity in found:
            life = self._life(entity)
            life.last = record.offset
            life.events += 1
        return tuple(found)

    def name(self, entity: Entity) -> str:
        """Returns the name of an entity for people."""
        life = self.lives.get(entity)
        return life.names[0] if life is not None and life.names else entity.id

    def add_name(self, entity: Entity, name: str) -> None:
        """Adds a name of an entity."""
        life = self._life(entity)
        if name and name not in life.names:
            life.names = (*life.names, name)

    def _life(self, entity: Entity) -> EntityLifetime:
        """Returns the lifetime of an entity; it begins with the last event if it is new."""
        life = self.lives.get(entity)
        if life is None:
            offset = self._fold.replica.offset
            life = self.lives[entity] = EntityLifetime(offset, offset)
        return life

    def _learn(self, record: Record) -> None:
        """Learns names and relations that only the event has."""
        body: Any = record.body
        match body:
            case task_executor.RequestSlot(allocation_id=allocation_id, slot_id=slot_id):
                self.slot_of[allocation_id] = slot(slot_id.resource_id, slot_id.slot_number)
            case resource_manager.SendSlotReport() | resource_manager.SlotReportContradicted():
                for status in body.slots:
                    if status.allocation_id is not None:
                        self.slot_of[status.allocation_id] = slot(
                            body.resource_id, status.slot_id.slot_number
                        )
            case resource_manager.RegisterTaskExecutor(resource_id=resource_id):
                self.add_name(task_executor_of(resource_id), body.container_id)
            case task_executor.TaskExecutorRegistrationSuccess(instance_id=instance_id):
                self.add_name(task_executor_of(instance_of(record.header.recipient)), instance_id)
            case _:
                pass
        graph = getattr(body, "job_graph", None)
        if isinstance(graph, JobGraph):
            self.add_name(job(body.job_id), graph.name)

    def _find_new(self, state: StartedJob, before: StartedJob | None, found: Found) -> None:
        """Adds the tasks and allocations in a JobMaster's state that were unknown."""
        if before is None or state.current_attempts is not before.current_attempts:
            for (vertex_id, index), attempt in state.current_attempts.items():
                if attempt not in self.task_of:
                    found[self._add_task(attempt, state, vertex_id, index)] = None
        slots, known = state.slots, SlotPool() if before is None else before.slots
        if slots.generation != known.generation and slots.requests is not known.requests:
            for request in slots.requests:
                if allocation(request) not in self.lives:
                    found[allocation(request)] = None

    def _add_task(self, attempt: str, state: StartedJob, vertex_id: str, index: int) -> Entity:
        entity = self.task_of[attempt] = task(state.job_id, vertex_id, index)
        self.add_name(entity, find_task_name(state.graph, vertex_id, index) or "")
        self.add_name(entity, attempt)
        return entity

    def _dependent(self, record: Record, before: States) -> Iterator[Entity]:
        """Yields the entities that depend on what is lost, has a new leader, or has ended."""
        body = record.body
        match body:
            case TaskExecutorLost(resource_id=resource_id):
                yield from self._on_task_executor(before.get(address(TASK_EXECUTOR, resource_id)))
            case LeaderElected(role=role):
                own = entity_from_address(role)
                if own is not None:
                    yield own
                if kind_of(role) == TASK_EXECUTOR:
                    yield from self._on_task_executor(before.get(role))
                elif role == DISPATCHER:
                    replica = self._fold.replica
                    for led in replica.active_addresses:
                        if kind_of(led) == JOB_MASTER:
                            yield job(instance_of(led))
            case ClusterTerminated():
                yield Entity(EntityKind.ROLE, DISPATCHER)
            case job_master.UpdateTaskExecutionState() | task_executor.CancelTask():
                # The slot that the task runs in.
                for state in before.values():
                    if isinstance(state, TaskExecutorState):
                        running = state.tasks.get(body.execution_attempt_id)
                        if running is not None:
                            yield from self._with_slot(running.allocation_id)
            case _:
                pass

    def _on_task_executor(self, state: object) -> Iterator[Entity]:
        """Yields the entities on a TaskExecutor: allocations, their slots and jobs, and the tasks in them."""
        if isinstance(state, TaskExecutorState):
            for allocation_id, number in state.slots.allocated.items():
                yield allocation(allocation_id)
                yield slot(state.resource_id, number)
            yield from map(job, state.slots.per_job)
            for running in state.tasks.values():
                yield task(running.job_id, running.vertex_id, running.subtask_index)

    def _with_slot(self, allocation_id: str) -> Iterator[Entity]:
        yield allocation(allocation_id)
        given = self.slot_of.get(allocation_id)
        if given is not None:
            yield given

    def _extract_job(self, _: Record, job_id: str, found: Found) -> None:
        found[job(job_id)] = None

    def _extract_task_executor(self, _: Record, resource_id: str, found: Found) -> None:
        found[task_executor_of(resource_id)] = None

    def _extract_task_executors(self, _: Record, resource_ids: tuple[str, ...], found: Found) -> None:
        found.update(dict.fromkeys(map(task_executor_of, resource_ids)))

    def _extract_attempt(self, _: Record, attempt: str, found: Found) -> None:
        entity = self.task_of.get(attempt)
        if entity is not None:
            found[entity] = found[job_entity(entity)] = None

    def _extract_attempts(self, record: Record, attempts: tuple[str, ...], found: Found) -> None:
        # A checkpoint's confirmation names all Executions that there are, and changes none.
        if not isinstance(record.body, task_executor.ConfirmCheckpoint):
            for attempt in attempts:
                self._extract_attempt(record, attempt, found)

    def _extract_allocation(self, _: Record, allocation_id: str, found: Found) -> None:
        found.update(dict.fromkeys(self._with_slot(allocation_id)))

    def _extract_allocations(self, record: Record, allocation_ids: tuple[str, ...], found: Found) -> None:
        for allocation_id in allocation_ids:
            self._extract_allocation(record, allocation_id, found)

    def _extract_slot_id(self, _: Record, slot_id: Any, found: Found) -> None:
        found[slot(slot_id.resource_id, slot_id.slot_number)] = None
        found[task_executor_of(slot_id.resource_id)] = None

    def _extract_slots(self, record: Record, slots: tuple[Any, ...], found: Found) -> None:
        body: Any = record.body
        for offered in slots:
            number = (
                offered.slot_number
                if isinstance(body, job_master.OfferSlots)
                else offered.slot_id.slot_number
            )
            found[slot(body.resource_id, number)] = None
            if offered.allocation_id is not None:
                self._extract_allocation(record, offered.allocation_id, found)
            if (job_id := getattr(offered, "job_id", None)) is not None:
                found[job(job_id)] = None

    def _extract_checkpoint_id(self, record: Record, number: int, found: Found) -> None:
        """Adds a checkpoint of the named job, or of the job that sends or receives the event."""
        header, own = record.header, getattr(record.body, "job_id", None)
        if not own:
            is_sender = kind_of(header.sender) == JOB_MASTER
            own = instance_of(header.sender if is_sender else header.recipient)
        if own:
            found[checkpoint(own, number)] = None

    def _extract_checkpoint(self, record: Record, stored: Any, found: Found) -> None:
        self._extract_checkpoint_id(record, stored.checkpoint_id, found)

    def _extract_peer(self, _: Record, peer: str, found: Found) -> None:
        other = entity_from_address(peer)
        if other is not None:
            found[other] = None

    def _extract_subtasks(self, record: Record, subtasks: tuple[Any, ...], found: Found) -> None:
        body: Any = record.body
        for subtask in subtasks:
            found[task(body.job_id, body.vertex_id, subtask.subtask_index)] = None
            self._extract_allocation(record, subtask.allocation_id, found)

    def _extract_acknowledgements(self, record: Record, parts: tuple[Any, ...], found: Found) -> None:
        for part in parts:
            self._extract_attempt(record, part.execution_attempt_id, found)


_FIELDS: Mapping[str, Extract] = {
    "job_id": EntityResolver._extract_job,
    "resource_id": EntityResolver._extract_task_executor,
    "resource_ids": EntityResolver._extract_task_executors,
    "execution_attempt_id": EntityResolver._extract_attempt,
    "execution_attempt_ids": EntityResolver._extract_attempts,
    "allocation_id": EntityResolver._extract_allocation,
    "old_allocation_id": EntityResolver._extract_allocation,
    "allocation_ids": EntityResolver._extract_allocations,
    "missing": EntityResolver._extract_allocations,
    "surplus": EntityResolver._extract_allocations,
    "slots": EntityResolver._extract_slots,
    "slot_id": EntityResolver._extract_slot_id,
    "checkpoint_id": EntityResolver._extract_checkpoint_id,
    "checkpoint": EntityResolver._extract_checkpoint,
    "restore": EntityResolver._extract_checkpoint,
    "peer": EntityResolver._extract_peer,
    "subtasks": EntityResolver._extract_subtasks,
    "acknowledgements": EntityResolver._extract_acknowledgements,
}
"""Field of an event -> the function that finds the entities in it."""


@functools.cache
def _extraction_plan(kind: type[Body]) -> tuple[tuple[tuple[str, Extract], ...], bool]:
    """Returns the fields of an event type that name entities, and whether they name more than a checkpoint."""
    fields = kind.__struct_fields__
    plan = tuple((name, _FIELDS[name]) for name in fields if name in _FIELDS)
    return plan, not _NAMING.isdisjoint(fields)


@functools.lru_cache(_MAX_REMEMBERED)
def _participants(sender: str, recipient: str, names_something: bool) -> Found:
    """Returns sender and recipient; a role with one instance only if no other entity takes part. Copy it before a
    change."""
    addresses = dict.fromkeys((sender, recipient))
    found = [entity for entity in map(entity_from_address, addresses) if entity is not None]
    others = [entity for entity in found if entity.kind is not EntityKind.ROLE]
    if names_something or kind_of(sender) in _HAVE_TASKS or kind_of(recipient) in _HAVE_TASKS:
        return dict.fromkeys(others)
    return dict.fromkeys((*others, *(entity for entity in found if entity.kind is EntityKind.ROLE)))
