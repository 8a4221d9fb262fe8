"""Who may say what: whether an event's header can be true, whatever the state of any role.

The kinds of roles that may send an event are the `senders` of its `.avsc` file; its receiver is the folder of the file.
Every reader checks each event before it folds it, and comes to the same verdict, because the verdict depends on the
event and the feature level only. services/core/leadership.py checks the sender's epoch besides.

The table of a feature level is that of the first release that has the level (`schemas/released/<version>.json`), and
all releases of a level have the same table. A release that lets another role send an event needs a new level.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ...schemas import released
from ...schemas.body import Body
from ...schemas.catalog import EVENTS, SENDERS
from ...schemas.event import EVERYONE, Record
from ...schemas.feature_level import FEATURE_LEVEL
from .role import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    REST_SERVER,
    STANDBY,
    TASK_EXECUTOR,
    instance_of,
    kind_of,
)

_ONE_INSTANCE: Final = frozenset({DISPATCHER, RESOURCE_MANAGER, REST_SERVER})
_MANY_INSTANCES: Final = frozenset({JOB_MASTER, TASK_EXECUTOR, CLIENT, STANDBY})
_INSTANCE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_TO_EVERYONE: Final = "everyone"
_ROUTES: Final = 1 << 14


class _Route(NamedTuple):
    """What the addresses of an event say. `job_id` and `resource_id`: what the body must name; None: anything."""

    fault: str | None
    job_id: str | None = None
    resource_id: str | None = None


def is_address(text: str) -> bool:
    """Returns whether the text is the address of a role: its kind, and an instance if the kind has several."""
    kind, slash, instance = text.partition("/")
    if kind in _ONE_INSTANCE:
        return not slash
    return kind in _MANY_INSTANCES and _INSTANCE.fullmatch(instance) is not None


def allowed_senders(level: int) -> Mapping[type[Body], frozenset[str]]:
    """Returns the table of a feature level: event -> the kinds of roles that may send it."""
    return SENDERS if level >= FEATURE_LEVEL else _senders_of_release(released.first_release_of(level))


@functools.cache
def _senders_of_release(release: str) -> Mapping[type[Body], frozenset[str]]:
    return {EVENTS[name]: kinds for name, kinds in released.senders(release).items() if name in EVENTS}


def find_header_fault(record: Record, level: int) -> str | None:
    """Returns why no process of a cluster can have appended the event to the log; None if one can."""
    fault = find_address_fault(record, level)
    if fault is not None:
        return fault
    header = record.header
    cause, decided_at = header.cause, header.decided_at
    if cause is not None and not 0 <= cause < record.offset:
        return f"its cause, offset {cause}, is not before it"
    if decided_at is not None and not -1 <= decided_at < record.offset:
        return f"it was decided at offset {decided_at}, which is not before it"
    origin = header.origin
    if origin is not None and (kind_of(header.sender) != CLIENT or origin.partition < 0 or origin.offset < 0):
        return "its origin is not the place of a client's request"
    return None


def find_address_fault(record: Record, level: int) -> str | None:
    """Returns why the sender cannot send the event to its recipient; None if it can. Also for heartbeats."""
    header, body = record.header, record.body
    route = _route(type(body), header.sender, header.recipient, level)
    if route.fault is not None:
        return route.fault
    if route.job_id is not None and body.job_id != route.job_id:  # type: ignore[attr-defined]
        return f"{header.sender} sends it to {header.recipient}, but it is about another job"
    if route.resource_id is not None and body.resource_id != route.resource_id:  # type: ignore[attr-defined]
        return f"{header.sender} sends it to {header.recipient}, but it is about another TaskExecutor"
    return None


@functools.lru_cache(_ROUTES)
def _route(event: type[Body], sender: str, recipient: str, level: int) -> _Route:
    """Cached: an event's addresses are mostly those of an earlier one."""
    if not is_address(sender):
        return _Route(f"{sender[:80]!r} is not the address of a role")
    kind = kind_of(sender)
    allowed = allowed_senders(level).get(event, frozenset())
    if kind not in allowed:
        by = f"only {', '.join(sorted(allowed))} may" if allowed else f"no role may at feature level {level}"
        return _Route(f"{sender} may not send it: {by}")
    receiver = event.AVRO_NAME.split(".")[1]
    if not _is_receiver(recipient, receiver):
        return _Route(f"{recipient[:80]!r} does not receive it: {receiver} does")
    if kind == receiver and sender != recipient:
        return _Route(f"{sender} may send it to itself only, not to {recipient}")
    return _Route(
        None,
        _named("job_id", event, JOB_MASTER, sender, recipient),
        _named("resource_id", event, TASK_EXECUTOR, sender, recipient),
    )


def _is_receiver(recipient: str, receiver: str) -> bool:
    if receiver == _TO_EVERYONE:
        return recipient == EVERYONE
    if recipient == EVERYONE:
        # The ResourceManager sends one heartbeat to all TaskExecutors.
        return receiver == TASK_EXECUTOR
    if recipient == CLIENT:
        # All clients.
        return receiver == CLIENT
    return kind_of(recipient) == receiver and is_address(recipient)


def _named(field: str, event: type[Body], kind: str, sender: str, recipient: str) -> str | None:
    if field not in event.__struct_fields__:
        return None
    return next((instance_of(side) for side in (sender, recipient) if kind_of(side) == kind), None)
