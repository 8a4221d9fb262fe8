"""Options of the REST servers of masters and gateways."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import BOOL, INT, MEMORY, derived, pattern
from ....infra.config.options import ConfigOption
from ..ports import PORTS, Ports
from .kinds import FILE, MASTER

_HOST = pattern("a name or address", lambda text: bool(text) and text.isprintable() and " " not in text)

REST_ENABLED = ConfigOption(
    key="rest.enabled",
    type=BOOL,
    default=True,
    doc="Whether jobmanagers serve the REST API. `tailrace gateway` always does.",
    scopes=MASTER,
    ours=True,
)
REST_ADDRESS = ConfigOption[str | None](
    key="rest.address",
    type=derived(_HOST),
    default=None,
    doc="The address that clients are told to connect to. `auto`: rest.bind-address.",
    scopes=MASTER,
)
REST_BIND_ADDRESS = ConfigOption(
    key="rest.bind-address",
    type=_HOST,
    default="127.0.0.1",
    doc="The address on which the REST server listens. An address that other machines reach needs rest.token-file.",
    scopes=MASTER,
)
REST_PORT = ConfigOption[int | None](
    key="rest.port",
    type=derived(INT),
    default=None,
    at_least=1,
    at_most=65_535,
    doc="The port that clients are told to connect to. `auto`: the one that the server listens on. Without "
    "rest.bind-port the server listens on this port.",
    scopes=MASTER,
    flink="8081",
)
REST_BIND_PORT = ConfigOption(
    key="rest.bind-port",
    type=PORTS,
    default=Ports(((8081, 8180),)),
    doc="The port on which the REST server listens, as blob.server.port: the first free one of a list or range.",
    scopes=MASTER,
    flink="rest.port",
)
REST_TOKEN_FILE = ConfigOption[str | None](
    key="rest.token-file",
    type=FILE,
    default=None,
    doc="A file whose first line is a token, at least 16 characters. The REST server serves only requests with the "
    "header `Authorization: Bearer <token>`; none: all requests. Required if the server is reachable from other "
    "machines, and if Kafka is secured. The token is not encrypted on its way: put a proxy with TLS before the server.",
    scopes=MASTER,
    ours=True,
)
REST_MAX_CONTENT_LENGTH = ConfigOption(
    key="rest.server.max-content-length",
    type=MEMORY,
    default=1 << 20,
    at_least=1 << 10,
    at_most=64 << 20,
    doc="The maximum size of the body of a request.",
    scopes=MASTER,
    flink="104857600",
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    REST_ENABLED,
    REST_ADDRESS,
    REST_PORT,
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_TOKEN_FILE,
    REST_MAX_CONTENT_LENGTH,
)
