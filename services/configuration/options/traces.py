"""Options of traces (docs/traces.md)."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, MILLISECOND, SECOND, choice, optional, pattern
from ....infra.config.options import ConfigOption
from ....infra.open_telemetry import OtlpProtocol, is_collector_url
from .kinds import MASTER

TRACES_ENDPOINT = ConfigOption(
    key="traces.reporter.otlp.exporter.endpoint",
    type=optional(
        pattern("an http or https URL without a user, such as http://localhost:4318", is_collector_url)
    ),
    default=None,
    doc="The OTLP receiver of a collector, to which the leading jobmanager sends a span for each event; none: it "
    "sends none. Over HTTP, without a path, /v1/traces is added. It needs the package opentelemetry-proto "
    "(`pip install 'tailrace[otlp]'`). Headers for the collector are in the environment variable "
    "OTEL_EXPORTER_OTLP_HEADERS.",
    scopes=MASTER,
    flink="none; the name of the reporter is free there",
)
TRACES_PROTOCOL = ConfigOption(
    key="traces.reporter.otlp.exporter.protocol",
    type=choice(OtlpProtocol, {"http": OtlpProtocol.HTTP}),
    default=OtlpProtocol.HTTP,
    doc="How spans are sent: `http/protobuf` (or Flink's `HTTP`), usually to port 4318; or `grpc`, usually to port "
    "4317, which needs the package grpcio (`pip install 'tailrace[otlp-grpc]'`).",
    scopes=MASTER,
    flink="gRPC",
)
TRACES_TIMEOUT = ConfigOption(
    key="traces.reporter.otlp.exporter.timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How long a request to the collector may take. A failed one is repeated.",
    scopes=MASTER,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (TRACES_ENDPOINT, TRACES_PROTOCOL, TRACES_TIMEOUT)
