"""The causes and the effects of an event: the chain up to the first cause, and the tree of effects.

Every event names the event that caused it, which is earlier in the log; only events from outside have no cause. So
causes form a forest: `trace_causes` walks from an event to its root, and `EffectTree` collects everything below an
event.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from enum import StrEnum

import msgspec

from ....schemas import job_master, resource_manager, task_executor
from ....schemas.event import Record
from ....schemas.everyone import LeaderElected, SnapshotTaken, StateHash
from ...core.role import CLIENT, kind_of
from ...log import EventLog
from ...log.event_log import read_to_end
from ..event_formatting import FormattedEvent
from .event_annotator import AnnotatedEvent, EventAnnotator
from .event_groups import EventGroup, group_key
from .failure_chains import Severity
from .timeline import HistoryLine, line_of

_MAX_DEPTH = 12
_MAX_WIDTH = 12
_BOTTOM = 200
"""The depth of a complete tree: a task that is retried for ever makes an endless chain."""
_MANY = 64
"""The number of causes that are looked up one by one; above it, the log between the first and the last is read once."""


class ChainStart(StrEnum):
    """The kind of a chain's first cause."""

    CLIENT = "client"
    ELECTION = "election"
    CLOCK = "clock"
    FACT = "fact"
    """A process observed something outside of the roles."""
    UNKNOWN = "unknown"
    """The log does not have the cause that the event names, or cannot be read."""


class CauseChain(msgspec.Struct, frozen=True):
    """An event and its causes."""

    began: ChainStart
    text: str
    """The start in words."""
    lines: tuple[HistoryLine, ...]
    """The requested event first, the first cause last."""


class Effect(msgspec.Struct, frozen=True):
    """An event, or several similar ones, with their effects."""

    line: HistoryLine
    effects: list[Effect]
    left_out: int = 0
    """The number of events below this one that are not shown."""


def trace_causes(annotator: EventAnnotator, log: EventLog, offset: int) -> CauseChain:
    """Returns the causes of the event at `offset`. The annotator must have read the log at least up to there.

    Raises LookupError if there is no event; LogUnavailable.
    """
    chain = annotator.chains.causes_upward(offset)
    missing = None if annotator.chains.contains(chain[-1]) else chain.pop()
    event = [_annotate_again(annotator, record) for record in _records(log, chain)]
    if not event:
        raise LookupError(f"there is no event at offset {offset}: its record cannot be read, or is no event")
    lines = tuple(line_of(EventGroup(cause, annotator), annotator) for cause in event)
    first = event[-1]
    if missing is None and first.cause is not None:
        missing = first.cause
    if missing is not None:
        return CauseChain(
            ChainStart.UNKNOWN, f"its cause, offset {missing}, is not in the log, or cannot be read", lines
        )
    return CauseChain(*_chain_start(first, annotator), lines)


class _Node:
    """Similar effects of one cause, or of several similar causes."""

    def __init__(self, group: EventGroup, depth: int) -> None:
        self.group = group
        self.depth = depth
        self.below: dict[Hashable, _Node] = {}
        self.left_out = 0

    def effect(self, annotator: EventAnnotator) -> Effect:
        below = [node.effect(annotator) for node in self.below.values()]
        return Effect(line_of(self.group, annotator), below, self.left_out)


class EffectTree:
    """Collects the effects of an event while an annotator reads the log.

    Similar effects below one node are one node, so a thousand tasks make a tree as large as one task does. With
    `everything`, each event is a node of its own, however deep and wide the tree gets.
    """

    def __init__(self, offset: int, annotator: EventAnnotator, *, everything: bool = False) -> None:
        self._offset = offset
        self._annotator = annotator
        self._everything = everything
        self._root: _Node | None = None
        self._nodes: dict[int, tuple[_Node, bool]] = {}
        """Offset of an effect -> its node, or the node above it, and whether it is shown."""
        self.count = 0
        """The number of all effects."""
        self.last: int | None = None
        """The time of the last effect."""

    def add(self, event: AnnotatedEvent) -> None:
        """Adds the next event of the log."""
        if event.offset == self._offset:
            self._root = _Node(EventGroup(event, self._annotator), 0)
            self._nodes[event.offset] = self._root, True
            return
        above, is_shown = self._nodes.get(event.cause if event.cause is not None else -1, (None, False))
        if above is None:
            return
        self.count += 1
        self.last = event.time
        node = self._node(above, event) if is_shown else None
        if node is None:
            above.left_out += 1
        self._nodes[event.offset] = node or above, node is not None

    def tree(self) -> Effect:
        """Returns the event with its effects. It must have been added."""
        assert self._root is not None
        return self._root.effect(self._annotator)

    def _node(self, above: _Node, event: AnnotatedEvent) -> _Node | None:
        key: Hashable = event.offset if self._everything else group_key(event)
        node = above.below.get(key)
        if node is not None:
            node.group.add(event)
            return node
        deepest, widest = (_BOTTOM, sys.maxsize) if self._everything else (_MAX_DEPTH, _MAX_WIDTH)
        if above.depth >= deepest or len(above.below) >= widest:
            return None
        node = above.below[key] = _Node(EventGroup(event, self._annotator), above.depth + 1)
        return node


def _annotate_again(annotator: EventAnnotator, record: Record) -> AnnotatedEvent:
    """Annotates an event that was annotated before."""
    chains, offset = annotator.chains, record.offset
    trouble = chains.severity(offset)
    root = chains.root_of(offset) if trouble >= Severity.FAILURE else None
    entry = FormattedEvent(record, None, None, annotator.ignored.get(offset))
    return AnnotatedEvent(entry, (), trouble, root, chains.has_waited(offset))


def _records(log: EventLog, offsets: Sequence[int]) -> Iterator[Record]:
    """Yields the readable records in the order of the offsets, which descend."""
    if len(offsets) <= _MANY:
        for offset in offsets:
            for batch in read_to_end(log, offset, end=offset + 1):
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


_CLOCK_EVENTS = (job_master.HeartbeatTimedOut, task_executor.HeartbeatTimedOut, SnapshotTaken, StateHash)


def _chain_start(event: AnnotatedEvent, annotator: EventAnnotator) -> tuple[ChainStart, str]:
    """Returns what an event without a cause comes from, and that in words."""
    header, body = event.entry.record.header, event.body
    sender = annotator.speaker(header.sender)
    if kind_of(header.sender) == CLIENT:
        origin = header.origin
        where = (
            f" (record {origin.offset} of {origin.topic}-{origin.partition})" if origin is not None else ""
        )
        return ChainStart.CLIENT, f"{sender} requested it{where}"
    if isinstance(body, LeaderElected):
        return ChainStart.ELECTION, f"{sender} has a new leader"
    is_timeout = isinstance(body, resource_manager.WorkerLost) and not body.exited
    if is_timeout or isinstance(body, _CLOCK_EVENTS):
        return ChainStart.CLOCK, f"a timeout of {sender}"
    return ChainStart.FACT, f"{sender} observed it"
