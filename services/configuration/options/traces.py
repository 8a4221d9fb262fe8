"""Options of traces (docs/traces.md)."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, MILLISECOND, SECOND, optional, pattern
from ....infra.config.options import ConfigOption
from ....infra.open_telemetry import is_collector_url
from .kinds import MASTER

TRACES_ENDPOINT = ConfigOption(
    key="traces.reporter.otlp.exporter.endpoint",
    type=optional(
        pattern("an http or https URL without a user, such as http://localhost:4318", is_collector_url)
    ),
    default=None,
    doc="The OTLP/HTTP receiver of a collector, to which the leading jobmanager sends a span for each event; none: it "
    "sends none. Without a path, /v1/traces is added. It needs the package opentelemetry-proto "
    "(`pip install 'tailrace[otlp]'`). Headers for the collector are in the environment variable "
    "OTEL_EXPORTER_OTLP_HEADERS.",
    scopes=MASTER,
    flink="none; the name of the reporter is free there",
)
TRACES_TIMEOUT = ConfigOption(
    key="traces.reporter.otlp.exporter.timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How long a request to the collector may take. A failed one is repeated.",
    scopes=MASTER,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (TRACES_ENDPOINT, TRACES_TIMEOUT)
