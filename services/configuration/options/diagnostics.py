"""Options of the servers from which REST servers read live data of a process, and of what they read there."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, MILLISECOND, SECOND
from ....infra.config.options import ConfigOption
from ..ports import PORTS, Ports
from .kinds import BOTH, HOST, MASTER

DIAGNOSTICS_HOST = ConfigOption(
    key="diagnostics.host",
    type=HOST,
    default="127.0.0.1",
    doc="The address on which a jobmanager or TaskExecutor serves its metrics, log files and stacks to REST servers, "
    "and to which they connect. An address that other machines reach needs blob.secret-file. blob.server.ssl.enabled "
    "is for these servers, too. If Kafka is secured, there are none without a secret.",
    scopes=BOTH,
    ours=True,
)
DIAGNOSTICS_PORT = ConfigOption(
    key="diagnostics.port",
    type=PORTS,
    default=Ports(),
    doc="The port of this server, as blob.server.port; 0: any free port.",
    scopes=BOTH,
    ours=True,
)
METRICS_UPDATE_INTERVAL = ConfigOption(
    key="metrics.fetcher.update-interval",
    type=DURATION,
    default=2 * SECOND,
    at_least=MILLISECOND,
    doc="How old the metrics of a TaskExecutor may be in an answer of a REST server, before the server asks for them "
    "again.",
    scopes=MASTER,
    flink="10 s",
)

OPTIONS: tuple[ConfigOption[Any], ...] = (DIAGNOSTICS_HOST, DIAGNOSTICS_PORT, METRICS_UPDATE_INTERVAL)
