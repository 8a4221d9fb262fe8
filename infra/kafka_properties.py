"""The client properties of Kafka that users set, and how librdkafka and Kafka's Java client spell them.

A property that no table names has the same name in both clients, which refuse or ignore what they do not know. TLS
files are in PEM format, which both clients read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from . import jaas
from .redaction import is_secret

FILE_SUFFIX: Final = "-file"
"""A secret property is given as the name of a file with the secret in its first line: `sasl.password-file`."""


class Spelling(NamedTuple):
    """The names of one property."""

    librdkafka: str
    java: str


SPELLINGS: Final[Mapping[str, Spelling]] = {
    "ssl.ca.location": Spelling("ssl.ca.location", "ssl.truststore.location"),
    "receive.buffer.bytes": Spelling("socket.receive.buffer.bytes", "receive.buffer.bytes"),
    "send.buffer.bytes": Spelling("socket.send.buffer.bytes", "send.buffer.bytes"),
}
"""The properties with different names."""

KEY_PAIR: Final = ("ssl.certificate.location", "ssl.key.location")
"""Java has the content of these files in its configuration, not their names."""

LIBRDKAFKA_ONLY: Final = frozenset(
    {
        *jaas.TRANSLATED,
        "sasl.oauthbearer.method",
        "ssl.crl.location",
        "enable.ssl.certificate.verification",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.timeout.ms",
        "broker.address.family",
        "broker.address.ttl",
        "statistics.interval.ms",
    }
)
"""Not given to a Java client under this name."""

JAVA_ONLY: Final = frozenset(
    {
        "max.poll.records",
        "default.api.timeout.ms",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.provider",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
    }
)
"""Not given to librdkafka."""

SECURITY: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password-file",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret-file",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "https.ca.location",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password-file",
    "ssl.keystore.location",
    "ssl.keystore.password-file",
    "ssl.endpoint.identification.algorithm",
)
"""The properties of authentication and encryption, which both clients support."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_TLS_STORE: Final = "give the certificate authorities as a PEM file, ssl.ca.location, which both clients read"
_TLS_TEXT: Final = "give PEM files, ssl.ca.location, ssl.certificate.location and ssl.key.location"
_HINTS: Final[Mapping[str, str]] = {
    "sasl.jaas.config": "it is made from sasl.username and sasl.password-file",
    "sasl.mechanisms": "name one, sasl.mechanism",
    "ssl.truststore.location": _TLS_STORE,
    "ssl.truststore.type": _TLS_STORE,
    "ssl.truststore.password": _TLS_STORE,
    "ssl.keystore.type": "ssl.keystore.location is a PKCS#12 file; for PEM files give ssl.certificate.location and "
    "ssl.key.location",
    **dict.fromkeys(("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.key"), _TLS_TEXT),
    **dict.fromkeys(("ssl.keystore.certificate.chain", "ssl.truststore.certificates"), _TLS_TEXT),
    "bootstrap.servers": "it is an option of its own",
}
"""Properties that have another form here."""

RESERVED: Final = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "config.providers",
        "debug",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "interceptor.classes",
        "isolation.level",
        "key.deserializer",
        "key.serializer",
        "log.queue",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.max.bytes",
        "partition.assignment.strategy",
        "partitioner",
        "plugin.library.paths",
        "transaction.timeout.ms",
        "transactional.id",
        "value.deserializer",
        "value.serializer",
    }
)
"""Properties that the guarantees of tailrace depend on, or that load code."""

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9]+)+(-file)?|[a-z]+")


def is_file(name: str) -> bool:
    """Returns whether the value of a property names a file that a client reads."""
    return name.endswith((FILE_SUFFIX, ".location", ".keytab"))


def find_error(name: str, prefix: str = "") -> str | None:
    """Returns one line about a property that cannot be set, else None. `prefix` stands before names in the line."""
    shown, bare = f"{prefix}{name}", name.removesuffix(FILE_SUFFIX)
    if bare in _HINTS:
        return f"{shown} has another form: {_HINTS[bare]}"
    if name in RESERVED:
        return f"{shown} cannot be set: tailrace sets it itself"
    if _NAME.fullmatch(name) is None:
        return f"{shown} is no property of a Kafka client: they have names such as {prefix}security.protocol"
    if bare != name and not is_secret(bare):
        return f"{shown} names a file with a secret, but {bare} is none: set {prefix}{bare} to its value"
    if is_secret(name):
        return (
            f"{shown} is a secret, which others would see in configurations, process lists and logs: write it into a "
            f"file, and set {shown}{FILE_SUFFIX} to the path of the file"
        )
    return None


def find_errors(properties: Mapping[str, str], prefix: str = "") -> Iterator[str]:
    """Yields one line for each property that cannot be set, and for each contradiction."""
    for name in properties:
        if (error := find_error(name, prefix)) is not None:
            yield error
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        yield f"{prefix}security.protocol is {protocol!r}: it may be {', '.join(PROTOCOLS)}"
        return
    if protocol.startswith("SASL_"):
        yield from _find_incomplete_login(properties, prefix)
    else:
        yield from _find_useless(properties, "sasl.", f"{protocol}, without SASL: set SASL_SSL", prefix)
    if not protocol.endswith("SSL"):
        yield from _find_useless(properties, "ssl.", f"{protocol}, without TLS: set SASL_SSL or SSL", prefix)
    if (KEY_PAIR[0] in properties) != (KEY_PAIR[1] in properties):
        yield f"{prefix}{KEY_PAIR[0]} and {prefix}{KEY_PAIR[1]} belong together: set both or neither"
    if KEY_PAIR[0] in properties and "ssl.keystore.location" in properties:
        yield f"{prefix}{KEY_PAIR[0]} and {prefix}ssl.keystore.location name two certificates: set one of them"


_PASSWORD: Final = ("sasl.username", "sasl.password-file")
_LOGIN: Final[Mapping[str, tuple[str, ...]]] = {
    "PLAIN": _PASSWORD,
    "SCRAM-SHA-256": _PASSWORD,
    "SCRAM-SHA-512": _PASSWORD,
    "OAUTHBEARER": (
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret-file",
    ),
    "GSSAPI": ("sasl.kerberos.service.name",),
}
"""What each mechanism needs."""


def _find_useless(properties: Mapping[str, str], kind: str, why: str, prefix: str) -> Iterator[str]:
    """Yields one line if properties of a kind have no effect: a forgotten protocol sends everything unprotected."""
    found = next((name for name in properties if name.startswith(kind)), None)
    if found is not None:
        yield f"{prefix}{found} is set, but {prefix}security.protocol is {why}"


def _find_incomplete_login(properties: Mapping[str, str], prefix: str) -> Iterator[str]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _LOGIN:
        yield f"{prefix}sasl.mechanism is {mechanism!r}: it may be {', '.join(jaas.MECHANISMS)}"
        return
    missing = [f"{prefix}{name}" for name in _LOGIN[mechanism] if name not in properties]
    if missing:
        yield f"{prefix}sasl.mechanism {mechanism} needs {' and '.join(missing)}"
