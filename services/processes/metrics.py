"""Collects the metrics of each kind of process, and serves them for Prometheus: `metrics.reporter.prom.*`.

Only a process that serves metrics for Prometheus loads its client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

import msgspec
import psutil
from confluent_kafka import KafkaException

from ...infra.closing import Closeable
from ...infra.kafka_statistics import STATISTICS
from ...infra.logging_setup import logger
from ...pipelines.runtime.common.task_figures import RuntimeFigures
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.metrics import METRICS_HOST, METRICS_MAX_SERIES, METRICS_PORT
from ..core.replica import Replica
from ..core.role import DISPATCHER, Clock
from ..diagnostics.server import Content, DiagnosticsServer, Query
from ..host.host import Host
from ..metrics import jobmanager, table, task_executor
from ..metrics.event_totals import EventTotals
from ..metrics.samples import Collect, Sample, limit_series
from ..metrics.table import Metric
from ..metrics.task_executor import ProcessUsage
from ..traces.reporter import TraceReporter
from .health import ObservedHost, health_paths

_log = logger(__name__)
_LOG_TIMEOUT_S: Final = 1.0
"""How long a scrape waits for the end of the log."""


class ProbedLog(Protocol):
    """The event log."""

    def probe_end(self, timeout_s: float) -> Future[int]:
        """As KafkaEventLog.probe_end."""
        ...


def is_enabled(configuration: Configuration) -> bool:
    """Returns whether a process serves metrics for Prometheus."""
    return configuration.get(METRICS_PORT) is not None


def collect_jobmanager(
    configuration: Configuration,
    host: Host,
    replica: Replica,
    totals: EventTotals,
    log: ProbedLog,
    clock: Clock,
    traces: TraceReporter | None = None,
) -> Iterable[Sample]:
    """Returns the metrics of a jobmanager."""
    most = configuration.get(METRICS_MAX_SERIES)
    included, omitted = limit_series(jobmanager.sample_groups(replica.states, totals, clock()), most)
    return [
        *included,
        Sample(table.IS_LEADER, (), host.leads(DISPATCHER)),
        Sample(table.MASTER_OMITTED, (), omitted),
        *_trace_samples(traces),
        *_kafka_samples((), table.MASTER_KAFKA),
        *_log_samples(host, log, (), table.MASTER_LOG_POSITION, table.MASTER_LOG_LAG),
    ]


def collect_task_executor(
    configuration: Configuration,
    host: Host,
    own_address: str,
    resource_id: str,
    figures: Callable[[], RuntimeFigures],
    log: ProbedLog,
) -> Iterable[Sample]:
    """Returns the metrics of a TaskExecutor and its StreamTasks."""
    most = configuration.get(METRICS_MAX_SERIES)
    labels, found = (resource_id,), figures()
    processes = [found.jvm_process_id, *(task.process_id for task in found.tasks)]
    usage = dict(_usage(each for each in processes if each is not None))
    groups = task_executor.sample_groups(host.state(own_address), found, usage, resource_id)
    included, omitted = limit_series(groups, most)
    return [
        *included,
        Sample(table.WORKER_OMITTED, labels, omitted),
        *_kafka_samples(labels, table.WORKER_KAFKA),
        *_log_samples(host, log, labels, table.WORKER_LOG_POSITION, table.WORKER_LOG_LAG),
    ]


def serve_prometheus(configuration: Configuration, collect: Collect, host: ObservedHost) -> Closeable | None:
    """Serves metrics for Prometheus, and the health of the process, until it is closed; None if that is off.

    Raises ConfigurationError.
    """
    ports, listens_on = configuration.get(METRICS_PORT), configuration.get(METRICS_HOST)
    if ports is None:
        return None
    from ..metrics.exposition import create_registry, exposition

    registry = create_registry(collect)

    def expose(query: Query) -> Content:
        return Content(*exposition(registry, query.accept))

    try:
        server = DiagnosticsServer({"metrics": expose, **health_paths(host)}, host=listens_on, ports=ports)
    except OSError as error:
        where = f"{METRICS_PORT.key}: no metrics can be served on {listens_on}:{ports}: {error}"
        hint = f"set {METRICS_HOST.key} too, or give a range with a port for each process of the machine"
        raise ConfigurationError([f"{where}; {hint}"]) from error
    _log.info("serves metrics", address=server.address)
    return server


def _log_samples(
    host: Host, log: ProbedLog, labels: Sequence[str], position: Metric, lag: Metric
) -> Iterator[Sample]:
    if host.position < 0:
        return
    yield Sample(position, tuple(labels), host.position)
    with contextlib.suppress(KafkaException, TimeoutError):
        end = log.probe_end(_LOG_TIMEOUT_S).result(_LOG_TIMEOUT_S)
        yield Sample(lag, tuple(labels), max(0, end - 1 - host.position))


def _trace_samples(traces: TraceReporter | None) -> Iterator[Sample]:
    if traces is not None:
        yield Sample(table.SPANS_EXPORTED, (), traces.exported)
        yield Sample(table.SPANS_REJECTED, (), traces.rejected)
        yield Sample(table.SPANS_DROPPED, (), traces.dropped)


def _kafka_samples(labels: tuple[str, ...], metrics: Sequence[Metric]) -> Iterator[Sample]:
    for role, statistics in STATISTICS.read().items():
        for metric, value in zip(metrics, msgspec.structs.astuple(statistics), strict=True):
            yield Sample(metric, (*labels, role.value), value)


def _usage(process_ids: Iterable[int]) -> Iterator[tuple[int, ProcessUsage]]:
    for process_id in process_ids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(process_id)
            with process.oneshot():
                times = process.cpu_times()
                yield process_id, ProcessUsage(times.user + times.system, process.memory_info().rss)
