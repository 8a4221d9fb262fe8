"""Client properties reach librdkafka and Java in their own spelling; secrets stay in files."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from tailrace.infra import jaas
from tailrace.infra.kafka_connection import KafkaConnection, UnusableProperties, _escaped
from tailrace.infra.kafka_properties import FILE_SUFFIX, RESERVED, SECURITY, find_error, is_file
from tailrace.infra.redaction import is_secret

KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text('s3cret-\\"q\n')
    return path


def scram(password: Path) -> KafkaConnection:
    return KafkaConnection("host:1", {**SCRAM, "sasl.password-file": str(password)})


def test_plain_connection_has_servers_only() -> None:
    plain = KafkaConnection("host:1")
    assert list(plain.errors()) == []
    assert plain.to_librdkafka() == plain.to_java() == {"bootstrap.servers": "host:1"}


def test_password_reaches_both_clients_from_file(password: Path) -> None:
    connection = scram(password)
    assert list(connection.errors()) == []
    assert connection.to_librdkafka()["sasl.password"] == 's3cret-\\"q'
    assert connection.to_java()["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="s3cret-\\\\\\"q";'
    )
    assert "sasl.username" not in connection.to_java()


def test_connection_holds_no_secret(password: Path) -> None:
    connection = scram(password)
    connection.to_librdkafka()
    assert "s3cret" not in f"{connection!r} {connection} {msgspec.json.encode(connection)!r}"


def test_spark_options_hold_no_secret(password: Path, tmp_path: Path) -> None:
    path = tmp_path / "spark.properties"
    options = scram(password).to_spark(path)
    assert "s3cret" not in repr(options)
    assert options["kafka.sasl.jaas.config"] == f"${{file:{path}:sasl.jaas.config}}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "s3cret" in path.read_text()


def test_new_password_is_read_by_next_client(password: Path) -> None:
    connection = scram(password)
    before = connection.version()
    password.write_text("another, longer\n")
    assert connection.version() != before
    assert connection.to_librdkafka()["sasl.password"] == "another, longer"


@pytest.mark.parametrize("mechanism", jaas.MECHANISMS)
def test_every_security_property_reaches_both_clients(mechanism: str, tmp_path: Path) -> None:
    values = {name: f"a={name}" for name in SECURITY}
    for name in filter(is_file, SECURITY):
        path = tmp_path / name
        path.write_text(f"a={name}\n{KEY}")
        values[name] = str(path)
    values |= {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    connection = KafkaConnection("host:1", values)
    librdkafka, java = connection.to_librdkafka(), connection.to_java()
    others = [jaas.login_configuration(other, librdkafka) for other in jaas.MECHANISMS]
    for name, value in values.items():
        own = name.removesuffix(FILE_SUFFIX)
        assert librdkafka[own] == (value if own == name else f"a={name}")
        assert any(
            part in text for text in [*java.values(), *others] for part in (value, f"a={name}", f'"{name}"')
        ), name


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_librdkafka_knows_every_security_property(mechanism: str, password: Path) -> None:
    values = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password-file": str(password),
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret-file": str(password),
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "a=b",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": "me",
        "sasl.kerberos.keytab": "/nowhere",
        "ssl.key.password-file": str(password),
        "ssl.keystore.password-file": str(password),
        "ssl.endpoint.identification.algorithm": "https",
    }
    files = {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"}
    assert values.keys() | files | {"https.ca.location"} == set(SECURITY)
    connection = KafkaConnection("127.0.0.1:1", values)
    assert list(connection.errors()) == []
    AdminClient({**connection.to_librdkafka(), "log_level": 0})


@given(st.dictionaries(st.sampled_from(["sasl.username", "sasl.password"]), TEXTS, min_size=1))
def test_login_configuration_can_be_read_back(properties: dict[str, str]) -> None:
    text = jaas.login_configuration("PLAIN", properties)
    values, position = [], 0
    while (position := text.find('"', position)) >= 0:
        value, position = "", position + 1
        while text[position] != '"':
            position += text[position] == "\\"
            value, position = value + text[position], position + 1
        values.append(value)
        position += 1
    assert sorted(values) == sorted(properties.values())


@given(st.text(max_size=30).filter(lambda text: text.isprintable()))
def test_java_properties_can_be_read_back(value: str) -> None:
    escaped = _escaped(value)
    assert escaped.isascii()
    assert not escaped.startswith(" ")
    as_python = escaped.removeprefix("\\") if escaped.startswith("\\ ") else escaped
    assert (
        as_python.encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")
        == value
    )


@pytest.mark.parametrize(
    "name", [*sorted(RESERVED), "sasl.password", "ssl.key.password", "sasl.jaas.config", "Group.id", "a b"]
)
def test_property_that_cannot_be_set_is_named(name: str) -> None:
    assert name in (find_error(name) or "")


def test_secret_is_refused_with_option_to_use() -> None:
    assert "kafka.sasl.password-file" in (find_error("sasl.password", "kafka.") or "")
    assert is_secret("sasl.oauthbearer.client.secret")
    assert not is_secret("sasl.oauthbearer.token.endpoint.url")


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS': it may be"),
        ({"sasl.username": "a"}, "sasl.username is set, but security.protocol is PLAINTEXT, without SASL"),
        (
            {"ssl.ca.location": "/a"},
            "ssl.ca.location is set, but security.protocol is PLAINTEXT, without TLS",
        ),
        (SCRAM, "sasl.mechanism SCRAM-SHA-512 needs sasl.password-file"),
        ({**SCRAM, "sasl.mechanism": "SCRAM"}, "sasl.mechanism is 'SCRAM': it may be PLAIN"),
        ({"security.protocol": "SSL", "ssl.key.location": "/a"}, "belong together"),
        ({"ssl.truststore.location": "/a"}, "ssl.ca.location"),
    ],
)
def test_contradictions_are_named(properties: dict[str, str], line: str) -> None:
    assert any(line in error for error in KafkaConnection("host:1", properties).errors())


@pytest.mark.parametrize("content", [None, "", "\nsecond line"])
def test_unusable_password_file_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UnusableProperties, match=str(path)):
        scram(path).to_librdkafka()


def test_key_that_java_cannot_read_is_named(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    properties = {"ssl.certificate.location": str(key), "ssl.key.location": str(key)}
    with pytest.raises(UnusableProperties, match="openssl pkcs8 -topk8"):
        KafkaConnection("host:1", properties).to_java()


def test_java_client_may_ask_token_endpoint(password: Path) -> None:
    url = "https://login.example/token"
    connection = KafkaConnection(
        "host:1",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret-file": str(password),
            "https.ca.location": "/ca.pem",
        },
    )
    assert list(connection.errors()) == []
    assert connection.jvm_options() == [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"]
    assert connection.to_librdkafka()["sasl.oauthbearer.method"] == "oidc"
    java = connection.to_java()
    assert java["sasl.oauthbearer.token.endpoint.url"] == url
    assert 'ssl.truststore.location="/ca.pem"' in java["sasl.jaas.config"]
