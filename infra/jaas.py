"""JAAS: how Kafka's Java client is told who it is (sasl.jaas.config)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SECRETS: Final = frozenset(
    {"sasl.jaas.config", "ssl.key.password", "ssl.keystore.password", "ssl.keystore.key"}
)
"""The properties of a Java client that have secrets in them."""

_PACKAGE: Final = "org.apache.kafka.common.security"
_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
MECHANISMS: Final = tuple(_MODULES)
"""The SASL mechanisms that both clients have."""

# A client property -> the option of the login module.
_OPTIONS: Final[Mapping[str, str]] = {
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
    "sasl.kerberos.principal": "principal",
    "sasl.kerberos.keytab": "keyTab",
}
TRANSLATED: Final = frozenset({*_OPTIONS, "sasl.oauthbearer.extensions", "https.ca.location"})
"""The client properties that are options of a login module in Java."""


def login_configuration(mechanism: str, properties: Mapping[str, str]) -> str:
    """Returns the value of sasl.jaas.config for client properties by librdkafka's names."""
    options = {option: properties[name] for name, option in _OPTIONS.items() if name in properties}
    for pair in properties.get("sasl.oauthbearer.extensions", "").split(","):
        name, equals, value = pair.partition("=")
        if equals:
            options[f"extension_{name.strip()}"] = value.strip()
    if mechanism == "OAUTHBEARER" and "https.ca.location" in properties:
        options |= {"ssl.truststore.location": properties["https.ca.location"], "ssl.truststore.type": "PEM"}
    if mechanism == "GSSAPI":
        own = {"useKeyTab": "true", "storeKey": "true"} if "keyTab" in options else {"useTicketCache": "true"}
        options = {**own, **options}
    given = "".join(f" {name}={quoted(value)}" for name, value in options.items())
    return f"{_MODULES[mechanism]} required{given};"


def quoted(value: str) -> str:
    """Returns a value in the syntax of JAAS."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
