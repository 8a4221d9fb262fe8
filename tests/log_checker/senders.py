"""Whether a process of a cluster can have sent an event, by the `.avsc` files and the form of addresses."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .events import Event

_SCHEMAS = Path(__file__).parents[2] / "schemas"
_ADDRESS = re.compile(
    r"dispatcher|resource_manager|rest_server|(job_master|task_executor|client|standby)/[A-Za-z0-9._-]{1,128}"
)


def is_possible(event: Event) -> bool:
    """Returns whether the sender may send the event to the recipient, and the event follows what it refers to."""
    receiver = event.name.partition(".")[0]
    if receiver == "everyone":
        reaches = event.recipient == "*"
    else:
        reaches = (
            event.recipient.partition("/")[0] == receiver and _ADDRESS.fullmatch(event.recipient) is not None
        ) or event.recipient == receiver == "client"
    sides = (event.sender, event.recipient)
    jobs = {side.partition("/")[2] for side in sides if side.startswith("job_master/")}
    workers = {side.partition("/")[2] for side in sides if side.startswith("task_executor/")}
    return (
        reaches
        and _ADDRESS.fullmatch(event.sender) is not None
        and event.kind in _senders().get(event.name, (event.kind,))
        and (event.kind != receiver or event.sender == event.recipient)
        and ("job_id" not in event.body or jobs <= {event["job_id"]})
        and ("resource_id" not in event.body or workers <= {event["resource_id"]})
        and (event.cause is None or 0 <= event.cause < event.offset)
        and (event.decided_at is None or -1 <= event.decided_at < event.offset)
        and (event.origin is None or (event.kind == "client" and _is_place(event.origin)))
    )


def _is_place(origin: Mapping[str, Any]) -> bool:
    return bool(origin["partition"] >= 0 and origin["offset"] >= 0)


@functools.cache
def _senders() -> Mapping[str, frozenset[str]]:
    schemas = [(path, json.loads(path.read_text("utf-8"))) for path in _SCHEMAS.glob("*/*.avsc")]
    return {
        f"{path.parent.name}.{schema['name']}": frozenset(schema["senders"])
        for path, schema in schemas
        if "senders" in schema
    }
