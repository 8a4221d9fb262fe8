"""Which entities each event of a log concerns.

An event concerns those that it names, its sender and its recipient, and those that depend on what it names: when a
TaskExecutor is lost, or its process begins anew, that concerns its slots, what ran in them, and their jobs. Every event
concerns something: where nothing else does, the role that says it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....schemas import resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.everyone import ClusterTerminated, LeaderElected, TaskExecutorLost
from ....schemas.states import EXECUTION_ENDS
from ....schemas.types import JobGraph
from ...core.role import CLIENT, DISPATCHER, JOB_MASTER, TASK_EXECUTOR, instance_of, kind_of
from ...job_master.state import JobMasterState
from ..projection import HistoryProjection
from . import entity_extraction
from .entities import (
    Entity,
    EntityKind,
    EntityLifetime,
    allocation,
    entity_from_address,
    job,
    task,
    task_executor_of,
)
from .entity_extraction import FoundEntity
from .event_formatting import FormattedEvent
from .slot_occupancy import ENDS, SlotOccupancy

_LIVE_STATES = frozenset({JOB_MASTER, TASK_EXECUTOR})
_CLUSTER_WIDE = frozenset({ClusterTerminated, LeaderElected, TaskExecutorLost})
"""What concerns more than it names."""
_MAX_REMEMBERED = 1 << 16


class EntityResolver:
    """All that the log has told of so far, and which of it an event concerns. Follows a Fold, event by event."""

    def __init__(self, fold: HistoryProjection) -> None:
        self._fold = fold
        self.lives: dict[Entity, EntityLifetime] = {}
        """In the order of their first events."""
        self.counting = True
        """Whether lives have to tell of their last event, and how many there were."""
        self.when_met: Callable[[Entity, EntityLifetime], object] | None = None
        """Is called when the log tells of somebody for the first time."""
        self.learnt: list[tuple[str, str, str]] | None = None
        """Execution attempt id, its task's id, and its name, as each was new; None: nobody wants to know."""
        self.task_of: dict[str, Entity] = {}
        """Execution attempt id -> its task."""
        self.holdings = SlotOccupancy()
        self.slot_of = self.holdings.slot_of
        """AllocationID -> the last slot that it was given."""
        self.allocation_of = self.holdings.allocation_of
        """Execution attempt id -> the AllocationID of the slot that it was submitted into."""
        self.job_of: dict[str, str] = {}
        """AllocationID -> the job that asked for it."""
        self._named: dict[Entity, tuple[str, ...]] = {}
        """Names that were known before the first event."""

    def adopt(self) -> None:
        """Where the fold goes on behind a snapshot: what the states there know of how things belong together."""
        replica = self._fold.replica
        for role_address, state in replica.states.items():
            if not isinstance(state, JobMasterState):
                continue
            new: FoundEntity = {}
            self._find_new(role_address, None, new)
            for each in new:
                life = self.lives.get(each) or self._met(each, replica.offset)
                life.events += 1
            if state.graph is not None:
                self.add_names(job(state.job_id), state.graph.name)
            for held in state.slots.slots.values():
                self.job_of[held.allocation_id] = state.job_id
                self.holdings.give(held.allocation_id, held.resource_id, held.slot_number)
            for attempt, execution in state.executions.items():
                if attempt not in self.task_of:
                    vertex_id, index = execution.vertex
                    self._task(attempt, state.job_id, vertex_id, index, state.graph)
                if execution.allocation_id is None or execution.resource_id is None:
                    continue
                if execution.state in EXECUTION_ENDS:
                    self.allocation_of[attempt] = execution.allocation_id
                else:
                    self.holdings.submit(attempt, execution.allocation_id, execution.resource_id)

    def resolve(self, entry: FormattedEvent, before: Mapping[str, Any]) -> tuple[Entity, ...]:
        """Those that an event concerns; the fold has just told it. `before`: states, by address, as they were."""
        record = entry.record
        header, body, kind = record.header, record.body, type(record.body)
        heeded, plan = entry.ignored is None, entity_extraction.extraction_plan(kind)
        if heeded:
            self._learn_from_event(record, plan)
        found = _participants(header.sender, header.recipient, plan.names_something).copy()
        # Tasks and allocations begin where a JobMaster's state has them first: they may be said later, or never.
        for each in self._fold.changed:
            if each in before and kind_of(each) == JOB_MASTER:
                self._find_new(each, before[each], found)
        for step in plan.steps:
            step(self, header, body, found)
        if kind in _CLUSTER_WIDE:
            found.update(dict.fromkeys(self._reached(body)))
        if entry.job is not None and not plan.names_job:
            found[job(entry.job)] = None
        if not found or (not heeded and kind_of(header.sender) != CLIENT):
            # What a deposed leader says is part of its role's story.
            speaker = entity_from_address(header.sender) or Entity(EntityKind.ROLE, kind_of(header.sender))
            found[speaker] = None
        lives, offset = self.lives, record.offset
        if self.counting:
            for entity in found:
                life = lives.get(entity)
                if life is None:
                    life = self._met(entity, offset)
                life.last = offset
                life.events += 1
        elif not found.keys() <= lives.keys():
            for entity in found:
                if entity not in lives:
                    self._met(entity, offset)
        if heeded and kind in ENDS:
            self.holdings.forget(body)
        return tuple(found)

    def learn(self, entry: FormattedEvent, before: Mapping[str, Any]) -> tuple[Entity, ...]:
        """As `concerned`, for who needs the names of things only: finds nobody, and nobody has a life."""
        record, kind = entry.record, type(entry.record.body)
        if entry.ignored is None:
            self._learn_from_event(record, entity_extraction.extraction_plan(kind))
        for each in self._fold.changed:
            if each in before and kind_of(each) == JOB_MASTER:
                self._find_new(each, before[each], {})
        if entry.ignored is None and kind in ENDS:
            self.holdings.forget(record.body)
        return ()

    def name(self, entity: Entity) -> str:
        """As people know it."""
        life = self.lives.get(entity)
        names = life.names if life is not None else self._named.get(entity, ())
        return names[0] if names else entity.id

    def add_names(self, entity: Entity, *names: str) -> None:
        """People know it by these names, too."""
        life = self.lives.get(entity)
        known = self._named.get(entity, ()) if life is None else life.names
        known = (*known, *(each for each in names if each and each not in known))
        if life is None:
            self._named[entity] = known
        else:
            life.names = known

    def _met(self, entity: Entity, offset: int) -> EntityLifetime:
        """Its life, which begins here."""
        life = self.lives[entity] = EntityLifetime(offset, offset, names=self._named.pop(entity, ()))
        if self.when_met is not None:
            self.when_met(entity, life)
        return life

    def _reached(self, body: Body) -> Iterator[Entity]:
        """What depends on what is lost, led anew, or at an end."""
        match body:
            case TaskExecutorLost(resource_id=resource_id):
                yield from self._on(resource_id)
            case LeaderElected(role=role):
                yield from self._led(role)
            case ClusterTerminated():
                yield Entity(EntityKind.ROLE, DISPATCHER)
            case _:
                pass

    def _on(self, resource_id: str) -> Iterator[Entity]:
        """What a TaskExecutor holds: allocations, their slots and jobs, and the tasks in them."""
        for allocation_id, attempts in self.holdings.occupancy_on(resource_id).items():
            yield allocation(allocation_id)
            if allocation_id in self.slot_of:
                yield self.slot_of[allocation_id]
            if allocation_id in self.job_of:
                yield job(self.job_of[allocation_id])
            yield from (self.task_of[each] for each in attempts)

    def _led(self, role: str) -> Iterator[Entity]:
        """What goes on under a new leader: a TaskExecutor's tasks, and the jobs that go with the Dispatcher."""
        own = entity_from_address(role)
        if own is not None:
            yield own
        if kind_of(role) == TASK_EXECUTOR:
            yield from self._on(instance_of(role))
        elif role == DISPATCHER:
            replica = self._fold.replica
            claimed = replica.leadership.is_claimed
            for each in replica.active_addresses:
                if kind_of(each) == JOB_MASTER and not claimed(each):
                    yield job(instance_of(each))

    def _learn_from_event(self, record: Record, plan: entity_extraction.ExtractionPlan) -> None:
        """Learns what an event says of how things belong together, and what they are called."""
        lesson = _LEARN_FROM.get(type(record.body))
        if lesson is not None:
            lesson(self, record)
        if plan.has_graph:
            self._learn_name(record.body)

    def _slot_asked_for(self, record: Record) -> None:
        body = record.body
        assert isinstance(body, task_executor.RequestSlot)
        self.holdings.give(body.allocation_id, body.slot_id.resource_id, body.slot_id.slot_number)
        self.job_of[body.allocation_id] = body.job_id

    def _allocation_asked_for(self, record: Record) -> None:
        assert isinstance(record.body, resource_manager.RequestSlot)
        self.job_of.setdefault(record.body.allocation_id, record.body.job_id)

    def _submitted(self, record: Record) -> None:
        body = record.body
        assert isinstance(body, task_executor.SubmitTask)
        self._task(body.execution_attempt_id, body.job_id, body.vertex_id, body.subtask_index)
        resource_id = instance_of(record.header.recipient)
        self.holdings.submit(body.execution_attempt_id, body.allocation_id, resource_id)

    def _registered(self, record: Record) -> None:
        assert isinstance(record.body, task_executor.TaskExecutorRegistrationSuccess)
        self.add_names(task_executor_of(instance_of(record.header.recipient)), record.body.instance_id)

    def _learn_name(self, body: Any) -> None:
        if isinstance(body.job_graph, JobGraph):
            self.add_names(job(body.job_id), body.job_graph.name)

    def _reported(self, record: Record) -> None:
        body = record.body
        assert isinstance(body, resource_manager.SendSlotReport | resource_manager.SlotReportContradicted)
        for status in body.slots:
            if status.allocation_id is not None:
                self.holdings.give(status.allocation_id, body.resource_id, status.slot_id.slot_number)
                if status.job_id is not None:
                    self.job_of.setdefault(status.allocation_id, status.job_id)

    def _find_new(self, role_address: str, before: Any, found: FoundEntity) -> None:
        """Adds the tasks and allocations that a JobMaster's state has, and that were not known."""
        state = self._fold.replica.states.get(role_address)
        if not isinstance(state, JobMasterState) or state is before:
            return
        known = before if isinstance(before, JobMasterState) else JobMasterState(state.job_id)
        if state.current is not known.current:
            for (vertex_id, index), attempt in state.current.items():
                if attempt not in self.task_of:
                    found[self._task(attempt, state.job_id, vertex_id, index, state.graph)] = None
        slots = state.slots
        if slots.generation != known.slots.generation and slots.requests is not known.slots.requests:
            for each in slots.requests:
                if each not in self.job_of:
                    self.job_of[each] = state.job_id
                    found[allocation(each)] = None

    def _task(
        self, attempt: str, job_id: str, vertex_id: str, index: int, graph: JobGraph | None = None
    ) -> Entity:
        entity = task(job_id, vertex_id, index)
        name = self._fold.task_of(attempt)
        for vertex in graph.vertices if graph else ():
            if vertex.vertex_id == vertex_id:
                name = f"{vertex.name} ({index + 1}/{vertex.parallelism})"
        if self.learnt is not None and self.task_of.get(attempt) != entity:
            self.learnt.append((attempt, entity.id, name))
        self.learn_task(attempt, entity, name)
        return entity

    def learn_task(self, attempt: str, entity: Entity, name: str) -> None:
        """An Execution is an attempt of a task, and what that is called."""
        self.task_of[attempt] = entity
        self.add_names(entity, name, attempt)


_LEARN_FROM: Mapping[type[Body], Callable[[EntityResolver, Record], None]] = {
    resource_manager.RequestSlot: EntityResolver._allocation_asked_for,
    resource_manager.SendSlotReport: EntityResolver._reported,
    resource_manager.SlotReportContradicted: EntityResolver._reported,
    task_executor.RequestSlot: EntityResolver._slot_asked_for,
    task_executor.SubmitTask: EntityResolver._submitted,
    task_executor.TaskExecutorRegistrationSuccess: EntityResolver._registered,
}
"""What is said of how things belong together."""


@functools.lru_cache(_MAX_REMEMBERED)
def _participants(sender: str, recipient: str, names_something: bool) -> FoundEntity:
    """Sender and recipient; a role that there is one of only where nobody else takes part. To be copied."""
    found = [
        each for each in map(entity_from_address, dict.fromkeys((sender, recipient))) if each is not None
    ]
    others = [each for each in found if each.kind is not EntityKind.ROLE]
    if names_something or kind_of(sender) in _LIVE_STATES or kind_of(recipient) in _LIVE_STATES:
        return dict.fromkeys(others)
    return dict.fromkeys((*others, *(each for each in found if each.kind is EntityKind.ROLE)))
