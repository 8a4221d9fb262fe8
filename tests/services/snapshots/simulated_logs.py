"""Logs of simulated clusters, encoded and decoded, so that every field has the type of its schema."""

from __future__ import annotations

import functools
import itertools

from tailrace.schemas.event import Event, Record
from tailrace.schemas.job_master import CheckpointCompleted, CheckpointTriggered
from tailrace.services.core.replica import Replica
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ..scenarios import SCENARIOS, walk
from ..simulated_cluster.cluster import new_replica

_CODEC = Codec("histories.log")


@functools.cache
def history(name: str | int) -> tuple[Record, ...]:
    """Returns the log of a scenario, or of a random run."""
    log = walk(name).log if isinstance(name, int) else SCENARIOS[name]().log
    read = [_CODEC.decode(_CODEC.encode(Event(record.header, record.body))) for record in log]
    return tuple(
        Record(record.offset, event.header, event.body) for record, event in zip(log, read, strict=True)
    )


def _has_slow_checkpoint(seed: int) -> bool:
    triggered: dict[object, int] = {}
    for record in history(seed):
        body = record.body
        if isinstance(body, CheckpointTriggered):
            triggered[body.job_id, body.checkpoint_id] = record.header.time
        elif isinstance(body, CheckpointCompleted):
            key = body.job_id, body.checkpoint.checkpoint_id
            if record.header.time > triggered.get(key, record.header.time):
                return True
    return False


WALKS = (*range(5), next(seed for seed in itertools.count(5) if _has_slow_checkpoint(seed)))
"""In the last one a checkpoint takes a while."""
HISTORIES = [*SCENARIOS, *WALKS]
LONG = next(seed for seed in itertools.count(1) if len(history(seed)) > 400)
"""The first walk that takes a while, with several jobs, failures and checkpoints."""


def create_log(name: str | int) -> MemoryEventLog:
    """Returns the same as an event log, with the offsets of the records."""
    log = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    log.append([Event(record.header, record.body) for record in history(name)])
    return log


def create_quiet_replica() -> Replica:
    """Returns a replica of all roles with empty states, which logs no illegal events."""
    return new_replica(on_illegal=lambda *_: None)
