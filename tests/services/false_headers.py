"""Events of an outsider: each is like one of the log, with a header that no process of the cluster can have written.

What is false about an event is drawn from a list of ways that this file names one by one, so the list depends on
nothing in services/core/event_senders.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec.structs import replace

from tailrace.schemas import avro
from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import LeaderElected, SchemasRegistered
from tailrace.schemas.types import Origin
from tailrace.services.core.leadership import LARGEST_STEP, LeadershipState
from tailrace.services.core.role import kind_of

LARGEST = 2**63 - 1
ADDRESSES = (
    "dispatcher",
    "resource_manager",
    "rest_server",
    "job_master/j1",
    "task_executor/te-1",
    "client/someone",
    "standby/a",
)
MALFORMED = (
    "",
    "*",
    "nobody",
    "Dispatcher",
    "dispatcher/",
    "dispatcher/2",
    "job_master",
    "job_master/",
    "job_master/\n",
    "task_executor/a/b",
    f"task_executor/{'x' * 200}",
    "client/a b",
    "standby/",
)


def false_events(event: Event, leadership: LeadershipState, offset: int) -> Iterator[Event]:
    """Yields versions of an event that cannot be true at `offset`, one for each way to be false."""
    header, body = event.header, event.body
    folder = body.AVRO_NAME.split(".")[1]
    senders = avro.schemas()[body.AVRO_NAME]["senders"]
    for sender in ADDRESSES:
        if kind_of(sender) not in senders:
            yield Event(replace(header, sender=sender, sender_epoch=leadership.epoch(sender)), body)
    for text in MALFORMED:
        yield Event(replace(header, sender=text, sender_epoch=leadership.epoch(text)), body)
        if text != EVERYONE or folder not in ("everyone", "task_executor"):
            yield Event(replace(header, recipient=text), body)
    for recipient in ADDRESSES:
        if kind_of(recipient) != folder:
            yield Event(replace(header, recipient=recipient), body)
    for at in (offset, offset + 1, LARGEST, -2, -LARGEST):
        yield Event(replace(header, cause=at), body)
        yield Event(replace(header, decided_at=at), body)
    if kind_of(header.sender) == "client":
        for partition, place in ((-1, 0), (0, -1), (0, -LARGEST)):
            yield Event(replace(header, origin=Origin(topic="t", partition=partition, offset=place)), body)
    else:
        yield Event(replace(header, origin=Origin(topic="t", partition=0, offset=0)), body)
    for field, kind in (("job_id", "job_master"), ("resource_id", "task_executor")):
        if field in body.__struct_fields__ and kind in (kind_of(header.sender), kind_of(header.recipient)):
            yield Event(header, replace(body, **{field: "another"}))
    last = leadership.epoch(header.sender)
    if isinstance(body, LeaderElected):
        for epoch in (last + LARGEST_STEP + 1, LARGEST, 0, -1, -LARGEST):
            yield Event(replace(header, sender_epoch=epoch), replace(body, epoch=epoch))
        yield Event(replace(header, sender_epoch=last + 1), replace(body, epoch=last + 2))
        for role in (*ADDRESSES, *MALFORMED):
            if role != header.sender:
                yield Event(replace(header, sender_epoch=last + 1), replace(body, epoch=last + 1, role=role))
        for role in ("job_master/j1", "client/someone", "standby/a"):
            yield Event(replace(header, sender=role, sender_epoch=1), replace(body, epoch=1, role=role))
    elif not isinstance(body, SchemasRegistered):
        for epoch in (last + 1, LARGEST, -1, -LARGEST):
            yield Event(replace(header, sender_epoch=epoch), body)


def draw_false_event(draw: random.Random, event: Event, leadership: LeadershipState, offset: int) -> Event:
    """Returns one of `false_events`."""
    return draw.choice(list(false_events(event, leadership, offset)))
