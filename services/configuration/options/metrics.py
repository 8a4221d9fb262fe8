"""Options of metrics (docs/metrics.md)."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import INT, optional
from ....infra.config.options import ConfigOption
from ..ports import PORTS
from .kinds import BOTH, HOST

METRICS_PORT = ConfigOption(
    key="metrics.reporter.prom.port",
    type=optional(PORTS),
    default=None,
    doc="The port at which a process serves its metrics for Prometheus, at /metrics; none: it serves none. For a list "
    "or range, such as 9249-9260, the first free port: each process of a machine needs a separate one. 0: any free "
    "port, which the process writes into its log.",
    scopes=BOTH,
    flink="9249 once a reporter is set",
)
METRICS_HOST = ConfigOption(
    key="metrics.reporter.prom.host",
    type=HOST,
    default="127.0.0.1",
    doc="The address on which a process serves its metrics. Whoever connects can read the names of jobs and operators.",
    scopes=BOTH,
    ours=True,
)
METRICS_MAX_SERIES = ConfigOption(
    key="metrics.reporter.prom.max-series",
    type=INT,
    default=20_000,
    at_least=1,
    doc="The largest number of time series that a process exposes. It leaves out users' metrics first, then the jobs "
    "and tasks that began last; omittedSeries counts them.",
    scopes=BOTH,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (METRICS_PORT, METRICS_HOST, METRICS_MAX_SERIES)
