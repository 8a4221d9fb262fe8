"""A BlobServer over real sockets: it serves what was uploaded, and a failed upload leaves nothing."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from polling import wait_until
from services.blobs.conftest import LARGEST, QUICK, StartServer
from services.blobs.raw_protocol import RawConnection, files_below

from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobNotFound, BlobRefused, BlobUnavailable
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.protocol import CHUNK, Get, Put, Status


def _content(size: int) -> bytes:
    return os.urandom(size)


@pytest.mark.parametrize("size", [0, 1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, LARGEST])
def test_uploaded_content_is_served(start: StartServer, size: int) -> None:
    server, content = start(), _content(size)
    with BlobClient(server.address) as client:
        key = client.put(content, "job-1")
        assert key == BlobKey(compute_digest(content), "job-1")
        assert client.get_bytes(key) == content


def test_file_upload_equals_upload_of_bytes(start: StartServer, tmp_path: Path) -> None:
    server, content = start(), _content(2 * CHUNK + 5)
    (tmp_path / "file").write_bytes(content)
    with BlobClient(server.address) as client:
        key = client.put_file(tmp_path / "file", "job")
        assert client.get_bytes(key) == content
        assert client.put(content, "job") == key
    assert files_below(server.depot.files.directory) == [f"job_job/blob_p-{key.digest}"]


def test_unknown_blob_is_not_found_and_connection_continues(start: StartServer) -> None:
    with BlobClient(start().address) as client:
        with pytest.raises(BlobNotFound, match="never uploaded"):
            client.get_bytes(BlobKey("a" * 64, "job"))
        key = client.put(b"content", "job")
        assert client.get_bytes(key) == b"content"


def test_jobs_do_not_see_blobs_of_other_jobs(start: StartServer) -> None:
    with BlobClient(start().address) as client:
        key = client.put(b"content", "mine")
        with pytest.raises(BlobNotFound):
            client.get_bytes(BlobKey(key.digest, "yours"))


def test_deletion_of_job_deletes_all_its_blobs(start: StartServer) -> None:
    server = start()
    with BlobClient(server.address) as client:
        keies = [client.put(b"one", "over"), client.put(b"two", "over")]
        blob_key = client.put(b"one", "other")
        server.depot.delete_job("over")
        for key in keies:
            with pytest.raises(BlobNotFound):
                client.get_bytes(key)
        assert client.get_bytes(blob_key) == b"one"
    server.depot.delete_job("never was")


def test_oversized_upload_is_rejected_before_it_is_sent(start: StartServer) -> None:
    server = start()
    with BlobClient(server.address) as client:
        with pytest.raises(BlobRefused, match=r"more than .* blob\.size\.max"):
            client.put(_content(LARGEST + 1), "job")
        assert client.get_bytes(client.put(b"small", "job")) == b"small"
    assert len(files_below(server.depot.files.directory)) == 1


def test_truncated_upload_leaves_nothing(start: StartServer) -> None:
    server = start()
    with RawConnection(server.address) as wire:
        wire.put(b"x" * 1000)
        assert wire.answer().status is Status.SEND
        wire.frame(b"x" * 500)
    wait_until(lambda: files_below(server.depot.files.directory) == [], "the upload is forgotten")


def test_upload_that_ends_early_is_rejected(start: StartServer) -> None:
    server = start()
    with RawConnection(server.address) as wire:
        wire.put(b"x" * 1000)
        assert wire.answer().status is Status.SEND
        wire.frame(b"x" * 500)
        wire.frame(b"")
        answer = wire.answer()
        assert answer.status is Status.REFUSED
        assert "500" in answer.reason
        assert wire.is_over()
    assert files_below(server.depot.files.directory) == []


@pytest.mark.parametrize("pieces", [[1001], [1000, 1], [500, 501], [CHUNK + 1]])
def test_oversized_upload_is_rejected_and_leaves_nothing(start: StartServer, pieces: list[int]) -> None:
    server = start()
    with RawConnection(server.address) as wire:
        wire.put(b"x" * 1000)
        assert wire.answer().status is Status.SEND
        for size in pieces:
            wire.frame(b"x" * size)
        wire.frame(b"")
        answer = wire.answer()
        assert answer.status is Status.REFUSED
        assert "1,000" in answer.reason
    assert files_below(server.depot.files.directory) == []


def test_upload_with_wrong_digest_is_rejected_and_leaves_nothing(start: StartServer) -> None:
    server = start()
    with RawConnection(server.address) as wire:
        wire.put(b"content", digest="a" * 64)
        assert wire.answer().status is Status.SEND
        wire.frame(b"content")
        wire.frame(b"")
        answer = wire.answer()
        assert answer.status is Status.REFUSED
        assert compute_digest(b"content") in answer.reason
    assert files_below(server.depot.files.directory) == []
    with BlobClient(server.address) as client, pytest.raises(BlobNotFound):
        client.get_bytes(BlobKey("a" * 64, "job"))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\xff" * 100,
        msgspec.msgpack.encode({"type": "EXEC", "key": f"permanent/{'a' * 64}"}),
        msgspec.msgpack.encode(Get("permanent/../../etc/passwd")),
        msgspec.msgpack.encode(Put(f"permanent/{'a' * 64}", -1)),
    ],
)
def test_invalid_request_is_rejected_in_one_line(start: StartServer, request_bytes: bytes) -> None:
    server = start()
    with RawConnection(server.address) as wire:
        wire.frame(request_bytes)
        answer = wire.answer()
        assert answer.status is Status.REFUSED
        assert "\n" not in answer.reason
        assert wire.is_over()
    assert files_below(server.depot.files.directory) == []


def test_other_protocol_is_rejected(start: StartServer) -> None:
    with RawConnection(start().address) as wire:
        wire.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = wire.answer()
        assert answer.status is Status.REFUSED


def test_idle_connection_is_closed(start: StartServer) -> None:
    with RawConnection(start(pace=QUICK).address) as wire:
        assert wire.is_over()


def test_slow_request_times_out(start: StartServer) -> None:
    """A slow loris: each byte comes in time, the request does not."""
    server = start(pace=QUICK)
    with RawConnection(server.address) as wire:
        stopped = threading.Event()

        def trickle() -> None:
            while not stopped.wait(0.05):
                try:
                    wire.socket.sendall(b"\0")
                except OSError:
                    return

        wire.socket.sendall(b"\0\0\x10\0")
        slowly = threading.Thread(target=trickle)
        slowly.start()
        try:
            assert wire.is_over()
        finally:
            stopped.set()
            slowly.join()


def test_slow_upload_times_out_and_leaves_nothing(start: StartServer) -> None:
    server = start(pace=QUICK)
    with RawConnection(server.address) as wire:
        wire.put(b"x" * 1000)
        assert wire.answer().status is Status.SEND
        stopped = threading.Event()

        def trickle() -> None:
            while not stopped.wait(0.05):
                try:
                    wire.frame(b"x")
                except OSError:
                    return

        slowly = threading.Thread(target=trickle)
        slowly.start()
        try:
            assert wire.is_over()
        finally:
            stopped.set()
            slowly.join()
    wait_until(lambda: files_below(server.depot.files.directory) == [], "the upload is forgotten")


def test_connection_of_client_that_does_not_read_times_out(start: StartServer) -> None:
    server = start(pace=QUICK)
    with BlobClient(server.address) as client:
        key = client.put(_content(LARGEST), "job")
    with RawConnection(server.address) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.get(str(key))
        wait_until(lambda: not server._active, "the connection is given up")


def test_idle_connections_are_closed_in_favour_of_new_ones(start: StartServer) -> None:
    server = start(connections=2)
    with RawConnection(server.address), RawConnection(server.address), BlobClient(server.address) as client:
        assert client.get_bytes(client.put(b"content", "job")) == b"content"


def test_two_hundred_concurrent_connections_are_served(start: StartServer) -> None:
    server = start(connections=50)
    contents = [_content(20_000 + number) for number in range(20)]
    together = threading.Barrier(200)

    def run(number: int) -> bytes:
        content = contents[number % len(contents)]
        together.wait()
        with BlobClient(server.address, connect_timeout_s=60.0) as client:
            return client.get_bytes(client.put(content, f"job-{number % 3}"))

    with ThreadPoolExecutor(200) as pool:
        for number, result in enumerate(pool.map(run, range(200))):
            assert result == contents[number % len(contents)]
    wait_until(lambda: not server._active, "no connection is left")
    assert not [file for file in files_below(server.depot.files.directory) if file.startswith("incoming")]


def test_concurrent_uploads_of_same_content_become_one_blob(start: StartServer) -> None:
    server, content = start(), _content(3 * CHUNK)
    with RawConnection(server.address) as first, RawConnection(server.address) as second:
        for wire in (first, second):
            wire.put(content)
            assert wire.answer().status is Status.SEND
        for offset in range(0, len(content), CHUNK):
            for wire in (first, second):
                wire.frame(content[offset : offset + CHUNK])
        for wire in (first, second):
            wire.frame(b"")
            assert wire.answer().status is Status.OK
    with RawConnection(server.address) as third:
        third.put(content)
        assert third.answer().status is Status.OK, "what is there need not be sent"
    assert files_below(server.depot.files.directory) == [f"job_job/blob_p-{compute_digest(content)}"]


def test_corrupt_blob_is_not_served_and_can_be_uploaded_again(start: StartServer) -> None:
    server = start()
    with BlobClient(server.address) as client:
        key = client.put(b"content", "job")
        server.depot.file(key).write_bytes(b"conteNt!")
        with pytest.raises(BlobNotFound):
            client.get_bytes(key)
        assert client.put(b"content", "job") == key
        server.depot.file(key).write_bytes(b"conteNt!")
        assert client.put(b"content", "job") == key
        assert client.get_bytes(key) == b"content"


def test_blobs_survive_restart_of_server(start: StartServer, tmp_path: Path) -> None:
    first = start(tmp_path / "blobs")
    with BlobClient(first.address) as client:
        key = client.put(b"content", "job")
    first.close()
    with pytest.raises(BlobUnavailable, match=first.address):
        BlobClient(first.address)
    with BlobClient(start(tmp_path / "blobs").address) as client:
        assert client.get_bytes(key) == b"content"


def test_closed_server_disconnects_all_clients(start: StartServer) -> None:
    server = start()
    with RawConnection(server.address) as idle, RawConnection(server.address) as busy:
        busy.put(b"content")
        assert busy.answer().status is Status.SEND
        wait_until(lambda: len(server._active) == 2, "both are served")
        server.close()
        assert idle.is_over()
        assert busy.is_over()
    assert files_below(server.depot.files.directory) == []


def test_two_servers_may_share_directory(start: StartServer, tmp_path: Path) -> None:
    """The second one does not treat the current uploads of the first as abandoned."""
    first = start(tmp_path / "blobs")
    with RawConnection(first.address) as wire:
        wire.put(b"content")
        assert wire.answer().status is Status.SEND
        wait_until(lambda: len(files_below(tmp_path / "blobs")) == 1, "the upload has begun")
        second = start(tmp_path / "blobs")
        wire.frame(b"content")
        wire.frame(b"")
        assert wire.answer().status is Status.OK
    with BlobClient(second.address) as client:
        assert client.get_bytes(BlobKey(compute_digest(b"content"), "job")) == b"content"
