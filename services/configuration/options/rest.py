"""Options of the REST servers of masters and gateways."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from ....infra.config.option_types import (
    BOOL,
    DURATION,
    INT,
    LOCATION,
    MEMORY,
    MINUTE,
    SECOND,
    OptionType,
    derived,
    optional,
    pattern,
)
from ....infra.config.options import ConfigOption, Scope
from ....infra.redaction import has_user_information
from ..ports import PORTS, Ports
from .kinds import FILE, HOST, MASTER

_URL = re.compile(r"https?://[^\s?#]+")

JWT_ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
"""Those with a public key (RFC 7518, RFC 8037, RFC 9864)."""
_TEXT = pattern("a printable text", lambda text: bool(text) and text.isprintable())


def _read_algorithms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    if not set(names) <= set(JWT_ALGORITHMS):
        raise ValueError(text)
    return names


def _is_https(text: str) -> bool:
    try:
        return urlsplit(text).scheme == "https" and bool(urlsplit(text).hostname) and text.isprintable()
    except ValueError:
        return False


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return text == "*" or (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and text == f"{parts.scheme}://{parts.netloc}"
    )


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
    type=derived(HOST),
    default=None,
    doc="The address that clients are told to connect to. `auto`: rest.bind-address.",
    scopes=MASTER,
)
REST_BIND_ADDRESS = ConfigOption(
    key="rest.bind-address",
    type=HOST,
    default="127.0.0.1",
    doc="The address on which the REST server listens. An address that other machines reach needs "
    "rest.token-file, rest.principals-file, rest.jwt.jwks-url or security.ssl.rest.authentication-enabled.",
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
REST_URL = ConfigOption(
    key="rest.url",
    type=pattern(
        "a URL, http://HOST:PORT or https://..., without a user and password, or nothing",
        lambda text: not text or (bool(_URL.fullmatch(text)) and not has_user_information(text)),
    ),
    default="",
    doc="The REST server that commands use instead of Kafka, as `tailrace --rest URL` does; nothing: Kafka. The "
    "token is in rest.token-file.",
    scopes=(Scope.CLIENT,),
    ours=True,
)
REST_TOKEN_FILE = ConfigOption[str | None](
    key="rest.token-file",
    type=FILE,
    default=None,
    doc="A file whose first line is a token, at least 16 characters. Requests with the header `Authorization: Bearer "
    "<token>` are those of an operator. With this option, rest.principals-file or rest.jwt.jwks-url, the REST server "
    "serves no other requests. Use security.ssl.rest.enabled on a network that others can read. "
    "A command with rest.url sends this token.",
    scopes=(Scope.CLIENT, Scope.JOBMANAGER),
    ours=True,
)
REST_PRINCIPALS_FILE = ConfigOption[str | None](
    key="rest.principals-file",
    type=FILE,
    default=None,
    doc="A file with the principals of the REST server: a line for each, with its name, its role and the hash of its "
    "token or the subject of its certificate. See [REST](rest.md#principals-and-roles).",
    scopes=MASTER,
    ours=True,
)
REST_JWT_JWKS_URL = ConfigOption[str | None](
    key="rest.jwt.jwks-url",
    type=optional(pattern("an address that begins with https://", _is_https)),
    default=None,
    doc="The address of the keys (JWKS) of an OpenID Connect provider, whose tokens the REST server takes then.",
    scopes=MASTER,
    ours=True,
)
REST_JWT_JWKS_CA = ConfigOption[str | None](
    key="rest.jwt.jwks-ca",
    type=FILE,
    default=None,
    doc="A PEM file with the certificate authorities of that address; none: those of the system.",
    scopes=MASTER,
    ours=True,
)
REST_JWT_ISSUER = ConfigOption[str | None](
    key="rest.jwt.issuer",
    type=optional(_TEXT),
    default=None,
    doc="The issuer (`iss`) that a token must have.",
    scopes=MASTER,
    ours=True,
)
REST_JWT_AUDIENCE = ConfigOption[str | None](
    key="rest.jwt.audience",
    type=optional(_TEXT),
    default=None,
    doc="The audience (`aud`) that a token must have.",
    scopes=MASTER,
    ours=True,
)
REST_JWT_ALGORITHMS = ConfigOption[tuple[str, ...]](
    key="rest.jwt.algorithms",
    type=OptionType(
        "names with ';' between them",
        f"names with ';' between them, of {', '.join(JWT_ALGORITHMS)}",
        _read_algorithms,
        ";".join,
    ),
    default=("RS256", "ES256"),
    doc=f"The signatures that count: {', '.join(JWT_ALGORITHMS)}.",
    scopes=MASTER,
    ours=True,
)
REST_JWT_LEEWAY = ConfigOption(
    key="rest.jwt.leeway",
    type=DURATION,
    default=30 * SECOND,
    at_least=0,
    at_most=10 * MINUTE,
    doc="How far the clocks of the provider and the server may differ.",
    scopes=MASTER,
    ours=True,
)
REST_JWT_ROLE_CLAIM = ConfigOption(
    key="rest.jwt.role-claim",
    type=_TEXT,
    default="tailrace",
    doc="The claim with the role: `reader`, `submitter@payments`, `operator`, or a list in which others are ignored. "
    "`realm_access.roles` is the claim `roles` in the claim `realm_access`.",
    scopes=MASTER,
    ours=True,
)
REST_JWT_PRINCIPAL_CLAIM = ConfigOption(
    key="rest.jwt.principal-claim",
    type=_TEXT,
    default="sub",
    doc="The claim with the name of the principal.",
    scopes=MASTER,
    ours=True,
)
REST_MAX_REQUESTS = ConfigOption[int | None](
    key="rest.max-requests-per-second",
    type=optional(INT),
    default=None,
    at_least=1,
    at_most=1_000_000,
    doc="How many requests of one principal a REST server answers in a second. Further ones get 429.",
    scopes=MASTER,
    ours=True,
)
REST_MAX_CONNECTIONS = ConfigOption(
    key="rest.max-connections",
    type=INT,
    default=256,
    at_least=1,
    at_most=100_000,
    doc="How many connections a REST server serves at once. Further ones get 503.",
    scopes=MASTER,
    ours=True,
)
WEB_ALLOW_ORIGIN = ConfigOption[str | None](
    key="web.access-control-allow-origin",
    type=optional(pattern("* or an origin such as https://monitoring.example", _is_origin)),
    default=None,
    doc="The origin of a web page that may use the REST API from a browser: `https://monitoring.example`. With `*`, "
    "pages of all origins may read.",
    scopes=MASTER,
    flink="*",
)
REST_TLS = ConfigOption(
    key="security.ssl.rest.enabled",
    type=BOOL,
    default=False,
    doc="Whether the REST server uses TLS, of version 1.2 or later.",
    scopes=MASTER,
)
REST_TLS_AUTHENTICATION = ConfigOption(
    key="security.ssl.rest.authentication-enabled",
    type=BOOL,
    default=False,
    doc="Whether each client of the REST server needs a certificate of security.ssl.rest.ca (mutual TLS). Without "
    "rest.principals-file every such client is an operator; with it, those that the file names are principals.",
    scopes=MASTER,
)
REST_TLS_CERTIFICATE = ConfigOption[str | None](
    key="security.ssl.rest.certificate",
    type=FILE,
    default=None,
    doc="A PEM file with the certificate of the REST server, and its chain. It has to name the address that clients "
    "use. A changed file is read again. Flink has Java keystores instead.",
    scopes=MASTER,
    ours=True,
)
REST_TLS_KEY = ConfigOption[str | None](
    key="security.ssl.rest.key",
    type=FILE,
    default=None,
    doc="A PEM file with the key of security.ssl.rest.certificate; none: the same file.",
    scopes=MASTER,
    ours=True,
)
REST_TLS_KEY_PASSWORD_FILE = ConfigOption[str | None](
    key="security.ssl.rest.key-password-file",
    type=FILE,
    default=None,
    doc="A file whose first line is the password of that key; none: the key is not encrypted.",
    scopes=MASTER,
    ours=True,
)
REST_TLS_CA = ConfigOption[str | None](
    key="security.ssl.rest.ca",
    type=FILE,
    default=None,
    doc="A PEM file with the authorities that may have issued the certificates of clients. For a command with rest.url "
    "of https: those of the server's certificate; none: those of the system.",
    scopes=(Scope.CLIENT, Scope.JOBMANAGER),
    ours=True,
)
REST_MAX_CONTENT_LENGTH = ConfigOption(
    key="rest.server.max-content-length",
    type=MEMORY,
    default=100 << 20,
    at_least=1 << 10,
    at_most=512 << 20,
    doc="The maximum size of the body of a request that uploads a program. Other bodies may have 1 MiB at most.",
    scopes=MASTER,
)
WEB_SUBMIT_ENABLE = ConfigOption(
    key="web.submit.enable",
    type=BOOL,
    default=True,
    doc="Whether the REST server stores, plans and runs uploaded programs (/jars). Programs run in processes of their "
    "own on the machine of the server, with its rights.",
    scopes=MASTER,
)
WEB_UPLOAD_DIR = ConfigOption[str | None](
    key="web.upload.dir",
    type=derived(LOCATION),
    default=None,
    doc="The directory of uploaded programs, a path or URI. Servers with the same directory have the same programs. "
    "`auto`: `uploads` below high-availability.storageDir.",
    scopes=MASTER,
)
MAX_PROGRAMS = ConfigOption(
    key="web.upload.max-programs",
    type=INT,
    default=200,
    at_least=1,
    at_most=10_000,
    doc="The maximum number of uploaded programs of a tenant, and of those without one.",
    scopes=MASTER,
    ours=True,
)
MAX_PROGRAM_BYTES = ConfigOption(
    key="web.upload.max-size",
    type=MEMORY,
    default=2 << 30,
    at_least=1 << 20,
    doc="The maximum size of all uploaded programs of a tenant, and of those without one.",
    scopes=MASTER,
    ours=True,
)

HISTORY_REFRESH_INTERVAL = ConfigOption(
    key="historyserver.archive.fs.refresh-interval",
    type=DURATION,
    default=10 * SECOND,
    at_least=SECOND,
    doc="How often `tailrace history-server` looks for new logs, and for new events in known ones.",
    scopes=MASTER,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    REST_ENABLED,
    REST_ADDRESS,
    REST_PORT,
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_URL,
    REST_TOKEN_FILE,
    REST_PRINCIPALS_FILE,
    REST_JWT_JWKS_URL,
    REST_JWT_JWKS_CA,
    REST_JWT_ISSUER,
    REST_JWT_AUDIENCE,
    REST_JWT_ALGORITHMS,
    REST_JWT_LEEWAY,
    REST_JWT_ROLE_CLAIM,
    REST_JWT_PRINCIPAL_CLAIM,
    REST_TLS,
    REST_TLS_AUTHENTICATION,
    REST_TLS_CERTIFICATE,
    REST_TLS_KEY,
    REST_TLS_KEY_PASSWORD_FILE,
    REST_TLS_CA,
    REST_MAX_CONTENT_LENGTH,
    WEB_SUBMIT_ENABLE,
    WEB_UPLOAD_DIR,
    MAX_PROGRAMS,
    MAX_PROGRAM_BYTES,
    REST_MAX_REQUESTS,
    REST_MAX_CONNECTIONS,
    WEB_ALLOW_ORIGIN,
    HISTORY_REFRESH_INTERVAL,
)
