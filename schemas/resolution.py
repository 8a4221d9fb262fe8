"""Reads events of another release with their writer's schema and the current one (Avro, "Schema Resolution").

fastavro does it, and is loaded only for events of another release.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec

from . import avro
from .catalog import EVENTS
from .event import Event
from .types import Header


def read_resolved(name: str, writer: Any, data: bytes, at: int) -> tuple[Event, int]:
    """Returns the event of the current type `name` in `data`, and the offset after it; `writer` as `avro.parse`
    returns it.

    Raises any error for invalid bytes.
    """
    import fastavro

    stream = io.BytesIO(data)
    stream.seek(at)
    datum: Any = fastavro.schemaless_reader(stream, writer, avro.parsed()[name])
    header = msgspec.convert(datum.pop("header"), Header)
    return Event(header, msgspec.convert(datum, EVENTS[name])), stream.tell()
