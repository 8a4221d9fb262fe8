"""A BlobServer with a secret serves clients that know it, clients trust only servers that know it, and nobody sends
it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from services.blobs.raw_protocol import RawConnection, files_below

from tailrace.services.blobs.cache import BlobCache
from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobRefused, BlobUnavailable
from tailrace.services.blobs.garbage_collector import create_server
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.protocol import Channel, Hello, Proof, Status, Timeouts
from tailrace.services.blobs.server import BlobServer
from tailrace.services.blobs.shared_secret_auth import NONCE, SharedSecret, Side, random_nonce
from tailrace.services.configuration import Configuration, ConfigurationError

SECRET, OTHER = SharedSecret(b"correct horse battery"), SharedSecret(b"staple staple staple")
BYTES = st.binary(max_size=2 * NONCE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BlobServer]:
    with BlobServer(tmp_path / "server", secret=SECRET) as running:
        yield running


def send_frame(wire: RawConnection, message: Hello | Proof) -> None:
    wire.frame(msgspec.msgpack.encode(message))


def test_client_with_secret_is_served(server: BlobServer, tmp_path: Path) -> None:
    with BlobClient(server.address, secret=SECRET) as client:
        key = client.put(b"content", "job")
        assert client.get_bytes(key) == b"content"
    cache = BlobCache(tmp_path / "cache", lambda: server.address, secret=SECRET)
    assert cache.file(key).read_bytes() == b"content"


def test_client_with_wrong_or_no_secret_learns_which_option_to_set(
    server: BlobServer, tmp_path: Path
) -> None:
    with pytest.raises(BlobRefused, match=r"serves only clients that know its secret: set blob\.secret-file"):
        BlobClient(server.address, secret=OTHER)
    with BlobClient(server.address) as client, pytest.raises(BlobRefused, match=r"set blob\.secret-file"):
        client.put(b"content", "job")
    assert files_below(tmp_path / "server") == []


def test_server_without_secret_says_so(tmp_path: Path) -> None:
    with BlobServer(tmp_path / "server") as server:
        with pytest.raises(BlobRefused, match=r"has no secret: set blob\.secret-file for its jobmanager"):
            BlobClient(server.address, secret=SECRET)


def test_recorded_proof_cannot_be_replayed(server: BlobServer) -> None:
    with RawConnection(server.address) as wire:
        send_frame(wire, Hello())
        challenge = wire.answer().challenge
        nonce = random_nonce()
        proof = Proof(nonce, SECRET.proof(Side.CLIENT, challenge, nonce))
        send_frame(wire, proof)
        assert wire.answer().status is Status.OK
    with RawConnection(server.address) as wire:
        send_frame(wire, Hello())
        assert wire.answer().challenge != challenge
        send_frame(wire, proof)
        assert wire.answer().status is Status.REFUSED
        assert wire.is_over()


def test_nothing_is_done_before_authentication(server: BlobServer, tmp_path: Path) -> None:
    with BlobClient(server.address, secret=SECRET) as client:
        key = client.put(b"content", "job")
    for introduced in (False, True):
        with RawConnection(server.address) as wire:
            if introduced:
                send_frame(wire, Hello())
                assert wire.answer().status is Status.PROVE
            wire.get(str(key))
            answer = wire.answer()
            assert (answer.status, answer.size, answer.proof) == (Status.REFUSED, 0, b"")
            assert wire.is_over()


@pytest.mark.parametrize("echoed", [True, False])
def test_server_that_does_not_know_secret_is_not_trusted(echoed: bool) -> None:
    """Also a server that echoes the client's proof."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            channel = Channel(connection, Timeouts())
            channel.receive()
            channel.send(_answer(Status.PROVE, challenge=bytes(NONCE)))
            proof = msgspec.msgpack.decode(channel.receive() or b"", type=Proof)
            channel.send(_answer(Status.OK, proof=proof.proof if echoed else b""))
            channel.receive()
            channel.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(BlobRefused, match="does not know the secret"):
            BlobClient(address, secret=SECRET)
        thread.join(60)
        assert not thread.is_alive()


def _answer(status: Status, **more: bytes) -> msgspec.Struct:
    from tailrace.services.blobs.protocol import Answer

    return Answer(status, **more)  # type: ignore[arg-type]


@given(BYTES, BYTES, BYTES)
def test_no_other_bytes_are_accepted_as_proof(proof: bytes, challenge: bytes, nonce: bytes) -> None:
    assert not SECRET.is_valid_proof(proof, Side.CLIENT, challenge, nonce)
    assert not SECRET.is_valid_proof(
        OTHER.proof(Side.CLIENT, challenge, nonce), Side.CLIENT, challenge, nonce
    )
    assert not SECRET.is_valid_proof(
        SECRET.proof(Side.SERVER, challenge, nonce), Side.CLIENT, challenge, nonce
    )


def test_secret_is_read_from_file_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    configuration = Configuration({"home": str(tmp_path), "blob.secret-file": str(file)})
    with pytest.raises(ConfigurationError, match=r"blob\.secret-file: .* can't be read"):
        SharedSecret.from_configuration(configuration)
    file.write_text("too short\n")
    with pytest.raises(ConfigurationError, match="has 9 bytes, but a secret has at least 16"):
        create_server(configuration)
    file.write_text("0123456789abcdef\nwhat follows is not read\n")
    secret = SharedSecret.from_configuration(configuration)
    assert secret is not None
    assert "0123" not in repr(secret)
    with create_server(configuration) as server, BlobClient(server.address, secret=secret) as client:
        assert client.put(b"content", "job") == BlobKey(compute_digest(b"content"), "job")
    assert SharedSecret.from_configuration(configuration.replace({"blob.secret-file": "none"})) is None


def test_cache_without_secret_reports_why_it_has_no_blob(server: BlobServer, tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", lambda: server.address, retries=0)
    with pytest.raises(BlobUnavailable, match=r"set blob\.secret-file"):
        cache.file(BlobKey(compute_digest(b"content"), "job"))
