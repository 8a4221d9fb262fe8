"""Assembles the export of traces while a jobmanager runs: `traces.reporter.otlp.*`."""

from __future__ import annotations

from collections.abc import Callable

from ...infra.config.option_types import SECOND
from ...infra.logging_setup import logger
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.traces import TRACES_ENDPOINT, TRACES_PROTOCOL, TRACES_TIMEOUT
from ..log import EventLog
from ..traces.otlp import OtlpPackageMissing
from ..traces.otlp_exporters import create_exporter
from ..traces.reporter import TraceReporter

_log = logger(__name__)


def create_trace_reporter(
    configuration: Configuration, log: EventLog, is_live: Callable[[], bool], leads: Callable[[], bool]
) -> TraceReporter | None:
    """Returns the reporter of a jobmanager; None if traces are off. `is_live`: whether the log has been read to its
    end. Raises ConfigurationError."""
    endpoint = configuration.get(TRACES_ENDPOINT)
    if endpoint is None:
        return None
    try:
        exporter = create_exporter(
            configuration.get(TRACES_PROTOCOL),
            endpoint,
            configuration.cluster_id,
            timeout_s=configuration.get(TRACES_TIMEOUT) / SECOND,
        )
    except OtlpPackageMissing as error:
        raise ConfigurationError([f"{TRACES_ENDPOINT.key}: {error}"]) from None
    _log.info("exports traces", url=exporter.url)
    return TraceReporter(exporter, log, is_live=is_live, leads=leads)
