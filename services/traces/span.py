"""A span: something that took place between two times, and belongs to a trace."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from ..core.role import Time

AttributeValue = str | bool | int | float


class SpanKind(IntEnum):
    """The kind of a span, with the numbers of OTLP."""

    INTERNAL = 1
    CLIENT = 3
    """A request that is answered."""
    PRODUCER = 4
    """A message without an answer."""


class SpanLink(msgspec.Struct, frozen=True):
    """A span of another trace that has caused this one."""

    trace_id: str
    span_id: str


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened at one moment of a span."""

    name: str
    time: Time
    attributes: Mapping[str, AttributeValue] = {}


class Span(msgspec.Struct, frozen=True):
    """Ids are in hexadecimal, times in microseconds since the epoch."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    scope: str
    """What made the span: OTLP's instrumentation scope."""
    sender: str
    """The address of the role that the span belongs to."""
    kind: SpanKind
    start: Time
    end: Time
    attributes: Mapping[str, AttributeValue] = {}
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None
    """What failed; None if nothing did."""
    job_id: str | None = None
