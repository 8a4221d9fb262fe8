"""Why something was said, and what came of it: causes up to what began them, effects down as a tree.

Each event but those from outside names the event that made its sender say it, and that lies before it in the log. So
causes are a forest: `why` walks from an event to its root, `EffectTree` collects what lies below an event. An event is
an effect of another exactly where that is one of its causes.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ....schemas import resource_manager
from ....schemas.event import Record
from ....schemas.everyone import LeaderElected, SnapshotTaken, StateHash
from ....schemas.job_master import HeartbeatTimedOut
from ....schemas.task_executor import HeartbeatTimedOut as MasterTimedOut
from ...core.role import CLIENT, kind_of
from ...log import EventLog
from ...log.event_log import read_to_end
from .event_annotator import AnnotatedEvent, EventAnnotator
from .event_formatting import FormattedEvent
from .event_groups import EventGroup, group_key
from .failure_chains import Severity
from .timeline import HistoryLine, line_of

_MAX_DEPTH = 12
_MAX_WIDTH = 12
_BOTTOM = 200
"""How deep a tree of everything goes: a task that is retried for ever makes a chain without end."""
_MANY = 64
"""Causes that are looked up one by one; of more, the log between the first and the last is read once."""


class ChainStart(StrEnum):
    """What a chain of causes ends at."""

    CLIENT = "client"
    ELECTION = "election"
    CLOCK = "clock"
    FACT = "fact"
    """Somebody saw something happen in the world."""
    UNKNOWN = "unknown"
    """The log does not have the cause that the event names, or it can't be read."""


class CauseChain(msgspec.Struct, frozen=True):
    """An event and its causes."""

    began: ChainStart
    text: str
    """What began it, in words."""
    lines: tuple[HistoryLine, ...]
    """The event that was asked for first, what began it last."""


class Effect(msgspec.Struct, frozen=True):
    """An event, or several that are alike, with what came of them."""

    line: HistoryLine
    effects: list[Effect]
    left_out: int = 0
    """How many events below this one are not shown."""

    def as_data(self) -> dict[str, Any]:
        """Fit for JSON."""
        found = msgspec.to_builtins(self)
        assert isinstance(found, dict)
        return found


def trace_causes(teller: EventAnnotator, log: EventLog, offset: int) -> CauseChain:
    """Why the event at `offset` was said; the teller has told the log up to there, at least.

    Raises LookupError where there is no event; LogUnavailable.
    """
    chain = teller.chains.causes_upward(offset)
    missing = None if teller.chains.contains(chain[-1]) else chain.pop()
    told = [_annotate_again(teller, record) for record in _records(log, chain)]
    if not told:
        raise LookupError(
            f"there is no event at offset {offset}: its record can't be read, or is none of an event"
        )
    lines = tuple(line_of(EventGroup(each, teller)) for each in told)
    first = told[-1]
    if missing is None and first.cause is not None:
        missing = first.cause
    if missing is not None:
        return CauseChain(
            ChainStart.UNKNOWN, f"its cause, offset {missing}, is not in the log, or can't be read", lines
        )
    return CauseChain(_chain_start(first), _describe_event(first, teller), lines)


class _Node:
    """What is alike among what one cause, or several that are alike, led to."""

    def __init__(self, group: EventGroup, depth: int) -> None:
        self.group = group
        self.depth = depth
        self.below: dict[Hashable, _Node] = {}
        self.left_out = 0

    def effect(self) -> Effect:
        below = [each.effect() for each in self.below.values()]
        return Effect(line_of(self.group), below, self.left_out)


class EffectTree:
    """Collects what comes of an event, while a teller tells the log.

    What is alike below one node is one node, so that a thousand tasks make as large a tree as one; unless `everything`
    is wanted, each event by itself, however deep and wide the tree becomes.
    """

    def __init__(self, offset: int, teller: EventAnnotator, *, everything: bool = False) -> None:
        self._offset = offset
        self._teller = teller
        self._everything = everything
        self._root: _Node | None = None
        self._shown: dict[int, _Node] = {}
        self._hidden: dict[int, _Node] = {}
        """Offset of what is not shown -> the node above it that is."""
        self.count = 0
        """How many effects there are in all."""
        self.last: int | None = None
        """When the last of them was said."""

    def add(self, told: AnnotatedEvent) -> None:
        """The next event of the log."""
        if told.offset == self._offset:
            self._root = self._shown[told.offset] = _Node(EventGroup(told, self._teller), 0)
            return
        cause = self._teller.chains.cause(told.offset)
        if cause is None:
            return
        above, hidden = self._shown.get(cause), self._hidden.get(cause)
        if above is None and hidden is None:
            return
        self.count += 1
        self.last = told.time
        node = None if above is None else self._node(above, told)
        if node is not None:
            self._shown[told.offset] = node
            return
        hidden = above or hidden
        assert hidden is not None
        hidden.left_out += 1
        self._hidden[told.offset] = hidden

    def tree(self) -> Effect | None:
        """The event with its effects; None where the log does not have it."""
        return None if self._root is None else self._root.effect()

    def _node(self, above: _Node, told: AnnotatedEvent) -> _Node | None:
        key: Hashable = told.offset if self._everything else group_key(told)
        node = above.below.get(key)
        if node is not None:
            node.group.add(told)
            return node
        deepest, widest = (_BOTTOM, sys.maxsize) if self._everything else (_MAX_DEPTH, _MAX_WIDTH)
        if above.depth >= deepest or len(above.below) >= widest:
            return None
        node = above.below[key] = _Node(EventGroup(told, self._teller), above.depth + 1)
        return node


def _annotate_again(teller: EventAnnotator, record: Record) -> AnnotatedEvent:
    """An event that was told before."""
    chains, offset = teller.chains, record.offset
    trouble = chains.severity(offset)
    root = chains.root_of(offset) if trouble >= Severity.FAILURE else None
    entry = FormattedEvent(record, None, None, teller.ignored.get(offset))
    return AnnotatedEvent(entry, (), trouble, root, chains.has_waited(offset))


def _records(log: EventLog, offsets: Sequence[int]) -> Iterator[Record]:
    """Those that can be read, in the order of the offsets, which descend."""
    if len(offsets) <= _MANY:
        for each in offsets:
            for batch in read_to_end(log, each, end=each + 1):
                yield from batch
        return
    wanted = frozenset(offsets)
    found = [
        record
        for batch in read_to_end(log, offsets[-1], end=offsets[0] + 1)
        for record in batch
        if record.offset in wanted
    ]
    yield from reversed(found)


def _chain_start(told: AnnotatedEvent) -> ChainStart:
    body = told.body
    if kind_of(told.entry.record.header.sender) == CLIENT:
        return ChainStart.CLIENT
    match body:
        case LeaderElected():
            return ChainStart.ELECTION
        case HeartbeatTimedOut() | MasterTimedOut() | SnapshotTaken() | StateHash():
            return ChainStart.CLOCK
        case resource_manager.WorkerLost(exited=False):
            return ChainStart.CLOCK
        case _:
            return ChainStart.FACT


def _describe_event(told: AnnotatedEvent, teller: EventAnnotator) -> str:
    header = told.entry.record.header
    sender = teller.speaker(header.sender)
    match _chain_start(told):
        case ChainStart.CLIENT:
            origin = header.origin
            where = (
                "" if origin is None else f" (record {origin.offset} of {origin.topic}-{origin.partition})"
            )
            return f"{sender} asked for it{where}"
        case ChainStart.ELECTION:
            return f"{sender} has a new leader"
        case ChainStart.CLOCK:
            return f"time passed, and {sender} noticed"
        case _:
            return f"{sender} saw it happen"
