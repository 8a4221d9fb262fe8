"""Events of another release, read with the schema that they were written with and ours (Avro, "Schema Resolution").

fastavro does it, and is loaded only where another release has written.
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
    """The event of our type `name` that stands in `data`, and where it ends; `writer` as `avro.parse` returns it.

    Raises whatever garbage makes reading raise.
    """
    import fastavro

    stream = io.BytesIO(data)
    stream.seek(at)
    datum: Any = fastavro.schemaless_reader(stream, writer, avro.parsed()[name])
    header = msgspec.convert(datum.pop("header"), Header)
    return Event(header, msgspec.convert(datum, EVENTS[name])), stream.tell()
