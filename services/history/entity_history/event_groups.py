"""Steps of one kind, told together: the first of them says where and when, all of them how many and of what.

A group keeps a few names and its numbers' ends, not its events: there may be a million.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ....schemas import everyone, job_master, resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.types import ExecutionState
from .event_annotator import AnnotatedEvent, EventAnnotator
from .event_descriptions import EntityNames, slot_name

_MAX_NAMES = 4
_REMEMBERED = 1 << 12
_LONGEST_GAP = 5_000_000
"""Microseconds between two events that are told together."""
_RECURRING: frozenset[type[Body]] = frozenset(
    (
        everyone.SnapshotTaken,
        everyone.StateHash,
        job_master.AcknowledgeCheckpoint,
        job_master.CheckpointCompleted,
        job_master.CheckpointDiscarded,
        job_master.CheckpointTriggered,
        task_executor.ConfirmCheckpoint,
        task_executor.TriggerCheckpoint,
    )
)
"""What comes again and again, however long that goes on."""


def group_key(told: AnnotatedEvent) -> Hashable:
    """The same for events that can be told together."""
    body = told.body
    what: Hashable = None
    match body:
        case job_master.UpdateTaskExecutionState():
            what = body.execution_state, (body.failure or "")[:200]
        case job_master.CheckpointCompleted():
            what = body.checkpoint.snapshot_type
        case job_master.SlotAllocationFailed() | job_master.FailSlot() | task_executor.FreeSlot():
            what = body.reason[:200]
        case job_master.CheckpointAborted():
            what = body.failure
        case _:
            what = told.severity
    return type(body), what, told.entry.ignored is not None


class EventGroup:
    """Events that are alike."""

    def __init__(self, told: AnnotatedEvent, teller: EventAnnotator, home: str | None = None) -> None:
        """`home`: the job whose story it is."""
        self.first = self.last = told
        self.count = 0
        self._teller = teller
        self._home = home
        self._names = _Names()
        self._low = self._high = 0
        self._senders: dict[str, None] = {}
        self._recipients: dict[str, None] = {}
        self.add(told)

    @property
    def cause(self) -> int | None:
        """Of the first."""
        return self.first.cause

    @property
    def wait_us(self) -> int | None:
        """How long after its cause the first was said, in microseconds."""
        cause = self.first.cause
        said = None if cause is None else self._teller.chains.time(cause)
        return None if said is None else self.first.time - said

    def accepts(self, told: AnnotatedEvent) -> bool:
        """Whether it comes soon enough after the last to be told together with it."""
        return type(told.body) in _RECURRING or told.time - self.last.time < _LONGEST_GAP

    def add(self, told: AnnotatedEvent) -> None:
        """One more."""
        self.last = told
        self.count += 1
        name, number = _aspects(told.body, self._teller)
        if name:
            self._names.add(name)
        if number is not None:
            self._low = number if self.count == 1 else min(self._low, number)
            self._high = max(self._high, number)
        header = told.entry.record.header
        for known, address in ((self._senders, header.sender), (self._recipients, header.recipient)):
            if len(known) <= _MAX_NAMES:
                known[address] = None

    def text(self) -> str:
        """What they say."""
        if self.count == 1:
            return self._teller.text(self.first)
        plural = _plural(self.first.body)
        if plural is None:
            return f"{self._teller.text(self.last)} ({self.count:,} times)"
        numbers = f"{self._low}" if self._low == self._high else f"{self._low} to {self._high}"
        distinct = self._names.distinct
        again = f" ({self.count:,} times in all)" if distinct is not None and distinct < self.count else ""
        count = self.count if distinct is None or not again else distinct
        said = plural.format(count=f"{count:,}", names=self._names, numbers=numbers) + again
        said = _singular(said) if count == 1 else said
        # The first one's reason stands for all.
        why = self._reason() if _has_reason(self.first) else ""
        return f"{said}: {why}" if why else said

    def _reason(self) -> str:
        # The name of a task may have a colon itself, as in "Source: Kafka orders".
        name, _ = _aspects(self.first.body, self._teller)
        text = self._teller.text(self.first)
        return (text.partition(name)[2] if name else text).partition(": ")[2]

    def ignored(self) -> str | None:
        """Why no reader takes notice of the first."""
        return self._teller.ignored_because(self.first)

    def who(self) -> str:
        """Who says it to whom."""
        if self.count == 1:
            return self._teller.who(self.first, self._home)
        senders, recipients = list(self._senders), list(self._recipients)
        if senders == recipients or recipients == ["*"]:
            return self._named(senders)
        return f"{self._named(senders)} -> {self._named(recipients)}"

    def _named(self, addresses: list[str]) -> str:
        shown = [self._teller.speaker(each, self._home) for each in addresses[:2]]
        return ", ".join(shown) + (", ..." if len(addresses) > 2 else "")


class _Names:
    """What they are about: tasks by vertex."""

    def __init__(self) -> None:
        self._vertices: dict[str, tuple[int, dict[int, None]]] = {}
        """Vertex -> its parallelism and its subtasks, from 1; another name -> 0."""
        self._more = False

    def add(self, name: str) -> None:
        vertex, number, of = _parts(name)
        if vertex not in self._vertices and len(self._vertices) == _MAX_NAMES:
            self._more = True
            return
        self._vertices.setdefault(vertex, (of, {}))[1][number] = None

    @property
    def distinct(self) -> int | None:
        """How many tasks there are among them; None where they are no tasks, or too many to know."""
        if self._more or not self._vertices or any(of == 0 for of, _ in self._vertices.values()):
            return None
        return sum(len(numbers) for _, numbers in self._vertices.values())

    def __str__(self) -> str:
        shown = [self._shown(name, of, sorted(numbers)) for name, (of, numbers) in self._vertices.items()]
        return ", ".join(shown) + (", ..." if self._more else "")

    @staticmethod
    def _shown(name: str, of: int, numbers: Sequence[int]) -> str:
        if of == 0:
            return name
        if len(numbers) == 1:
            return f"{name} ({numbers[0]}/{of})"
        if len(numbers) == of:
            return f"{name} (all {of})"
        if len(numbers) <= _MAX_NAMES:
            return f"{name} ({', '.join(map(str, numbers))} of {of})"
        return f"{name} ({len(numbers)} of {of})"


_TASK = re.compile(r"(.*) \((\d+)/(\d+)\)", re.DOTALL)


@functools.lru_cache(_REMEMBERED)
def _parts(name: str) -> tuple[str, int, int]:
    """(vertex, subtask from 1, parallelism) of a task; any other name, with zeros."""
    found = _TASK.fullmatch(name)
    return (name, 0, 0) if found is None else (found[1], int(found[2]), int(found[3]))


def _aspects(body: Body, names: EntityNames) -> tuple[str | None, int | None]:
    """What an event is about, by name, and by number."""
    kind = type(body)
    if kind in _ASPECTS:
        return _ASPECTS[kind](body, names)
    number, attempt = getattr(body, "checkpoint_id", None), getattr(body, "execution_attempt_id", None)
    return (names.task(attempt) if isinstance(attempt, str) else None), number


def _slot_aspects(body: Any, _: EntityNames) -> tuple[str | None, int | None]:
    return slot_name(body.slot_id), None


def _state_aspects(body: Any, _: EntityNames) -> tuple[str | None, int | None]:
    return None, body.offset


_ASPECTS: Mapping[type[Body], Callable[[Any, EntityNames], tuple[str | None, int | None]]] = {
    everyone.SnapshotTaken: _state_aspects,
    everyone.StateHash: _state_aspects,
    job_master.CheckpointCompleted: lambda b, _: (None, b.checkpoint.checkpoint_id),
    job_master.OfferSlots: lambda b, _: (
        ", ".join(f"{b.resource_id}/{each.slot_number}" for each in b.slots[:4]),
        None,
    ),
    resource_manager.NotifySlotAvailable: _slot_aspects,
    resource_manager.SlotRequestAccepted: _slot_aspects,
    task_executor.RequestSlot: _slot_aspects,
    task_executor.SubmitTask: lambda b, n: (n.vertex(b.job_id, b.vertex_id, b.subtask_index), None),
}
"""Where it is not the Execution's task and a checkpoint's number."""


_STATES: Mapping[ExecutionState, str] = {
    ExecutionState.RUNNING: "{count} tasks are RUNNING: {names}",
    ExecutionState.FINISHED: "{count} tasks have FINISHED: {names}",
    ExecutionState.CANCELED: "{count} tasks were CANCELED: {names}",
    ExecutionState.FAILED: "{count} tasks FAILED ({names})",
    ExecutionState.INITIALIZING: "{count} tasks are getting ready: {names}",
}
_VERBS = {"are": "is", "have": "has", "were": "was"}
_ONE = re.compile(r"(of )?\b1 (task|slot|checkpoint|request)s(?: (are|have|were)\b)?( their\b)?")


def _singular(text: str) -> str:
    """The grammar of one: `1 tasks are RUNNING` becomes `1 task is RUNNING`."""

    def one(found: re.Match[str]) -> str:
        of, noun, verb, their = found.groups()
        verb = f" {verb if of else _VERBS[verb]}" if verb else ""
        return f"{of or ''}1 {noun}{verb}{' its' if their else ''}"

    return _ONE.sub(one, text, count=1)


_PLURALS: Mapping[type[Body], str] = {
    everyone.SnapshotTaken: "keeps the state {count} times, behind offsets {numbers}",
    everyone.StateHash: "tells {count} times what the state comes to, behind offsets {numbers}",
    job_master.AcknowledgeCheckpoint: "{count} tasks have their part of checkpoint {numbers} in storage: {names}",
    job_master.CheckpointAborted: "gives {count} checkpoints up ({numbers})",
    job_master.CheckpointCompleted: "{count} checkpoints are complete: {numbers}",
    job_master.CheckpointDiscarded: "the files of {count} checkpoints are deleted: {numbers}",
    job_master.CheckpointTriggered: "begins {count} checkpoints: {numbers}",
    job_master.FailSlot: "{count} slots are gone",
    job_master.OfferSlots: "offer slots: {names}",
    job_master.SlotAllocationFailed: "has no slot for {count} requests",
    job_master.TaskAcknowledged: "has taken {count} tasks: {names}",
    resource_manager.NotifySlotAvailable: "{count} slots are free: {names}",
    resource_manager.RequestSlot: "asks for {count} slots",
    resource_manager.SlotRequestAccepted: "holds {count} slots: {names}",
    task_executor.CancelTask: "stops {count} tasks: {names}",
    task_executor.ConfirmCheckpoint: "checkpoint {numbers} is complete",
    task_executor.FreeSlot: "gives {count} slots back",
    task_executor.RequestSlot: "asks for {count} slots: {names}",
    task_executor.SubmitTask: "runs {count} tasks: {names}",
    task_executor.TriggerCheckpoint: "tells tasks to begin checkpoint {numbers}",
}


def _plural(body: Body) -> str | None:
    if isinstance(body, job_master.UpdateTaskExecutionState):
        return _STATES.get(body.execution_state)
    return _PLURALS.get(type(body))


_REASONED: tuple[type[Body], ...] = (
    job_master.CheckpointAborted,
    job_master.FailSlot,
    job_master.SlotAllocationFailed,
    task_executor.FreeSlot,
)


def _has_reason(told: AnnotatedEvent) -> bool:
    body = told.body
    if isinstance(body, job_master.UpdateTaskExecutionState):
        return body.failure is not None
    return isinstance(body, _REASONED)
