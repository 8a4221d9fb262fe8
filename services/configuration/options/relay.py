"""Options of the relays of masters, by which TaskExecutors read the log."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import BOOL, MEMORY
from ....infra.config.options import ConfigOption
from ..ports import PORTS, Ports
from .kinds import BOTH, HOST, MASTER

RELAY_ENABLED = ConfigOption(
    key="log.relay.enabled",
    type=BOOL,
    default=True,
    doc="Whether jobmanagers relay the log to TaskExecutors. A TaskExecutor without a relay reads the whole log from "
    "Kafka. For a TaskExecutor: whether it reads by a relay.",
    scopes=BOTH,
    ours=True,
)
RELAY_HOST = ConfigOption(
    key="log.relay.host",
    type=HOST,
    default="127.0.0.1",
    doc="The address on which the relay of a jobmanager listens and TaskExecutors connect to it. Whoever connects can "
    "read the log, unless blob.secret-file is set. blob.server.ssl.enabled is for the relay, too. If Kafka is secured, "
    "there is no relay without a secret, and none without TLS if connections to Kafka use TLS.",
    scopes=MASTER,
    ours=True,
)
RELAY_PORT = ConfigOption(
    key="log.relay.port",
    type=PORTS,
    default=Ports(),
    doc="The port of the relay, as blob.server.port; 0: any free port.",
    scopes=MASTER,
    ours=True,
)
RELAY_MEMORY = ConfigOption(
    key="log.relay.memory",
    type=MEMORY,
    default=32 << 20,
    at_least=1 << 20,
    doc="The memory for the last records of the log, from which a relay serves TaskExecutors that start or reconnect. "
    "Older records are read from Kafka, once for all that wait.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (RELAY_ENABLED, RELAY_HOST, RELAY_PORT, RELAY_MEMORY)
