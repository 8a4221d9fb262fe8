"""Simulated histories with the state after each event; tests compare time travel with them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from tailrace.schemas.event import Event
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots.state_hash import RepeatedStateHasher, hash_all

from ..snapshots.simulated_logs import WALKS, create_quiet_replica, history

SEEDS = WALKS
SHORT = 40
"""Events: so many that a master leads, and a job may run."""


class LiveMoment(msgspec.Struct, frozen=True):
    """The state after one event of a replica that has folded all events one by one."""

    offset: int
    states: Mapping[str, Any]
    leadership: LeadershipState
    awake: frozenset[str]
    state_hash: str
    time: int
    """The highest of all events so far."""


@functools.cache
def record_live_moments(seed: int) -> tuple[LiveMoment, ...]:
    """Returns a LiveMoment for each event."""
    replica, moments, time = create_quiet_replica(), [], -1
    hasher = RepeatedStateHasher(replica)
    for record in history(seed):
        replica.apply(record)
        time = max(time, record.header.time)
        moments.append(
            LiveMoment(
                record.offset,
                dict(replica.states),
                replica.leadership,
                frozenset(replica.active_addresses),
                hash_all(hasher.hashes()),
                time,
            )
        )
    return tuple(moments)


def events(seed: int) -> list[Event]:
    """Returns the history as events to append."""
    return [Event(record.header, record.body) for record in history(seed)]


def create_log(some: list[Event]) -> MemoryEventLog:
    """Returns a log of the events."""
    log = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    log.append(some)
    return log


def describe_difference(replica: Replica, from_: LiveMoment) -> str | None:
    """Describes the difference; empty if there is none."""
    if replica.offset != from_.offset:
        return f"offset {replica.offset}, not {from_.offset}"
    if replica.leadership != from_.leadership:
        return "who leads"
    if frozenset(replica.active_addresses) != from_.awake:
        return f"awake: {frozenset(replica.active_addresses) ^ from_.awake}"
    if replica.states.keys() != from_.states.keys():
        return f"addresses: {replica.states.keys() ^ from_.states.keys()}"
    wrong = [item for item, state in from_.states.items() if replica.states[item] != state]
    return f"states: {', '.join(wrong)}" if wrong else None
