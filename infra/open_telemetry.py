"""What tailrace takes over from OpenTelemetry: the trace context of a request, and the address of a collector.

A trace context is W3C's, https://www.w3.org/TR/trace-context/. A `traceparent` names the trace and the span that a
request belongs to. A malformed one is ignored, as the specification says: the request then begins a trace of its own.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from contextvars import ContextVar
from enum import StrEnum
from typing import Final, NamedTuple

from .redaction import has_user_information

TRACEPARENT: Final = "traceparent"
"""The name of the header, in HTTP and in Kafka."""
_VARIABLE: Final = "TRACEPARENT"
_CURRENT: Final[ContextVar[str | None]] = ContextVar("traceparent")
_FORMAT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?")
_LONGEST: Final = 256
_FORBIDDEN_VERSION: Final = "ff"
_ONLY_KNOWN_VERSION: Final = "00"


class OtlpProtocol(StrEnum):
    """How spans are sent, by OpenTelemetry's names (OTEL_EXPORTER_OTLP_PROTOCOL)."""

    GRPC = "grpc"
    HTTP = "http/protobuf"


class TraceContext(NamedTuple):
    """A trace and a span of it, in hexadecimal: 32 and 16 digits."""

    trace_id: str
    span_id: str


def parse_traceparent(text: str | None) -> TraceContext | None:
    """Returns the trace context of a traceparent; None if there is none, or if it is malformed."""
    if text is None or len(text) > _LONGEST or (found := _FORMAT.fullmatch(text)) is None:
        return None
    version, trace_id, span_id, _, rest = found.groups()
    if version == _FORBIDDEN_VERSION or (version == _ONLY_KNOWN_VERSION and rest is not None):
        return None
    return TraceContext(trace_id, span_id) if trace_id.strip("0") and span_id.strip("0") else None


def valid_traceparent(text: str | None) -> str | None:
    """Returns the text if it is a traceparent, else None."""
    return None if parse_traceparent(text) is None else text


def use_traceparent(text: str | None) -> None:
    """Sets the traceparent of the requests that follow in this context, such as that of an HTTP request. A malformed
    one, and None, is none."""
    _CURRENT.set(valid_traceparent(text))


def current_traceparent() -> str | None:
    """Returns the traceparent of this context; without one, that of the environment variable TRACEPARENT, in which CI
    servers and otel-cli hand it to a command; or None."""
    try:
        return _CURRENT.get()
    except LookupError:
        return valid_traceparent(os.environ.get(_VARIABLE))


def is_collector_url(text: str) -> bool:
    """Returns whether a text is the URL of a collector: http or https, without a user."""
    try:
        found = urllib.parse.urlsplit(text)
        has_host = bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        return False
    return (
        found.scheme in ("http", "https")
        and has_host
        and text.isascii()
        and text.isprintable()
        and " " not in text
        and not has_user_information(text)
    )
