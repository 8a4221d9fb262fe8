"""Which entities an event names, whatever its type: by the ids in its fields.

What there is to ask of an event follows from its type. So the questions are looked up once for each type, as steps, and
an event takes only those of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ....schemas import job_master, resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.types import Header
from ...core.role import JOB_MASTER, instance_of, kind_of
from .entities import (
    Entity,
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


class KnownEntities(Protocol):
    """How things belong together (cast.Entities)."""

    task_of: dict[str, Entity]
    slot_of: dict[str, Entity]
    job_of: dict[str, str]
    allocation_of: dict[str, str]


FoundEntity = dict[Entity, None]
"""In the order in which they were found."""
ExtractionStep = Callable[[KnownEntities, Header, Any, FoundEntity], None]
"""(what is known, an event's header, its body, to which what it names is added)."""


class ExtractionPlan(NamedTuple):
    """What there is to ask of events of a type."""

    steps: tuple[ExtractionStep, ...]
    """They find all that an event names."""
    names_something: bool
    """Whether that may be a job, a TaskExecutor, a slot, an allocation or a task."""
    names_job: bool
    """Whether each of them has the id of its job."""
    has_graph: bool
    """Whether there may be a job's graph in it."""


@functools.cache
def extraction_plan(kind: type[Body]) -> ExtractionPlan:
    """Of a type of events."""
    fields = kind.__struct_fields__
    names_something = not _NAMING.isdisjoint(fields)
    return ExtractionPlan(_steps(kind, fields), names_something, "job_id" in fields, "job_graph" in fields)


def _steps(kind: type[Body], fields: tuple[str, ...]) -> tuple[ExtractionStep, ...]:
    found = [step for name, step in _STEPS.items() if name in fields]
    if "execution_attempt_ids" in fields and kind is not task_executor.ConfirmCheckpoint:
        # A checkpoint's confirmation names all Executions that there are, and changes none.
        found.append(_attempts)
    if kind in (job_master.UpdateTaskExecutionState, task_executor.CancelTask):
        found.append(_place)
    found += [step for name, step in _LATER_STEPS.items() if name in fields]
    if kind in _PLANS:
        found.append(_PLANS[kind])
    return tuple(found)


def _job(_: KnownEntities, __: Header, body: Any, found: FoundEntity) -> None:
    found[job(body.job_id)] = None


def _worker(_: KnownEntities, __: Header, body: Any, found: FoundEntity) -> None:
    found[task_executor_of(body.resource_id)] = None


def _attempt(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    of = known.task_of.get(body.execution_attempt_id)
    if of is not None:
        found[of] = None
        found[job_entity(of)] = None


def _attempts(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    for attempt in body.execution_attempt_ids:
        of = known.task_of.get(attempt)
        if of is not None:
            found[of] = None
            found[job_entity(of)] = None


def _place(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    """The allocation and the slot that an Execution was submitted into."""
    attempt = body.execution_attempt_id
    allocation_id = known.allocation_of.get(attempt)
    if allocation_id is not None and attempt in known.task_of:
        found[allocation(allocation_id)] = None
        if allocation_id in known.slot_of:
            found[known.slot_of[allocation_id]] = None


def _held_allocation(known: KnownEntities, allocation_id: str, found: FoundEntity) -> None:
    """An allocation, the job that asked for it, and the slot that it was given."""
    found[allocation(allocation_id)] = None
    job_id = known.job_of.get(allocation_id)
    if job_id is not None:
        found[job(job_id)] = None
    given = known.slot_of.get(allocation_id)
    if given is not None:
        found[given] = None


def _allocation(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    _held_allocation(known, body.allocation_id, found)


def _old_allocation(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    _held_allocation(known, body.old_allocation_id, found)


def _allocations(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    for each in body.allocation_ids:
        _held_allocation(known, each, found)


def _missing(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    for each in body.missing:
        _held_allocation(known, each, found)


def _surplus(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    for each in body.surplus:
        _held_allocation(known, each, found)


def _slots(known: KnownEntities, _: Header, body: Any, found: FoundEntity) -> None:
    for each in body.slots:
        if each.allocation_id is not None:
            _held_allocation(known, each.allocation_id, found)


def _slot(_: KnownEntities, __: Header, body: Any, found: FoundEntity) -> None:
    slot_id = body.slot_id
    found[slot(slot_id.resource_id, slot_id.slot_number)] = None
    found[task_executor_of(slot_id.resource_id)] = None


def _numbered(header: Header, body: Any, number: int, found: FoundEntity) -> None:
    """A checkpoint of the job that is named, or else that says or hears it."""
    own: str | None = getattr(body, "job_id", None)
    if not own:
        speaks = kind_of(header.sender) == JOB_MASTER
        own = instance_of(header.sender if speaks else header.recipient)
    if own:
        found[checkpoint(own, number)] = None


def _checkpoint_id(_: KnownEntities, header: Header, body: Any, found: FoundEntity) -> None:
    _numbered(header, body, body.checkpoint_id, found)


def _checkpoint(_: KnownEntities, header: Header, body: Any, found: FoundEntity) -> None:
    if body.checkpoint is not None:
        _numbered(header, body, body.checkpoint.checkpoint_id, found)


def _restore(_: KnownEntities, header: Header, body: Any, found: FoundEntity) -> None:
    if body.restore is not None:
        _numbered(header, body, body.restore.checkpoint_id, found)


def _reported_allocations(_: KnownEntities, __: Header, body: Any, found: FoundEntity) -> None:
    for each in body.slots:
        found[slot(each.slot_id.resource_id, each.slot_id.slot_number)] = None


def _offered_slots(_: KnownEntities, __: Header, body: job_master.OfferSlots, found: FoundEntity) -> None:
    for each in body.slots:
        found[slot(body.resource_id, each.slot_number)] = None


def _peer(_: KnownEntities, __: Header, body: task_executor.HeartbeatTimedOut, found: FoundEntity) -> None:
    other = entity_from_address(body.peer)
    if other is not None:
        found[other] = None


def _submitted_job(_: KnownEntities, __: Header, body: task_executor.SubmitTask, found: FoundEntity) -> None:
    found[task(body.job_id, body.vertex_id, body.subtask_index)] = None


_STEPS: Mapping[str, ExtractionStep] = {
    "job_id": _job,
    "resource_id": _worker,
    "execution_attempt_id": _attempt,
}
"""By the field that an event must have."""
_LATER_STEPS: Mapping[str, ExtractionStep] = {
    "allocation_id": _allocation,
    "old_allocation_id": _old_allocation,
    "allocation_ids": _allocations,
    "missing": _missing,
    "surplus": _surplus,
    "slots": _slots,
    "slot_id": _slot,
    "checkpoint_id": _checkpoint_id,
    "checkpoint": _checkpoint,
    "restore": _restore,
}
_PLANS: Mapping[type[Body], ExtractionStep] = {
    job_master.OfferSlots: _offered_slots,
    resource_manager.SendSlotReport: _reported_allocations,
    resource_manager.SlotReportContradicted: _reported_allocations,
    task_executor.HeartbeatTimedOut: _peer,
    task_executor.SubmitTask: _submitted_job,
}
