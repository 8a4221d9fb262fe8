"""The HTTP server on a real socket: TLS, certificates of clients, too many and too slow connections."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import CertificateAuthority
from polling import wait_until

from tailrace.infra.tls import ServerTls, client_context
from tailrace.services.configuration import Configuration, ConfigurationError
from tailrace.services.rest import application, server
from tailrace.services.rest.application import Settings
from tailrace.services.rest.authenticator import Authenticator
from tailrace.services.rest.server import HttpServer
from tailrace.services.rest.tls import create_tls

from .test_application import client

HOST = "127.0.0.1"


@contextlib.contextmanager
def serving(
    settings: Settings | None = None, tls: ServerTls | None = None, max_connections: int = 256
) -> Iterator[int]:
    """Yields the port of a server."""
    with socket.create_server((HOST, 0)) as listening:
        with HttpServer(client(settings).app, listening, max_connections, tls):
            yield listening.getsockname()[1]


def get(
    port: int, context: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Returns status, body and headers of GET /config on a new connection."""
    connection = (
        http.client.HTTPConnection(HOST, port, timeout=90)
        if context is None
        else http.client.HTTPSConnection(HOST, port, timeout=90, context=context)
    )
    with contextlib.closing(connection):
        connection.request("GET", "/config", headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


def options(certificate: Path, **more: str | Path) -> Configuration:
    """`more`: other options; those without a dot belong to TLS."""
    texts = {
        name if "." in name else f"security.ssl.rest.{name.replace('_', '-')}": str(value)
        for name, value in {"enabled": "true", "certificate": certificate, **more}.items()
    }
    return Configuration(texts)


def mutual(authority: CertificateAuthority, **more: str | Path) -> Configuration:
    return options(authority.issue("server"), authentication_enabled="true", ca=authority.ca, **more)


def test_client_of_authority_is_served_with_tls_1_2_and_later(authority: CertificateAuthority) -> None:
    with serving(tls=create_tls(options(authority.issue("server")))) as port:
        trusting = client_context(str(authority.ca))
        assert get(port, trusting)[0] == 200
        trusting.maximum_version = ssl.TLSVersion.TLSv1_2
        assert get(port, trusting)[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            get(port)


def test_replaced_certificate_is_used_by_next_connection(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    """One that can't be used is not: the earlier one stays in use."""
    served = tmp_path / "served.pem"
    served.write_bytes(authority.issue("server").read_bytes())
    trusting = client_context(str(authority.ca))

    def serial(port: int) -> int:
        with socket.create_connection((HOST, port), timeout=90) as plain:
            with trusting.wrap_socket(plain, server_hostname=HOST) as secured:
                return int(str(secured.getpeercert()["serialNumber"]), 16)

    def replace(content: bytes) -> None:
        (tmp_path / "new.pem").write_bytes(content)
        os.replace(tmp_path / "new.pem", served)

    with serving(tls=create_tls(options(served))) as port:
        first = serial(port)
        replace(b"half of a certificate")
        assert serial(port) == first
        replace(authority.issue("server").read_bytes())
        assert serial(port) != first


def test_client_without_certificate_gets_no_answer(authority: CertificateAuthority, tmp_path: Path) -> None:
    configuration = mutual(authority)
    stranger = CertificateAuthority(tmp_path, "stranger").issue("gateway")
    with serving(Settings(Authenticator(configuration)), create_tls(configuration)) as port:
        for certificate in (None, str(stranger)):
            with pytest.raises((OSError, http.client.HTTPException)):
                get(port, client_context(str(authority.ca), certificate=certificate))
        known = client_context(str(authority.ca), certificate=str(authority.issue("gateway")))
        assert get(port, known)[0] == 200
        assert get(port, known, Authorization="Bearer wrong")[0] == 401


def test_subject_of_certificate_is_principal(authority: CertificateAuthority, tmp_path: Path) -> None:
    principals = tmp_path / "principals"
    principals.write_text("gateway reader certificate:CN=gateway\n")
    configuration = mutual(authority, **{"rest.principals-file": str(principals)})
    with serving(Settings(Authenticator(configuration)), create_tls(configuration)) as port:
        for name, status in (("gateway", 200), ("somebody", 401)):
            context = client_context(str(authority.ca), certificate=str(authority.issue(name)))
            assert get(port, context)[0] == status
    principals.write_text("all operator certificate:*\n")
    with serving(Settings(Authenticator(configuration)), create_tls(configuration)) as port:
        context = client_context(str(authority.ca), certificate=str(authority.issue("somebody")))
        assert get(port, context)[0] == 200


@pytest.mark.parametrize("kind", ["missing", "mismatched", "expired", "encrypted", "no certificate", "no ca"])
def test_unusable_file_is_refused_in_one_line(
    kind: str, authority: CertificateAuthority, tmp_path: Path
) -> None:
    good = authority.issue("server")
    wanted = {
        "missing": (options(tmp_path / "nowhere.pem"), "nowhere.pem can't be used: No such file"),
        "mismatched": (options(good, key=authority.issue("other")), "the key is not that of the certificate"),
        "expired": (
            options(authority.issue("old", valid_for=-datetime.timedelta(days=1))),
            r"old-\w+.pem is valid from \d{4}-\d\d-\d\d \d\d:\d\d to ",
        ),
        "encrypted": (options(authority.issue("locked", password="secret")), "is the key encrypted"),
        "no certificate": (
            Configuration({"security.ssl.rest.enabled": "true"}),
            "security.ssl.rest.certificate names no certificate",
        ),
        "no ca": (options(good, authentication_enabled="true"), "security.ssl.rest.ca names no authorities"),
    }
    configuration, line = wanted[kind]
    with pytest.raises(ConfigurationError, match=line) as error:
        create_tls(configuration)
    assert "\n" not in str(error.value)


def test_mutual_tls_without_tls_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"security.ssl.rest.enabled is not"):
        create_tls(Configuration({"security.ssl.rest.authentication-enabled": "true"}))


def test_connection_above_limit_is_told_so_in_json() -> None:
    with serving(max_connections=2) as port, contextlib.ExitStack() as open_:
        for _ in range(2):
            open_.enter_context(socket.create_connection((HOST, port), timeout=90)).sendall(b"GET ")

        def is_refused() -> bool:
            status, body, headers = get(port)
            assert (status, headers["Retry-After"]) in ((200, None), (503, "1"))
            return status == 503 and "rest.max-connections" in body["errors"][0]

        wait_until(is_refused, "the two connections to count")
        open_.close()
        wait_until(lambda: get(port)[0] == 200, "a connection to be free")


@pytest.mark.parametrize(
    "start", [b"", b"GET /config HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"GET /config HTTP/1.1\r\n"]
)
def test_slow_headers_do_not_hold_connection(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a byte arrives from time to time."""
    monkeypatch.setattr(server, "_HEADER_TIMEOUT_S", 0.5)
    with serving() as port, socket.create_connection((HOST, port), timeout=90) as slow:
        slow.sendall(start)
        slow.settimeout(0.1)

        def is_closed() -> bool:
            try:
                slow.sendall(b"a")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(is_closed, "the server to close the connection")
        assert get(port)[0] == 200


def test_slow_body_is_answered_and_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_BODY_TIMEOUT_S", 0.5)
    with serving() as port, socket.create_connection((HOST, port), timeout=90) as slow:
        path = f"/jobs/{'0' * 32}/stop"
        slow.sendall(f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 100\r\n\r\n{{".encode())
        answer = b""
        while chunk := slow.recv(4096):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"errors"' in answer


def test_garbage_is_answered_and_next_request_served() -> None:
    with serving() as port:
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\0" * 100_000,
            b"A" * 100_000,
        ):
            with socket.create_connection((HOST, port), timeout=90) as sender, contextlib.suppress(OSError):
                sender.sendall(garbage + b"\r\n\r\n")
                sender.recv(100)
        assert get(port)[0] == 200
