"""Options of ZooKeeper: its address, the cluster's nodes, and authentication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from ....infra.config.option_types import BOOL, DURATION, INT, MILLISECOND, MINUTE, SECOND, choice, pattern
from ....infra.config.options import ConfigOption
from .kinds import EVERYONE, FILE, NODE_PATH, SERVER_LIST


class ZooKeeperAcl(StrEnum):
    """Who may access the nodes that the cluster creates in ZooKeeper."""

    OPEN = "open"
    CREATOR = "creator"


class SaslMechanism(StrEnum):
    """The SASL mechanism by which clients authenticate at ZooKeeper, besides digest and TLS."""

    NONE = "none"
    DIGEST_MD5 = "DIGEST-MD5"
    GSSAPI = "GSSAPI"


ZOOKEEPER_QUORUM = ConfigOption(
    key="high-availability.zookeeper.quorum",
    type=SERVER_LIST,
    default="",
    doc="The servers of ZooKeeper, host:port,...; nothing: the ZooKeeper of the cluster that runs in `home`.",
    scopes=EVERYONE,
)
ZOOKEEPER_ROOT = ConfigOption(
    key="high-availability.zookeeper.path.root",
    type=NODE_PATH,
    default="/tailrace",
    doc="The root node. Each cluster has a node below it, named by high-availability.cluster-id.",
    scopes=EVERYONE,
    flink="/flink",
)
ZOOKEEPER_LATCH_PATH = ConfigOption(
    key="high-availability.zookeeper.path.latch",
    type=NODE_PATH,
    default="/leaderlatch",
    doc="Below the cluster's node: the parent of the candidates. As in Flink 1.",
    scopes=EVERYONE,
)
ZOOKEEPER_LEADER_PATH = ConfigOption(
    key="high-availability.zookeeper.path.leader",
    type=NODE_PATH,
    default="/leader",
    doc="Below the cluster's node: the published leaders. As in Flink 1.",
    scopes=EVERYONE,
)
ZOOKEEPER_SESSION_TIMEOUT = ConfigOption(
    key="high-availability.zookeeper.client.session-timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=500 * MILLISECOND,
    at_most=10 * MINUTE,
    doc="The session timeout: how long ZooKeeper waits for a silent master before it elects another. The servers limit"
    " it (minSessionTimeout, maxSessionTimeout) and grant the effective value.",
    scopes=EVERYONE,
    flink="1 min",
)
ZOOKEEPER_CONNECTION_TIMEOUT = ConfigOption(
    key="high-availability.zookeeper.client.connection-timeout",
    type=DURATION,
    default=3 * SECOND,
    at_least=10 * MILLISECOND,
    at_most=10 * MINUTE,
    doc="How long a ZooKeeper server may take to accept a connection and to answer on it for the first time, before "
    "the client tries the next one.",
    scopes=EVERYONE,
    flink="15 s",
)
ZOOKEEPER_ACL = ConfigOption(
    key="high-availability.zookeeper.client.acl",
    type=choice(ZooKeeperAcl),
    default=ZooKeeperAcl.OPEN,
    doc="Who may access the nodes of the cluster. open: everybody. creator: only clients that authenticate as the "
    "creator, by an authentication file, SASL or a TLS certificate.",
    scopes=EVERYONE,
)
ZOOKEEPER_AUTH_FILE = ConfigOption[str | None](
    key="high-availability.zookeeper.client.auth-file",
    type=FILE,
    default=None,
    doc="A file whose first line is `user:password`, for ZooKeeper's digest authentication. A file keeps the password "
    "out of configurations, environments and logs.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_SASL = ConfigOption(
    key="high-availability.zookeeper.sasl.mechanism",
    type=choice(SaslMechanism),
    default=SaslMechanism.NONE,
    doc="SASL authentication at ZooKeeper; it needs the package pure-sasl (`pip install 'tailrace[sasl]'`), GSSAPI "
    "also `gssapi` and a Kerberos ticket of the process.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_SASL_SERVICE = ConfigOption(
    key="high-availability.zookeeper.sasl.service-name",
    type=pattern("a name", lambda text: bool(text) and text.isprintable() and " " not in text),
    default="zookeeper",
    doc="The Kerberos service of the ZooKeeper servers. Flink's zookeeper.sasl.service-name.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_SASL_FILE = ConfigOption[str | None](
    key="high-availability.zookeeper.sasl.credentials-file",
    type=FILE,
    default=None,
    doc="A file whose first line is `user:password`, for DIGEST-MD5.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS = ConfigOption(
    key="high-availability.zookeeper.ssl.enabled",
    type=BOOL,
    default=False,
    doc="Whether connections to ZooKeeper use TLS; the quorum's ports are then its secureClientPorts.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_CA = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.ca",
    type=FILE,
    default=None,
    doc="A PEM file with the certificate authorities that are trusted besides those of the system.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_CERTIFICATE = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.certificate",
    type=FILE,
    default=None,
    doc="A PEM file with the certificate, and its chain, by which this process authenticates.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_KEY = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.key",
    type=FILE,
    default=None,
    doc="A PEM file with the key of high-availability.zookeeper.ssl.certificate.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_KEY_PASSWORD_FILE = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.key-password-file",
    type=FILE,
    default=None,
    doc="A file whose first line is the password of that key; none: the key is not encrypted.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_HOSTNAMES = ConfigOption(
    key="high-availability.zookeeper.ssl.hostname-verification",
    type=BOOL,
    default=True,
    doc="Whether a server's certificate must match the host name in the quorum.",
    scopes=EVERYONE,
    ours=True,
)
ZOOKEEPER_BASE_EPOCH = ConfigOption(
    key="high-availability.zookeeper.base-epoch",
    type=INT,
    default=0,
    at_least=0,
    doc="Added to every epoch from ZooKeeper. If ZooKeeper lost its data, or the cluster moved to another ZooKeeper, "
    "new epochs start below those in the log: set this to the log's last epoch.",
    scopes=EVERYONE,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
    ZOOKEEPER_LATCH_PATH,
    ZOOKEEPER_LEADER_PATH,
    ZOOKEEPER_SESSION_TIMEOUT,
    ZOOKEEPER_CONNECTION_TIMEOUT,
    ZOOKEEPER_ACL,
    ZOOKEEPER_AUTH_FILE,
    ZOOKEEPER_SASL,
    ZOOKEEPER_SASL_SERVICE,
    ZOOKEEPER_SASL_FILE,
    ZOOKEEPER_TLS,
    ZOOKEEPER_TLS_CA,
    ZOOKEEPER_TLS_CERTIFICATE,
    ZOOKEEPER_TLS_KEY,
    ZOOKEEPER_TLS_KEY_PASSWORD_FILE,
    ZOOKEEPER_TLS_HOSTNAMES,
    ZOOKEEPER_BASE_EPOCH,
)


def find_contradictions(configuration: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each incomplete authentication setting."""
    if ZOOKEEPER_ACL.of(configuration) is ZooKeeperAcl.CREATOR and not _has_client_authentication(
        configuration
    ):
        yield (
            f"{ZOOKEEPER_ACL.key} is creator, but nothing says who the creator is: set {ZOOKEEPER_AUTH_FILE.key}, "
            f"{ZOOKEEPER_SASL.key}, or {ZOOKEEPER_TLS.key} and {ZOOKEEPER_TLS_CERTIFICATE.key}"
        )
    if (ZOOKEEPER_SASL.of(configuration) is SaslMechanism.DIGEST_MD5) != bool(
        ZOOKEEPER_SASL_FILE.of(configuration)
    ):
        yield f"{ZOOKEEPER_SASL_FILE.key} belongs to {ZOOKEEPER_SASL.key} DIGEST-MD5: set both or neither"
    if bool(ZOOKEEPER_TLS_CERTIFICATE.of(configuration)) != bool(ZOOKEEPER_TLS_KEY.of(configuration)):
        yield f"{ZOOKEEPER_TLS_CERTIFICATE.key} and {ZOOKEEPER_TLS_KEY.key} belong together: set both or neither"


def _has_client_authentication(configuration: Mapping[str, str]) -> bool:
    """Returns whether the process authenticates at ZooKeeper."""
    by_certificate = ZOOKEEPER_TLS.of(configuration) and ZOOKEEPER_TLS_CERTIFICATE.of(configuration)
    by_sasl = ZOOKEEPER_SASL.of(configuration) is not SaslMechanism.NONE
    return bool(by_certificate or by_sasl or ZOOKEEPER_AUTH_FILE.of(configuration))
