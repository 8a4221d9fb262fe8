"""OTLP: what a collector decodes is what the spans say; errors of a collector are repeated or reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from trace_collector import Collector, run_collector

from tailrace.infra.open_telemetry import is_collector_url, parse_traceparent
from tailrace.services.traces.otlp import encode_json, encode_protobuf
from tailrace.services.traces.otlp_exporters import (
    HEADERS_VARIABLE,
    OtlpHttpExporter,
    OtlpUnavailable,
    to_traces_url,
)
from tailrace.services.traces.span import AttributeValue, Span

from .test_spans import spans

NAME = "one_task_fails_and_is_restarted_alone"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with run_collector() as running:
        yield running


def exporter_to(collector: Collector, pauses: list[float] | None = None) -> OtlpHttpExporter:
    return OtlpHttpExporter(collector.url, "sim", pause=([] if pauses is None else pauses).append)


def value_of(value: Any) -> AttributeValue:
    kind = value.WhichOneof("value")
    found: AttributeValue = getattr(value, kind)
    return found


@pytest.mark.parametrize("name", [NAME, "a_checkpoint_is_complete_and_the_next_takes_its_place"])
def test_collector_receives_the_spans(collector: Collector, name: str) -> None:
    sent = spans(name)
    assert exporter_to(collector).export(sent) == 0
    assert collector.paths == ["/v1/traces"]
    by_id = {span.span_id: span for span in sent}
    assert len(collector.spans) == len(sent)
    for got in collector.spans:
        span = by_id[got.span_id.hex()]
        assert got.trace_id.hex() == span.trace_id
        assert got.parent_span_id.hex() == (span.parent_span_id or "")
        assert (got.name, got.kind) == (span.name, span.kind)
        assert (got.start_time_unix_nano, got.end_time_unix_nano) == (span.start * 1000, span.end * 1000)
        assert {each.key: value_of(each.value) for each in got.attributes} == dict(span.attributes)
        assert [(link.trace_id.hex(), link.span_id.hex()) for link in got.links] == [
            (link.trace_id, link.span_id) for link in span.links
        ]
        assert [(each.name, each.time_unix_nano) for each in got.events] == [
            (each.name, each.time * 1000) for each in span.events
        ]
        assert (got.status.code, got.status.message) == ((0, "") if span.error is None else (2, span.error))
    services = {
        (attribute.key, attribute.value.string_value)
        for request in collector.requests
        for resource in request.resource_spans
        for attribute in resource.resource.attributes
    }
    assert {
        ("service.name", "job_master"),
        ("service.instance.id", "j1"),
        ("service.namespace", "sim"),
    } <= services


def test_json_says_the_same_as_protobuf() -> None:
    """They differ in ids only: hexadecimal in OTLP's JSON, base64 in that of protobuf."""
    request = ExportTraceServiceRequest.FromString(encode_protobuf(spans(NAME), "sim"))
    in_json = json.loads(json.dumps(encode_json(spans(NAME), "sim")))
    of_protobuf = json_format.MessageToDict(request, use_integers_for_enums=True)
    assert without_ids(in_json) == without_ids(of_protobuf)


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_ids(item)
            for key, item in value.items()
            if key not in ("traceId", "spanId", "parentSpanId")
        }
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def test_secrets_in_texts_are_not_sent() -> None:
    (failed,) = [span for span in spans("a_task_fails") if span.name == "JobFinished"]
    secret = Span(
        **{
            **{name: getattr(failed, name) for name in failed.__struct_fields__},
            "error": "password=abcdef",
            "attributes": {"uri": "s3://user:abcdef@host/x"},
        }
    )
    assert "abcdef" not in json.dumps(encode_json([secret], "sim"))
    assert b"abcdef" not in encode_protobuf([secret], "sim")


def test_passing_error_is_repeated(collector: Collector) -> None:
    pauses: list[float] = []
    collector.answers, collector.retry_after = [503, 429], "7"
    assert exporter_to(collector, pauses).export(spans(NAME)) == 0
    assert pauses == [7, 7]
    assert len(collector.spans) == len(spans(NAME))


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (404, 1), (302, 1), (503, 5)])
def test_refusal_is_one_sentence(collector: Collector, status: int, attempts: int) -> None:
    collector.answers = [status] * 9
    with pytest.raises(OtlpUnavailable, match=rf"^{collector.url}/v1/traces .* HTTP {status} ") as refused:
        exporter_to(collector).export(spans(NAME))
    assert refused.value.is_final is (status != 503)
    assert "\n" not in str(refused.value)
    assert len(collector.paths) == attempts


def test_collector_that_is_gone_is_no_final_error() -> None:
    with run_collector() as gone:
        pass
    with pytest.raises(OtlpUnavailable, match="refused") as refused:
        exporter_to(gone).export(spans(NAME))
    assert not refused.value.is_final


def test_rejected_spans_are_counted(collector: Collector) -> None:
    collector.rejected = 3
    assert exporter_to(collector).export(spans(NAME)) == 3


def test_headers_of_environment_are_sent(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS_VARIABLE, "authorization=Bearer%20x,tenant=a")
    exporter_to(collector).export(())
    assert (collector.headers[0]["Authorization"], collector.headers[0]["Tenant"]) == ("Bearer x", "a")


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://host/otlp/v1/traces?x=1", "https://host/otlp/v1/traces?x=1"),
    ],
)
def test_endpoint_without_path_gets_the_path_of_otlp(endpoint: str, url: str) -> None:
    assert to_traces_url(endpoint) == url


@pytest.mark.parametrize(
    "text", ["", "localhost:4318", "ftp://host", "http://", "http://u:p@host", "http://host:x", "http://a b"]
)
def test_other_texts_are_no_endpoint(text: str) -> None:
    assert not is_collector_url(text)


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", (TRACE, SPAN)),
        (f"cc-{TRACE}-{SPAN}-00-later", (TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-01-later", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01\n", None),
        (f"cc-{TRACE}-{SPAN}-00-{'x' * 1000}", None),
        ("", None),
        (None, None),
    ],
)
def test_traceparent_is_read_as_w3c_says(text: str | None, expected: tuple[str, str] | None) -> None:
    assert parse_traceparent(text) == expected
