"""OTLP by gRPC says the same as over HTTP, and errors of a collector are repeated or reported."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from trace_collector import Collector, run_collector, run_grpc_collector

from tailrace.infra.open_telemetry import OtlpProtocol
from tailrace.services.traces.otlp_exporters import (
    HEADERS_VARIABLE,
    OtlpGrpcExporter,
    OtlpHttpExporter,
    OtlpUnavailable,
    create_exporter,
)

from .test_spans import spans

SPANS = spans("one_task_fails_and_is_restarted_alone")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with run_grpc_collector() as running:
        yield running


@pytest.fixture
def exporter(collector: Collector) -> Iterator[OtlpGrpcExporter]:
    running = OtlpGrpcExporter(collector.url, "sim", pause=[].append)
    yield running
    running.close()


def test_collector_receives_the_same_as_over_http(collector: Collector, exporter: OtlpGrpcExporter) -> None:
    assert exporter.export(SPANS) == 0
    with run_collector() as other:
        OtlpHttpExporter(other.url, "sim").export(SPANS)
    assert collector.requests == other.requests
    assert collector.headers[0]["user-agent"].startswith("tailrace/")


def test_rejected_spans_are_counted(collector: Collector, exporter: OtlpGrpcExporter) -> None:
    collector.rejected = 3
    assert exporter.export(SPANS) == 3


def test_headers_of_environment_are_sent(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS_VARIABLE, "Authorization=Bearer%20x")
    exporter = create_exporter(OtlpProtocol.GRPC, collector.url, "sim")
    exporter.export(())
    exporter.close()
    assert collector.headers[0]["authorization"] == "Bearer x"


@pytest.mark.parametrize(
    ("code", "attempts"),
    [
        (grpc.StatusCode.UNAVAILABLE, 5),
        (grpc.StatusCode.INVALID_ARGUMENT, 1),
        (grpc.StatusCode.UNAUTHENTICATED, 1),
    ],
)
def test_refusal_is_one_sentence(
    collector: Collector, exporter: OtlpGrpcExporter, code: grpc.StatusCode, attempts: int
) -> None:
    collector.codes = [code] * 9
    with pytest.raises(OtlpUnavailable, match=rf"^{collector.url} .* gRPC {code.name}: no room; ") as refused:
        exporter.export(SPANS)
    assert refused.value.is_final is (attempts == 1)
    assert "\n" not in str(refused.value)
    assert len(collector.headers) == attempts


def test_passing_error_is_repeated(collector: Collector, exporter: OtlpGrpcExporter) -> None:
    collector.codes = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED]
    assert exporter.export(SPANS) == 0
    assert len(collector.requests) == 1


def test_collector_that_is_gone_is_no_final_error() -> None:
    with run_grpc_collector() as gone:
        pass
    exporter = OtlpGrpcExporter(gone.url, "sim", timeout_s=5.0, pause=[].append)
    with pytest.raises(OtlpUnavailable, match="UNAVAILABLE") as refused:
        exporter.export(SPANS)
    exporter.close()
    assert not refused.value.is_final


@pytest.mark.parametrize("protocol", OtlpProtocol)
def test_other_texts_are_no_endpoint(protocol: OtlpProtocol) -> None:
    with pytest.raises(ValueError, match="localhost:4317"):
        create_exporter(protocol, "localhost:4317", "sim")
