"""Spans in OTLP, https://opentelemetry.io/docs/specs/otlp/: as JSON, or as protobuf over HTTP.

A request is encoded once, as a tree of dictionaries with protobuf's names. Protobuf's messages are made from that, and
OTLP's JSON: its names are in camel case, its ids in hexadecimal, its long integers texts. Texts are sent without
secrets.
"""

from __future__ import annotations

import functools
import gzip
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ...infra.open_telemetry import is_collector_url
from ...infra.redaction import redacted
from ...infra.redirects import NoRedirects
from ..core.role import JOB_MASTER, TASK_EXECUTOR, instance_of, kind_of
from .span import AttributeValue, Span
from .span_builder import SCOPE_VERSION

TRACES_PATH: Final = "/v1/traces"
"""OTLP's path for traces below a collector's address."""
HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's variable with headers for the collector, as key=value,... ; values are percent-encoded."""
_NANOSECONDS: Final = 1_000
_ERROR: Final = 2
_LONG: Final = frozenset({"start_time_unix_nano", "end_time_unix_nano", "time_unix_nano", "int_value"})
"""The fields with integers of 64 bits, which are texts in JSON."""
_RETRIED: Final = frozenset({429, 502, 503, 504})
"""The statuses after which OTLP allows another attempt."""
_MOST_ATTEMPTS: Final = 5
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
_LONGEST_ANSWER: Final = 1 << 16
_LONGEST_REASON: Final = 200

Pause = Callable[[float], object]


class OtlpUnavailable(Exception):
    """A collector does not take spans; the message says where, why and what to do."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        self.is_final = is_final
        """Whether it will not take these spans later either."""
        super().__init__(message)


class OtlpPackageMissing(Exception):
    """The package that encodes protobuf is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "spans cannot be sent: the package opentelemetry-proto is missing: `pip install 'tailrace[otlp]'`"
        )


def encode_json(spans: Iterable[Span], cluster: str) -> dict[str, Any]:
    """Returns an ExportTraceServiceRequest in OTLP's JSON."""
    encoded: dict[str, Any] = _to_json(_encode_request(spans, cluster))
    return encoded


def encode_protobuf(spans: Iterable[Span], cluster: str) -> bytes:
    """Returns an ExportTraceServiceRequest in protobuf. Raises OtlpPackageMissing."""
    try:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    except ImportError:
        raise OtlpPackageMissing from None
    request = trace_service_pb2.ExportTraceServiceRequest(**_encode_request(spans, cluster))
    encoded: bytes = request.SerializeToString()
    return encoded


class OtlpHttpExporter:
    """Sends spans to a collector over HTTP, in protobuf. Not thread-safe."""

    def __init__(
        self, endpoint: str, cluster: str, *, timeout_s: float = 10.0, pause: Pause = time.sleep
    ) -> None:
        """`endpoint`: the URL of a collector; without a path, /v1/traces is added. `pause` waits between attempts."""
        self.url: Final = to_traces_url(endpoint)
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._pause = pause
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"tailrace/{SCOPE_VERSION}",
            **_read_headers(os.environ.get(HEADERS_VARIABLE, "")),
        }
        # A redirected POST would become a GET without its spans.
        self._opener = urllib.request.build_opener(NoRedirects)
        # Fail before there is anything to send.
        encode_protobuf((), cluster)

    def export(self, spans: Sequence[Span]) -> int:
        """Sends spans, again after an error that may pass. Returns how many of them the collector has rejected. Raises
        OtlpUnavailable."""
        body = gzip.compress(encode_protobuf(spans, self._cluster), compresslevel=1)
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            try:
                return self._send(body)
            except urllib.error.HTTPError as error:
                with error:
                    reason = error.read(_LONGEST_ANSWER).decode(errors="replace").strip()[:_LONGEST_REASON]
                    is_final = error.code not in _RETRIED
                    why = f"HTTP {error.code} {error.reason}{': ' if reason else ''}{reason}"
                    wait_s = _read_seconds(error.headers.get("Retry-After")) or pause_s
            except (OSError, http.client.HTTPException) as error:
                is_final = False
                why = str(getattr(error, "reason", error)) or type(error).__name__
                wait_s = pause_s
            if is_final or attempt == _MOST_ATTEMPTS:
                raise OtlpUnavailable(
                    redacted(
                        f"{self.url} does not take traces: {' '.join(why.split())}; is it the OTLP/HTTP receiver of a "
                        "collector, usually at port 4318?"
                    ),
                    is_final=is_final,
                )
            self._pause(min(wait_s, _LONGEST_PAUSE_S))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def _send(self, body: bytes) -> int:
        request = urllib.request.Request(self.url, body, self._headers)
        with self._opener.open(request, timeout=self._timeout_s) as answer:
            return _count_rejected(answer.read(_LONGEST_ANSWER), answer.headers.get("Content-Type", ""))


def to_traces_url(endpoint: str) -> str:
    """Returns the URL that traces are sent to. Raises ValueError if `endpoint` is no URL of a collector."""
    if not is_collector_url(endpoint):
        raise ValueError(endpoint)
    found = urllib.parse.urlsplit(endpoint)
    return endpoint if found.path.strip("/") else found._replace(path=TRACES_PATH).geturl()


def _describe_resource(sender: str, cluster: str) -> Mapping[str, AttributeValue]:
    kind, instance = kind_of(sender), instance_of(sender)
    # The names of clients are unbounded, and a service instance is a process.
    named = {"service.instance.id": instance} if kind in (JOB_MASTER, TASK_EXECUTOR) else {}
    return {"service.name": kind, "service.namespace": cluster, **named}


def _encode_request(spans: Iterable[Span], cluster: str) -> dict[str, Any]:
    """Returns the fields of an ExportTraceServiceRequest. Each role is a resource: its kind is the service, the cluster
    the namespace."""
    found: dict[str, dict[str, list[Span]]] = {}
    for span in spans:
        found.setdefault(span.sender, {}).setdefault(span.scope, []).append(span)
    return {
        "resource_spans": [
            {
                "resource": {"attributes": _encode_attributes(_describe_resource(sender, cluster))},
                "scope_spans": [
                    {
                        "scope": {"name": scope, "version": SCOPE_VERSION},
                        "spans": [_encode_span(span) for span in of_scope],
                    }
                    for scope, of_scope in scopes.items()
                ],
            }
            for sender, scopes in found.items()
        ]
    }


def _encode_span(span: Span) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "trace_id": bytes.fromhex(span.trace_id),
        "span_id": bytes.fromhex(span.span_id),
        "name": span.name,
        "kind": int(span.kind),
        "start_time_unix_nano": span.start * _NANOSECONDS,
        "end_time_unix_nano": span.end * _NANOSECONDS,
        "attributes": _encode_attributes(span.attributes),
    }
    if span.parent_span_id is not None:
        encoded["parent_span_id"] = bytes.fromhex(span.parent_span_id)
    if span.events:
        encoded["events"] = [
            {
                "name": event.name,
                "time_unix_nano": event.time * _NANOSECONDS,
                "attributes": _encode_attributes(event.attributes),
            }
            for event in span.events
        ]
    if span.links:
        encoded["links"] = [
            {"trace_id": bytes.fromhex(link.trace_id), "span_id": bytes.fromhex(link.span_id)}
            for link in span.links
        ]
    if span.error is not None:
        encoded["status"] = {"code": _ERROR, "message": redacted(span.error)}
    return encoded


def _encode_attributes(attributes: Mapping[str, AttributeValue]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: AttributeValue) -> dict[str, Any]:
    match value:
        case bool():
            return {"bool_value": value}
        case int():
            return {"int_value": value}
        case float():
            return {"double_value": value}
        case _:
            return {"string_value": redacted(value)}


def _to_json(value: Any, name: str = "") -> Any:
    match value:
        case dict():
            return {_to_camel_case(key): _to_json(item, key) for key, item in value.items()}
        case list():
            return [_to_json(item) for item in value]
        case bytes():
            return value.hex()
        case int() if name in _LONG:
            return str(value)
        case _:
            return value


@functools.cache
def _to_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _read_headers(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {key.strip(): urllib.parse.unquote(value.strip()) for key, _, value in pairs if key.strip()}


def _read_seconds(text: str | None) -> float | None:
    """Returns the seconds of a Retry-After header; None for a date, which OTLP does not need."""
    return float(text) if text is not None and text.isdecimal() else None


def _count_rejected(answer: bytes, content_type: str) -> int:
    if not content_type.startswith("application/x-protobuf"):
        return 0
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    try:
        found = trace_service_pb2.ExportTraceServiceResponse.FromString(answer)
    except DecodeError:
        return 0
    return int(found.partial_success.rejected_spans)
