"""The ZooKeeper settings of a cluster: the options of `high-availability.*`, validated.

Passwords come from files. They do not appear in the configuration, in events, in logs, or in the text of these
settings.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...infra.config.option_types import SECOND
from ...infra.config.options import ConfigOption
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.high_availability import HIGH_AVAILABILITY
from ..configuration.options.zookeeper import (
    ZOOKEEPER_ACL,
    ZOOKEEPER_AUTH_FILE,
    ZOOKEEPER_BASE_EPOCH,
    ZOOKEEPER_CONNECTION_TIMEOUT,
    ZOOKEEPER_LATCH_PATH,
    ZOOKEEPER_LEADER_PATH,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
    ZOOKEEPER_SASL,
    ZOOKEEPER_SASL_FILE,
    ZOOKEEPER_SASL_SERVICE,
    ZOOKEEPER_SESSION_TIMEOUT,
    ZOOKEEPER_TLS,
    ZOOKEEPER_TLS_CA,
    ZOOKEEPER_TLS_CERTIFICATE,
    ZOOKEEPER_TLS_HOSTNAMES,
    ZOOKEEPER_TLS_KEY,
    ZOOKEEPER_TLS_KEY_PASSWORD_FILE,
    SaslMechanism,
    ZooKeeperAcl,
)


class Secret(msgspec.Struct, frozen=True):
    """A text that is hidden when it is printed."""

    text: str

    def __repr__(self) -> str:
        return "Secret(...)"


class Sasl(msgspec.Struct, frozen=True):
    """SASL authentication at ZooKeeper; user and password are for DIGEST-MD5 only."""

    mechanism: SaslMechanism
    service: str
    user: str = ""
    password: Secret = Secret("")


class Tls(msgspec.Struct, frozen=True):
    """TLS connections to ZooKeeper; files are PEM."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: Secret | None = None
    check_hostname: bool = True


class ZooKeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `cluster_path` is the node of the cluster; the latch and leader nodes are below it."""

    quorum: str
    cluster_path: str
    latch: str = "/leaderlatch"
    leader: str = "/leader"
    session_timeout_s: float = 10.0
    connection_timeout_s: float = 3.0
    acl: ZooKeeperAcl = ZooKeeperAcl.OPEN
    digest: Secret | None = None
    sasl: Sasl | None = None
    tls: Tls | None = None
    base_epoch: int = 0

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> ZooKeeperSettings:
        """Reads the settings from a configuration. Raises ConfigurationError for an unreadable file or a missing
        quorum: a process that starts an embedded ZooKeeper puts its address into the configuration first."""
        get = configuration.get
        quorum = get(ZOOKEEPER_QUORUM)
        if not quorum:
            missing = f"{HIGH_AVAILABILITY.key} is zookeeper, but {ZOOKEEPER_QUORUM.key} is empty"
            advice = (
                "set it to host:port,..., or let `tailrace cluster start` start a ZooKeeper on this machine"
            )
            raise ConfigurationError([f"{missing}: {advice}"])
        return cls(
            quorum=quorum,
            cluster_path=f"{get(ZOOKEEPER_ROOT)}/{configuration.ha_cluster_id}",
            latch=get(ZOOKEEPER_LATCH_PATH),
            leader=get(ZOOKEEPER_LEADER_PATH),
            session_timeout_s=get(ZOOKEEPER_SESSION_TIMEOUT) / SECOND,
            connection_timeout_s=get(ZOOKEEPER_CONNECTION_TIMEOUT) / SECOND,
            acl=get(ZOOKEEPER_ACL),
            digest=_credentials(configuration, ZOOKEEPER_AUTH_FILE),
            sasl=_sasl(configuration),
            tls=_tls(configuration),
            base_epoch=get(ZOOKEEPER_BASE_EPOCH),
        )


def _sasl(configuration: Configuration) -> Sasl | None:
    mechanism = configuration.get(ZOOKEEPER_SASL)
    if mechanism is SaslMechanism.NONE:
        return None
    service = configuration.get(ZOOKEEPER_SASL_SERVICE)
    credentials = _credentials(configuration, ZOOKEEPER_SASL_FILE)
    if credentials is None:
        return Sasl(mechanism, service)
    user, _, password = credentials.text.partition(":")
    return Sasl(mechanism, service, user, Secret(password))


def _tls(configuration: Configuration) -> Tls | None:
    get = configuration.get
    if not get(ZOOKEEPER_TLS):
        return None
    # kazoo reads the files again for every connection, and would retry for ever if one is missing.
    for option in (ZOOKEEPER_TLS_CA, ZOOKEEPER_TLS_CERTIFICATE, ZOOKEEPER_TLS_KEY):
        _read(configuration, option)
    password = _read(configuration, ZOOKEEPER_TLS_KEY_PASSWORD_FILE)
    return Tls(
        ca=get(ZOOKEEPER_TLS_CA),
        certificate=get(ZOOKEEPER_TLS_CERTIFICATE),
        key=get(ZOOKEEPER_TLS_KEY),
        key_password=None if password is None else Secret(_first_line(password)),
        check_hostname=get(ZOOKEEPER_TLS_HOSTNAMES),
    )


def _credentials(configuration: Configuration, option: ConfigOption[str | None]) -> Secret | None:
    text = _read(configuration, option)
    if text is None:
        return None
    user, colon, password = _first_line(text).partition(":")
    if not (user and colon and password):
        raise ConfigurationError(
            [f"{option.key}: the first line of {configuration.get(option)} is not user:password"]
        )
    return Secret(f"{user}:{password}")


def _read(configuration: Configuration, option: ConfigOption[str | None]) -> str | None:
    name = configuration.get(option)
    if name is None:
        return None
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{option.key}: {name} cannot be read: {error}"]) from None


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip("\r")
