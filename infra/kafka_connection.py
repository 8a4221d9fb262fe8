"""How a process reaches a Kafka: its servers, and client properties by Kafka's names.

There is one spelling for users, which names files in PEM format and never a secret. `to_librdkafka` and `to_java`
translate it for the two clients (infra/kafka_properties.py has the table). A secret property is given as a file: the
value of `sasl.password` is the first line of the file that `sasl.password-file` names. So a KafkaConnection may be
printed, logged and sent to another process. The files are read when a client is created: a new client has the
present passwords, keys and certificates.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from . import jaas
from .file_versions import FileVersions, FileWatch, versions_of
from .kafka_properties import (
    FILE_SUFFIX,
    JAVA_ONLY,
    KEY_PAIR,
    LIBRDKAFKA_ONLY,
    SPELLINGS,
    find_errors,
    is_file,
)
from .kafka_statistics import INTERVAL_PROPERTY

READER_GROUP: Final = "tailrace-reader"
"""The group of consumers that assign their partitions and commit nothing: a consumer must name a group."""

_PROVIDER: Final = "org.apache.kafka.common.config.provider.FileConfigProvider"
_OIDC_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_PEM_TEXTS: Final = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_PKCS8: Final = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


class UnusableProperties(ValueError):
    """A file that the properties name cannot be read, or the properties contradict each other: one line."""


class KafkaConnection(msgspec.Struct, frozen=True):
    """The servers (host:port,...) and the client properties of one Kafka, for one principal."""

    bootstrap_servers: str
    properties: Mapping[str, str] = {}

    def errors(self, prefix: str = "") -> Iterator[str]:
        """Yields one line for each property that is not accepted; `prefix` stands before names in it."""
        return find_errors(self.properties, prefix)

    @property
    def is_encrypted(self) -> bool:
        """Whether the connections use TLS."""
        return self._protocol.endswith("SSL")

    @property
    def is_secured(self) -> bool:
        """Whether the connections use TLS or SASL, so that the broker may refuse some clients."""
        return self._protocol != "PLAINTEXT"

    @property
    def principal(self) -> str:
        """Returns the user that the broker sees, for messages: `User:name`, or what it is derived from."""
        if self._protocol.startswith("SASL_"):
            keys = ("sasl.username", "sasl.oauthbearer.client.id", "sasl.kerberos.principal")
            return f"User:{next((self.properties[key] for key in keys if key in self.properties), '?')}"
        certificate = self.properties.get("ssl.certificate.location") or self.properties.get(
            "ssl.keystore.location"
        )
        if self._protocol == "SSL" and certificate:
            return f"the subject of {certificate}"
        return "User:ANONYMOUS"

    def __str__(self) -> str:
        """Returns the servers, and the principal if the connection is secured: for messages."""
        if self._protocol == "PLAINTEXT":
            return self.bootstrap_servers
        return f"{self.bootstrap_servers} as {self.principal} ({self._protocol})"

    def to_librdkafka(self) -> dict[str, Any]:
        """Returns the configuration of a client of confluent_kafka, with the present secrets, and without statistics
        (infra/kafka_statistics.py).

        Raises UnusableProperties.
        """
        values = {
            SPELLINGS[name].librdkafka if name in SPELLINGS else name: value
            for name, value in self._read().items()
            if name not in JAVA_ONLY and name != INTERVAL_PROPERTY
        }
        if self._mechanism == "OAUTHBEARER":
            values.setdefault("sasl.oauthbearer.method", "oidc")
        return {"bootstrap.servers": self.bootstrap_servers, **values}

    def to_java(self) -> dict[str, str]:
        """Returns the configuration of a Java client, with the present secrets. Raises UnusableProperties."""
        values = self._read()
        found: dict[str, str] = {"bootstrap.servers": self.bootstrap_servers}
        for name, value in values.items():
            if name in LIBRDKAFKA_ONLY or name in KEY_PAIR:
                continue
            found[SPELLINGS[name].java if name in SPELLINGS else name] = value
        if "ssl.ca.location" in values:
            found["ssl.truststore.type"] = "PEM"
        if "ssl.keystore.location" in values:
            found["ssl.keystore.type"] = "PKCS12"
        if KEY_PAIR[0] in values:
            found["ssl.keystore.type"] = "PEM"
            found |= {java: self._pem(name) for name, java in _PEM_TEXTS.items()}
        if found.get("ssl.endpoint.identification.algorithm") == "none":
            found["ssl.endpoint.identification.algorithm"] = ""
        if self._mechanism:
            found["sasl.jaas.config"] = jaas.login_configuration(self._mechanism, values)
        if self._mechanism == "OAUTHBEARER":
            found.setdefault("sasl.login.callback.handler.class", _OIDC_HANDLER)
        return found

    def write_java_properties(self, path: Path) -> None:
        """Writes the configuration of a Java client atomically, readable for the owner only. Raises
        UnusableProperties."""
        lines = "".join(f"{name}={_escaped(value)}\n" for name, value in self.to_java().items())
        # mkstemp creates the file with mode 600.
        descriptor, fresh = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(lines)
            os.replace(fresh, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)
            raise

    def to_spark(self, path: Path) -> dict[str, str]:
        """Returns the options of Spark's Kafka source, and writes the secrets to a file at `path`.

        The options have references to the file, which Kafka's client resolves: Spark has no secret in a plan, a log
        or its user interface. Raises UnusableProperties.
        """
        java = self.to_java()
        if all(name not in java for name in jaas.SECRETS):
            return {f"kafka.{name}": value for name, value in java.items()}
        self.write_java_properties(path)
        for name in jaas.SECRETS & java.keys():
            java[name] = f"${{file:{path}:{name}}}"
        java |= {"config.providers": "file", "config.providers.file.class": _PROVIDER}
        return {f"kafka.{name}": value for name, value in java.items()}

    def jvm_options(self) -> list[str]:
        """Returns the options that a JVM needs for `to_java`: Kafka's Java client asks only listed token endpoints."""
        url = self.properties.get(_TOKEN_URL)
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"] if url else []

    def files(self) -> list[Path]:
        """Returns the files that a client is made from."""
        return [Path(path) for name, path in self.properties.items() if is_file(name)]

    def watch(self) -> FileWatch:
        """Returns a watch of these files: a client that lives long is replaced when one has changed."""
        return FileWatch(self.files(), self._is_usable)

    def _is_usable(self) -> bool:
        try:
            self._read()
        except UnusableProperties:
            return False
        return True

    def version(self) -> FileVersions:
        """Returns a value that changes when one of the files changes."""
        return versions_of(self.files())

    @property
    def _protocol(self) -> str:
        return self.properties.get("security.protocol", "PLAINTEXT").upper()

    @property
    def _mechanism(self) -> str:
        """The SASL mechanism; empty without SASL. Kafka's default is GSSAPI."""
        if not self._protocol.startswith("SASL_"):
            return ""
        return self.properties.get("sasl.mechanism", "GSSAPI").upper()

    def _read(self) -> dict[str, str]:
        """Returns the properties with the secrets."""
        return {
            name.removesuffix(FILE_SUFFIX): self._secret(name) if name.endswith(FILE_SUFFIX) else value
            for name, value in self.properties.items()
        }

    def _secret(self, name: str) -> str:
        lines = self._text(name).splitlines()
        if not lines or not lines[0].strip():
            path, secret = self.properties[name], name.removesuffix(FILE_SUFFIX)
            raise UnusableProperties(f"{name}: the first line of {path} is empty: write the {secret} into it")
        return lines[0]

    def _pem(self, name: str) -> str:
        text = self._text(name)
        if name == "ssl.key.location" and not any(head in text for head in _PKCS8):
            raise UnusableProperties(
                f"{name}: {self.properties[name]} has no key in PKCS#8, which Kafka's Java client needs: convert it by "
                "`openssl pkcs8 -topk8 -in KEY -out NEW_KEY`"
            )
        return text

    def _text(self, name: str) -> str:
        try:
            return Path(self.properties[name]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UnusableProperties(f"{name}: {self.properties[name]} can't be read: {reason}") from None


def _escaped(value: str) -> str:
    """Returns a value in the syntax of java.util.Properties."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if text.startswith(" "):
        text = f"\\{text}"
    units = text.encode("utf-16-be")
    points = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(point) if point < 127 else f"\\u{point:04x}" for point in points)
