"""Whatever a leader appends to the log, no reader ends: false events of leaders are folded, or they are illegal.

False events stand between those of a true log, several in one history. They have the sender and the epoch of a leader,
and a body in which fields come from other events: ids, slots and checkpoints that exist, but do not fit.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.core.replica import Replica
from tailrace.services.log import Codec

from ..example_count import example_count
from .test_properties import LOGS, log_of, quiet

HISTORIES = 100 * example_count(5)
FAR_FUTURE = 10**16
EXTREMES: Mapping[str, Sequence[Any]] = {
    "checkpoint_id": (0, 1, 2, 3, 99, -1),
    "number_of_slots": (0, 1, 1000, -1),
    "execution_state": tuple(ExecutionState),
    "status": tuple(JobStatus),
    "epoch": (1, 2, 10**6),
}
CODEC = Codec("false-events")


def false_events(log: Sequence[Record], draw: random.Random) -> Iterator[Event]:
    """Yields true events with other fields, senders and recipients, as long as they fit their schemas."""
    values: dict[str, list[Any]] = defaultdict(list)
    for record in log:
        for field in record.body.__struct_fields__:
            values[field].append(getattr(record.body, field))
    for field, extremes in EXTREMES.items():
        values[field] += extremes
    while True:
        header, body = (true := draw.choice(log)).header, true.body
        fields = {name: draw.choice(values[name]) for name in body.__struct_fields__ if draw.random() < 0.4}
        sender = header.sender if draw.random() < 0.7 else draw.choice(log).header.sender
        recipient = header.recipient if draw.random() < 0.8 else draw.choice(log).header.recipient
        header = replace(header, sender=sender, recipient=recipient, origin=None)
        try:
            yield CODEC.decode(CODEC.encode(Event(header, replace(body, **fields))))
        except ValueError:
            # It does not fit its schema.
            continue


def history(log: Sequence[Record], draw: random.Random) -> Iterator[Event]:
    """Yields the events of a log with one to twelve false ones between them."""
    false = false_events(log, draw)
    places = [draw.randrange(len(log)) for _ in range(draw.randrange(1, 13))]
    for place, record in enumerate(log):
        for _ in range(places.count(place)):
            yield next(false)
        yield Event(record.header, record.body)


def apply(replica: Replica, offset: int, event: Event) -> None:
    """Applies an event of the present leader, so that no reader ignores it."""
    header = event.header
    if not isinstance(event.body, LeaderElected):
        header = replace(header, sender_epoch=replica.leadership.epoch(header.sender))
    replica.apply(Record(offset, header, event.body))


@pytest.mark.parametrize("name", LOGS)
def test_false_events_end_no_reader(name: str | int) -> None:
    for seed in range(HISTORIES // len(LOGS) + 1):
        draw, replica = random.Random(seed), quiet()
        try:
            for offset, event in enumerate(history(log_of(name), draw)):
                apply(replica, offset, event)
            for address in replica.active_addresses:
                role, state = replica.role(address), replica.states[address]
                role.decide(state, FAR_FUTURE)
                role.instructions(state)
                role.deadline(state)
        except Exception as error:
            raise AssertionError(f"the history of seed {seed} ends a reader") from error
