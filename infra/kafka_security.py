"""TLS, SASL and ACLs of an embedded Kafka: the settings of its broker, and how its administrator connects.

Clients have one listener with SASL_SSL. The controller's listener takes only the broker's own certificate. Without an
ACL nothing is allowed, except for the administrator. Users of PLAIN are in the broker's settings; users of SCRAM are
created by the administrator while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from .jaas import quoted
from .kafka_connection import KafkaConnection

ADMIN: Final = "admin"
"""The super user, of PLAIN."""
BROKER: Final = "broker"
"""The common name in the broker's certificate."""
_LISTENER: Final = "SASL_SSL"
_PACKAGE: Final = "org.apache.kafka.common.security"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SETTINGS: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": f"User:{ADMIN};User:{BROKER}",
    # The principal of a certificate is its common name.
    "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "inter.broker.listener.name": _LISTENER,
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.controller.ssl.client.auth": "required",
}


class Listener(msgspec.Struct, frozen=True):
    """A further listener. `protocol`: SASL_SSL; SSL, where the certificate of a client says who it is; or PLAINTEXT,
    where everybody is ANONYMOUS."""

    certificate: Path
    protocol: str = _LISTENER
    mechanisms: tuple[str, ...] = _MECHANISMS


class BrokerSecurity(msgspec.Struct, frozen=True):
    """The files and users of a secured broker. A certificate file is PEM: the key in PKCS#8, and the chain."""

    ca: Path
    """The certificate authorities that the broker and its administrator trust."""
    certificate: Path
    """Of the broker, for clients and for itself; its common name is BROKER."""
    admin_password_file: Path
    plain_users: Mapping[str, str] = {}
    """User of PLAIN -> password."""
    listeners: Mapping[str, Listener] = {}
    """Name in capital letters -> a further listener."""

    def connection(self, bootstrap_servers: str) -> KafkaConnection:
        """Returns the administrator's connection."""
        return KafkaConnection(
            bootstrap_servers,
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": ADMIN,
                "sasl.password-file": str(self.admin_password_file),
                "ssl.ca.location": str(self.ca),
            },
        )

    def settings(self, host: str, port: int, controller_port: int, more: Mapping[str, int]) -> dict[str, str]:
        """Returns the broker's settings; `more` has the ports of the further listeners."""
        own = {_LISTENER: port, **more}
        protocols = {_LISTENER: _LISTENER, **{name: one.protocol for name, one in self.listeners.items()}}
        settings = {
            **_SETTINGS,
            "listeners": ",".join(
                f"{name}://{host}:{number}" for name, number in {**own, "CONTROLLER": controller_port}.items()
            ),
            "advertised.listeners": ",".join(f"{name}://{host}:{number}" for name, number in own.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in {**protocols, "CONTROLLER": "SSL"}.items()
            ),
            "ssl.keystore.location": str(self.certificate),
            "ssl.truststore.location": str(self.ca),
        }
        settings |= self._logins(f"listener.name.{_LISTENER.lower()}", _MECHANISMS)
        for name, listener in self.listeners.items():
            prefix = f"listener.name.{name.lower()}"
            settings[f"{prefix}.ssl.keystore.location"] = str(listener.certificate)
            if listener.protocol == "SSL":
                settings[f"{prefix}.ssl.client.auth"] = "required"
            elif listener.protocol == _LISTENER:
                settings |= self._logins(prefix, listener.mechanisms)
        return settings

    def _logins(self, prefix: str, mechanisms: Sequence[str]) -> dict[str, str]:
        password = self.admin_password_file.read_text("utf-8").splitlines()[0]
        users = {ADMIN: password, **self.plain_users}
        known = "".join(f" user_{user}={quoted(text)}" for user, text in users.items())
        plain = (
            f"{_PACKAGE}.plain.PlainLoginModule required username={quoted(ADMIN)} password={quoted(password)}"
        )
        settings = {
            f"{prefix}.sasl.enabled.mechanisms": ",".join(mechanisms),
            f"{prefix}.plain.sasl.jaas.config": f"{plain}{known};",
        }
        for mechanism in _MECHANISMS[1:]:
            settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = (
                f"{_PACKAGE}.scram.ScramLoginModule required;"
            )
        return settings
