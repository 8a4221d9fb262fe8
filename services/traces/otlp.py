"""Spans in OTLP, https://opentelemetry.io/docs/specs/otlp/: as JSON, or in protobuf. otlp_exporters.py sends them.

A request is encoded once, as a tree of dictionaries with protobuf's names. Protobuf's messages are made from that, and
OTLP's JSON: its names are in camel case, its ids in hexadecimal, its long integers texts. Texts are sent without
secrets.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...infra.redaction import redacted
from ..core.role import JOB_MASTER, TASK_EXECUTOR, instance_of, kind_of
from .span import AttributeValue, Span
from .span_builder import SCOPE_VERSION

_NANOSECONDS: Final = 1_000
_ERROR: Final = 2
_LONG: Final = frozenset({"start_time_unix_nano", "end_time_unix_nano", "time_unix_nano", "int_value"})
"""The fields with integers of 64 bits, which are texts in JSON."""


class OtlpPackageMissing(Exception):
    """A package that encodes or sends spans is not installed."""

    def __init__(self, package: str = "opentelemetry-proto", extra: str = "otlp") -> None:
        super().__init__(
            f"spans cannot be sent: the package {package} is missing: `pip install 'tailrace[{extra}]'`"
        )


def encode_json(spans: Iterable[Span], cluster: str) -> dict[str, Any]:
    """Returns an ExportTraceServiceRequest in OTLP's JSON."""
    encoded: dict[str, Any] = _to_json(_encode_request(spans, cluster))
    return encoded


def encode_protobuf(spans: Iterable[Span], cluster: str) -> bytes:
    """Returns an ExportTraceServiceRequest in protobuf. Raises OtlpPackageMissing."""
    encoded: bytes = create_request(spans, cluster).SerializeToString()
    return encoded


def create_request(spans: Iterable[Span], cluster: str) -> Any:
    """Returns an ExportTraceServiceRequest. Raises OtlpPackageMissing."""
    try:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    except ImportError:
        raise OtlpPackageMissing from None
    return trace_service_pb2.ExportTraceServiceRequest(**_encode_request(spans, cluster))


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
