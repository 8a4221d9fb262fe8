"""A connection that cannot work is refused at once, in one line that says why and what to do."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import CertificateAuthority
from secured_kafka import CERTIFICATES, EXPIRED, PLAIN_USER, SCRAM_ONLY, SecuredKafka

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_check import KafkaRefusal, KafkaUnreachable, check_connection
from tailrace.infra.kafka_connection import KafkaConnection

MOST_S = 8.0


@pytest.fixture(scope="module")
def alice(secured: SecuredKafka) -> KafkaConnection:
    return secured.add_user("alice")


@pytest.fixture(scope="module")
def closed_port() -> Iterator[str]:
    """Yields an address where nobody listens, and nobody else will."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def changed(connection: KafkaConnection, address: str = "", **properties: str | None) -> KafkaConnection:
    """Returns a connection with other properties, `_` for `.`; None removes one."""
    values = dict(connection.properties)
    for name, value in properties.items():
        key = name.replace("_", ".").replace(".file", "-file")
        values.pop(key, None)
        if value is not None:
            values[key] = value
    return KafkaConnection(address or connection.bootstrap_servers, values)


Change = Callable[[KafkaConnection, SecuredKafka, Path], KafkaConnection]
REFUSALS: dict[str, tuple[Change, str]] = {
    "wrong password": (
        lambda alice, _, path: changed(alice, sasl_password_file=written(path / "wrong", "wrong")),
        "refuses User:alice with SCRAM-SHA-512: is the password in {path}/wrong (sasl.password-file) right",
    ),
    "unknown user": (
        lambda alice, _, path: changed(alice, sasl_username="nobody"),
        "refuses User:nobody with SCRAM-SHA-512",
    ),
    "no password for this mechanism": (
        lambda alice, _, path: changed(alice, sasl_mechanism="SCRAM-SHA-256"),
        "has the user one for SCRAM-SHA-256?",
    ),
    "wrong mechanism": (
        lambda _, secured, path: secured.connection(
            PLAIN_USER, "PLAIN", secured.kafka.address_of(SCRAM_ONLY)
        ),
        "does not take the SASL mechanism PLAIN: set sasl.mechanism to one of SCRAM-SHA-",
    ),
    "expired certificate": (
        lambda alice, secured, path: changed(alice, secured.kafka.address_of(EXPIRED)),
        "is not accepted: certificate has expired: let the broker have a new one",
    ),
    "unknown authority": (
        lambda alice, _, path: changed(alice, ssl_ca_location=str(CertificateAuthority(path, "another").ca)),
        "is the authority that issued it in {path}/another.pem (ssl.ca.location)?",
    ),
    "other host name": (
        lambda alice, _, path: changed(alice, alice.bootstrap_servers.replace("127.0.0.1", "localhost")),
        "certificate is not valid for 'localhost'",
    ),
    "plaintext to TLS": (
        lambda alice, _, path: KafkaConnection(alice.bootstrap_servers),
        "takes only TLS, but security.protocol is PLAINTEXT: set it to SASL_SSL",
    ),
    "SASL without TLS to TLS": (
        lambda alice, _, path: changed(alice, security_protocol="SASL_PLAINTEXT", ssl_ca_location=None),
        "takes only TLS, but security.protocol is SASL_PLAINTEXT",
    ),
    "no login": (
        lambda alice, secured, path: KafkaConnection(
            alice.bootstrap_servers,
            {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority.ca)},
        ),
        "it wants a login (security.protocol SASL_SSL, sasl.mechanism)",
    ),
    "no certificate of the client": (
        lambda _, secured, path: KafkaConnection(
            secured.kafka.address_of(CERTIFICATES),
            {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority.ca)},
        ),
        "or a certificate (ssl.certificate.location)",
    ),
    "missing file of the authority": (
        lambda alice, _, path: changed(alice, ssl_ca_location=str(path / "nowhere.pem")),
        "{path}/nowhere.pem has no certificate authorities that can be read: No such file",
    ),
    "missing file of the password": (
        lambda alice, _, path: changed(alice, sasl_password_file=str(path / "nowhere")),
        "sasl.password-file: {path}/nowhere can't be read: No such file",
    ),
    "unknown property": (
        lambda alice, _, path: changed(alice, sasl_usrname="a"),
        'No such configuration property: "sasl.usrname"',
    ),
}


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal_comes_at_once_and_says_why(
    case: str, alice: KafkaConnection, secured: SecuredKafka, tmp_path: Path
) -> None:
    change, line = REFUSALS[case]
    start = time.monotonic()
    with pytest.raises(KafkaRefusal) as refused:
        check_connection(change(alice, secured, tmp_path))
    assert line.format(path=tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - start < MOST_S


def test_tls_to_plain_port_is_refused(alice: KafkaConnection, kafka: EmbeddedKafka) -> None:
    with pytest.raises(KafkaRefusal, match="does not speak TLS: is the port right"):
        check_connection(changed(alice, kafka.bootstrap_servers))


def test_unreachable_kafka_may_come_back(alice: KafkaConnection, closed_port: str) -> None:
    with pytest.raises(KafkaUnreachable, match=f"nobody answers at {closed_port}"):
        check_connection(changed(alice, closed_port))


@pytest.mark.parametrize("password", [None, "hidden"])
def test_client_is_known_by_its_certificate(
    password: str | None, secured: SecuredKafka, tmp_path: Path
) -> None:
    certificate = str(secured.authority.issue("carol", password=password))
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.ca),
        "ssl.certificate.location": certificate,
        "ssl.key.location": certificate,
    }
    if password is not None:
        properties["ssl.key.password-file"] = written(tmp_path / "key-password", f"{password}\n")
    check_connection(KafkaConnection(secured.kafka.address_of(CERTIFICATES), properties))


def test_right_connections_are_accepted(
    alice: KafkaConnection, secured: SecuredKafka, kafka: EmbeddedKafka
) -> None:
    for connection in (
        alice,
        secured.kafka.connection,
        secured.connection(PLAIN_USER, "PLAIN"),
        kafka.connection,
    ):
        check_connection(connection)
