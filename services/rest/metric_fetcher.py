"""Reads the metrics of TaskExecutors when a request needs them (Flink's MetricFetcher).

A TaskExecutor is asked at most once in `metrics.fetcher.update-interval`, all at the same time. One that does not
answer in time is left out: an answer without its figures is better than none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Final, NamedTuple

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ..diagnostics.client import DiagnosticsClient, DiagnosticsNotFound, DiagnosticsUnavailable, ServerAddress
from ..diagnostics.metrics import SAMPLES, decode
from .live_metrics import NO_METRICS, LiveMetrics

_log = logger(__name__)
_THREADS: Final = 16
_TIMEOUT_S: Final = 1.5


class _Known(NamedTuple):
    metrics: LiveMetrics | None
    """None if it did not answer."""
    at_s: float


class MetricFetcher(Closeable):
    """Thread-safe. Starts no thread before the first request."""

    def __init__(
        self, client: DiagnosticsClient, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._pool: threads.Pool | None = None
        self._known: dict[ServerAddress, _Known] = {}
        """Process -> its last answer."""
        self._asked: dict[ServerAddress, Future[None]] = {}

    def fetch(self, addresses: Mapping[str, ServerAddress]) -> LiveMetrics:
        """Returns the metrics of TaskExecutors, by their resource ids."""
        wanted = {resource_id: address for resource_id, address in addresses.items() if address.address}
        if not wanted:
            return NO_METRICS
        now = self._clock()
        with self._lock:
            for address in [each for each in self._known if each not in wanted.values()]:
                del self._known[address]
            for resource_id, address in wanted.items():
                known = self._known.get(address)
                if address not in self._asked and (known is None or now - known.at_s >= self._interval_s):
                    self._asked[address] = self._ask(resource_id, address)
            asked = [self._asked[address] for address in wanted.values() if address in self._asked]
        wait(asked, _TIMEOUT_S)
        with self._lock:
            known_now = [self._known[address] for address in wanted.values() if address in self._known]
        return LiveMetrics.merge(known.metrics for known in known_now if known.metrics is not None)

    def close(self) -> None:
        """Ends the threads."""
        with self._lock:
            pool = self._pool
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, resource_id: str, address: ServerAddress) -> Future[None]:
        if self._pool is None:
            self._pool = threads.Pool(_THREADS, "rest metrics")
        return self._pool.submit(self._read, resource_id, address)

    def _read(self, resource_id: str, address: ServerAddress) -> None:
        metrics: LiveMetrics | None = None
        try:
            metrics = LiveMetrics.from_samples(
                resource_id, decode(self._client.get(address, f"/{SAMPLES}").body)
            )
        except (DiagnosticsUnavailable, DiagnosticsNotFound, ValueError) as error:
            _log.debug("a TaskExecutor gives no metrics", reason=str(error))
        with self._lock:
            self._known[address] = _Known(metrics, self._clock())
            self._asked.pop(address, None)
