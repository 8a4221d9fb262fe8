"""With TLS blobs arrive unchanged, and clients trust only certificates of their authority, for the right host."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import CertificateAuthority

from tailrace.infra.tls import ClientTls, ServerTls, TlsFiles
from tailrace.services.blobs.cache import BlobCache
from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobUnavailable
from tailrace.services.blobs.protocol import CHUNK, Timeouts
from tailrace.services.blobs.server import BlobServer, ServerLimits
from tailrace.services.blobs.shared_secret_auth import SharedSecret
from tailrace.services.blobs.tls import client_tls, server_tls
from tailrace.services.configuration import Configuration, ConfigurationError

SECRET = SharedSecret(b"correct horse battery")


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@pytest.fixture
def certificate(authority: CertificateAuthority) -> Path:
    return authority.issue("blobs")


@pytest.fixture
def server(certificate: Path, tmp_path: Path) -> Iterator[BlobServer]:
    limits = ServerLimits(pace=Timeouts(idle=5.0))
    tls = ServerTls(TlsFiles(certificate=str(certificate)))
    with BlobServer(tmp_path / "server", limits=limits, secret=SECRET, tls=tls) as running:
        yield running


def trusting(authority: CertificateAuthority) -> ClientTls:
    return ClientTls(TlsFiles(ca=str(authority.ca)))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 1])
def test_blob_is_the_same_after_transfer(
    size: int, server: BlobServer, authority: CertificateAuthority, tmp_path: Path
) -> None:
    content = os.urandom(size)
    file = tmp_path / "file"
    file.write_bytes(content)
    with BlobClient(server.address, secret=SECRET, tls=trusting(authority)) as client:
        assert client.get_bytes(client.put(content, "a")) == content
        key = client.put_file(file, "b")
    cache = BlobCache(tmp_path / "cache", lambda: server.address, secret=SECRET, tls=trusting(authority))
    assert cache.file(key).read_bytes() == content


def test_client_refuses_server_of_other_authority(server: BlobServer, tmp_path: Path) -> None:
    other = trusting(CertificateAuthority(tmp_path, "other"))
    with pytest.raises(BlobUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        BlobClient(server.address, secret=SECRET, tls=other)


def test_client_refuses_certificate_of_other_host(
    server: BlobServer, authority: CertificateAuthority
) -> None:
    address = server.address.replace("127.0.0.1", "localhost")
    with pytest.raises(BlobUnavailable, match="certificate is not valid for 'localhost'"):
        BlobClient(address, secret=SECRET, tls=trusting(authority))


def test_client_without_tls_is_not_served(server: BlobServer) -> None:
    with pytest.raises(BlobUnavailable):
        BlobClient(server.address, pace=Timeouts(answer=2.0), secret=SECRET)


def test_silent_client_does_not_delay_others(server: BlobServer, authority: CertificateAuthority) -> None:
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port))):
        with BlobClient(server.address, secret=SECRET, tls=trusting(authority)) as client:
            client.put(b"content", "job")


def test_replaced_certificate_is_used_by_next_connection(
    server: BlobServer, certificate: Path, authority: CertificateAuthority, tmp_path: Path
) -> None:
    following = CertificateAuthority(tmp_path, "following")
    with BlobClient(server.address, secret=SECRET, tls=trusting(authority)) as before:
        following.issue("blobs").replace(certificate)
        with BlobClient(server.address, secret=SECRET, tls=trusting(following)) as after:
            key = after.put(b"content", "job")
        assert before.get_bytes(key) == b"content"


def test_encrypted_key_needs_its_password(authority: CertificateAuthority, tmp_path: Path) -> None:
    certificate, password = authority.issue("blobs", password="hidden"), tmp_path / "password"
    password.write_text("hidden\n")
    options = {"blob.server.ssl.enabled": "true", "blob.server.ssl.certificate": str(certificate)}
    assert server_tls(Configuration({**options, "blob.server.ssl.key-password-file": str(password)}))
    with pytest.raises(ConfigurationError, match="is the key encrypted"):
        server_tls(Configuration(options))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "names no certificate for the server"),
        (
            {"certificate": "/nowhere.pem"},
            "blob.server.ssl.certificate: .*/nowhere.pem can't be used: No such file",
        ),
    ],
)
def test_unusable_files_are_named(options: dict[str, str], line: str) -> None:
    texts = {f"blob.server.ssl.{name}": value for name, value in options.items()}
    with pytest.raises(ConfigurationError, match=line):
        server_tls(Configuration({"blob.server.ssl.enabled": "true", **texts}))
    with pytest.raises(ConfigurationError, match="has no certificate authorities that can be read"):
        client_tls(Configuration({"blob.server.ssl.enabled": "true", "blob.server.ssl.ca": "/nowhere.pem"}))
    assert server_tls(Configuration()) is None
    assert client_tls(Configuration()) is None
