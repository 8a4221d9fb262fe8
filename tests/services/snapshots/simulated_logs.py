"""Simulated conversations, as a log holds them: written and read, so that every field has its schema's type."""

from __future__ import annotations

import functools
import itertools

from tailrace.schemas.event import Event, Record
from tailrace.services.core.replica import Replica
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ..scenarios import SCENARIOS, walk
from ..simulated_cluster.cluster import new_replica

WALKS = range(6)
HISTORIES = [*SCENARIOS, *WALKS]
_CODEC = Codec("histories.log")


@functools.cache
def history(name: str | int) -> tuple[Record, ...]:
    """The log of a scenario, or of a walk."""
    log = walk(name).log if isinstance(name, int) else SCENARIOS[name]().log
    read = [_CODEC.decode(_CODEC.encode(Event(each.header, each.body))) for each in log]
    return tuple(Record(each.offset, event.header, event.body) for each, event in zip(log, read, strict=True))


LONG = next(seed for seed in itertools.count(1) if len(history(seed)) > 400)
"""The first walk that takes a while, with several jobs, failures and checkpoints."""


def create_log(name: str | int) -> MemoryEventLog:
    """The same as an event log, in which offsets are as in the records."""
    log = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    log.append([Event(each.header, each.body) for each in history(name)])
    return log


def create_quiet_replica() -> Replica:
    """All roles, nothing folded; it does not tell of what is illegal."""
    return new_replica(on_illegal=lambda *_: None)
