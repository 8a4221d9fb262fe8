"""Over TLS a reader gets the same records, and no client that fails at the handshake delays the others."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from certificates import CertificateAuthority

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.infra.tls import ClientTls, ServerTls, TlsFiles
from tailrace.schemas.event import EVERYONE
from tailrace.services.configuration import Configuration
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.processes.relay import create_relay
from tailrace.services.relay.connection import RelayConnection, RelayLost

from .relayed import (
    ADDRESSES,
    CODEC,
    NAME,
    Log,
    event,
    expected,
    filter_of,
    poll_until,
    read_until,
    relayed,
    serve,
)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


def trusting(authority: CertificateAuthority) -> ClientTls:
    return ClientTls(TlsFiles(ca=str(authority.ca)))


def test_reader_gets_same_records_over_tls(authority: CertificateAuthority) -> None:
    """Large records take several TLS records; small ones share one."""
    log = Log()
    recipients = (*ADDRESSES, EVERYONE, "resource_manager")
    log.append(
        [event(recipient=recipient, size=size) for size in (1, 100_000) for recipient in recipients * 5]
    )
    tls = ServerTls(TlsFiles(certificate=str(authority.issue("relay"))))
    with serve(log, tls=tls) as server, socket.create_connection(_place(server.address)) as silent:
        silent.sendall(b"no handshake at all " * 10)
        reader = relayed(log, lambda: server.address, tls=trusting(authority))
        tail = reader.tail(0, concerns=filter_of(*ADDRESSES))
        source = reader._tail
        assert source is not None
        records = poll_until(tail, lambda: source.relay == server.address)
        log.append(
            [event(recipient=recipient, size=size) for size in (300_000, 1) for recipient in recipients * 5]
        )
        records += read_until(tail, log.end())
        tail.close()
    assert records == expected(log, ADDRESSES)


def test_reader_refuses_relay_without_trusted_certificate(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = CertificateAuthority(tmp_path / "other", "another authority")
    for certificate in (other.issue("relay"), authority.issue("relay", ["elsewhere.example"])):
        tls = ServerTls(TlsFiles(certificate=str(certificate)))
        with serve(Log(), tls=tls) as server, pytest.raises(RelayLost, match="certificate verify failed"):
            connect(server.address, trusting(authority))


def test_reader_without_tls_and_relay_without_tls_do_not_meet(authority: CertificateAuthority) -> None:
    tls = ServerTls(TlsFiles(certificate=str(authority.issue("relay"))))
    with serve(Log(), tls=tls) as server, pytest.raises(RelayLost, match=r"does not answer|has closed"):
        connect(server.address, None)
    with serve(Log()) as server, pytest.raises(RelayLost, match="can't be reached"):
        connect(server.address, trusting(authority))


@pytest.mark.parametrize(("has_secret", "reason"), [(False, "needs a secret"), (True, "needs TLS")])
def test_relay_is_as_secured_as_kafka(
    has_secret: bool, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of a cluster\n")
    options = {"kafka.security.protocol": "SSL", **({"blob.secret-file": str(secret)} if has_secret else {})}
    with contextlib.closing(KafkaEventLog(KafkaConnection("127.0.0.1:1"), "t.log", CODEC)) as log:
        assert create_relay(Configuration(options), log) is None
    assert reason in "".join(capfd.readouterr())


def connect(address: str, tls: ClientTls | None) -> None:
    RelayConnection(address, NAME, 0, ADDRESSES, secret=None, tls=tls, timeout_s=2.0).close()


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
