"""A BlobServer over real sockets: what is put is had again, and what is no upload leaves nothing behind."""

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
@pytest.mark.parametrize("job_id", [None, "job-1"])
@pytest.mark.parametrize("transient", [False, True])
def test_what_is_put_is_got(start: StartServer, size: int, job_id: str | None, transient: bool) -> None:
    server, content = start(), _content(size)
    with BlobClient(server.address) as client:
        key = client.put(content, job_id, transient=transient)
        assert key == BlobKey(compute_digest(content), job_id, transient)
        assert client.get_bytes(key) == content


def test_files_are_put_as_bytes_are(start: StartServer, tmp_path: Path) -> None:
    server, content = start(), _content(2 * CHUNK + 5)
    (tmp_path / "file").write_bytes(content)
    with BlobClient(server.address) as client:
        key = client.put_file(tmp_path / "file", "job")
        assert client.get_bytes(key) == content
        assert client.put(content, "job") == key
    assert files_below(server.depot.files.directory) == [f"job_job/blob_p-{key.digest}"]


def test_what_was_never_put_is_not_found_and_the_connection_goes_on(start: StartServer) -> None:
    with BlobClient(start().address) as client:
        with pytest.raises(BlobNotFound, match="never put"):
            client.get_bytes(BlobKey("a" * 64, "job"))
        key = client.put(b"content", "job")
        assert client.get_bytes(key) == b"content"


def test_jobs_do_not_see_each_others_blobs(start: StartServer) -> None:
    with BlobClient(start().address) as client:
        key = client.put(b"content", "mine")
        with pytest.raises(BlobNotFound):
            client.get_bytes(BlobKey(key.digest, "yours"))


def test_transient_blobs_are_deleted_by_anybody_and_permanent_ones_by_nobody(start: StartServer) -> None:
    with BlobClient(start().address) as client:
        transient = client.put(b"content", "job", transient=True)
        permanent = client.put(b"content", "job")
        client.delete(transient)
        client.delete(transient)
        with pytest.raises(BlobNotFound):
            client.get_bytes(transient)
        with pytest.raises(BlobRefused, match="permanent"):
            client.delete(permanent)
        assert client.get_bytes(permanent) == b"content"


def test_all_that_a_job_owns_goes_with_it(start: StartServer) -> None:
    server = start()
    with BlobClient(server.address) as client:
        gone = [
            client.put(b"one", "over"),
            client.put(b"two", "over"),
            client.put(b"3", "over", transient=True),
        ]
        kept = [client.put(b"one", "other"), client.put(b"one")]
        server.depot.delete_job("over")
        for key in gone:
            with pytest.raises(BlobNotFound):
                client.get_bytes(key)
        assert [client.get_bytes(key) for key in kept] == [b"one", b"one"]
    server.depot.delete_job("never was")


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(start: StartServer) -> None:
    server = start()
    with BlobClient(server.address) as client:
        with pytest.raises(BlobRefused, match=r"more than .* blob\.size\.max"):
            client.put(_content(LARGEST + 1), "job")
        assert client.get_bytes(client.put(b"small", "job")) == b"small"
    assert len(files_below(server.depot.files.directory)) == 1


def test_a_truncated_upload_leaves_nothing_behind(start: StartServer) -> None:
    server = start()
    with RawConnection(server.address) as wire:
        wire.put(b"x" * 1000)
        assert wire.answer().status is Status.SEND
        wire.frame(b"x" * 500)
    wait_until(lambda: files_below(server.depot.files.directory) == [], "the upload is forgotten")


def test_an_upload_that_ends_too_early_is_refused(start: StartServer) -> None:
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
def test_an_oversized_upload_is_refused_and_leaves_nothing_behind(
    start: StartServer, pieces: list[int]
) -> None:
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


def test_an_upload_with_another_digest_is_refused_and_leaves_nothing_behind(start: StartServer) -> None:
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
def test_what_is_no_request_is_refused_in_one_line(start: StartServer, request_bytes: bytes) -> None:
    server = start()
    with RawConnection(server.address) as wire:
        wire.frame(request_bytes)
        answer = wire.answer()
        assert answer.status is Status.REFUSED
        assert "\n" not in answer.reason
        assert wire.is_over()
    assert files_below(server.depot.files.directory) == []


def test_another_protocol_is_refused(start: StartServer) -> None:
    with RawConnection(start().address) as wire:
        wire.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = wire.answer()
        assert answer.status is Status.REFUSED


def test_an_idle_connection_is_ended(start: StartServer) -> None:
    with RawConnection(start(pace=QUICK).address) as wire:
        assert wire.is_over()


def test_a_request_that_comes_byte_by_byte_is_given_up(start: StartServer) -> None:
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


def test_an_upload_that_trickles_is_given_up_and_leaves_nothing_behind(start: StartServer) -> None:
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


def test_a_reader_that_takes_nothing_is_given_up(start: StartServer) -> None:
    server = start(pace=QUICK)
    with BlobClient(server.address) as client:
        key = client.put(_content(LARGEST), "job")
    with RawConnection(server.address) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.get(str(key))
        wait_until(lambda: not server._active, "the connection is given up")


def test_idle_connections_give_way_to_those_that_want_something(start: StartServer) -> None:
    server = start(connections=2)
    with RawConnection(server.address), RawConnection(server.address), BlobClient(server.address) as client:
        assert client.get_bytes(client.put(b"content", "job")) == b"content"


def test_two_hundred_connections_at_once(start: StartServer) -> None:
    server = start(connections=50)
    contents = [_content(20_000 + number) for number in range(20)]
    together = threading.Barrier(200)

    def run(number: int) -> bytes:
        content = contents[number % len(contents)]
        together.wait()
        with BlobClient(server.address, connect_timeout=60.0) as client:
            return client.get_bytes(client.put(content, f"job-{number % 3}"))

    with ThreadPoolExecutor(200) as pool:
        for number, found in enumerate(pool.map(run, range(200))):
            assert found == contents[number % len(contents)]
    wait_until(lambda: not server._active, "no connection is left")
    assert not [each for each in files_below(server.depot.files.directory) if each.startswith("incoming")]


def test_two_uploads_of_the_same_content_become_one_blob(start: StartServer) -> None:
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


def test_a_blob_that_was_damaged_is_not_served_and_may_be_put_again(start: StartServer) -> None:
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


def test_blobs_are_there_when_a_server_has_been_started_again(start: StartServer, tmp_path: Path) -> None:
    first = start(tmp_path / "blobs")
    with BlobClient(first.address) as client:
        key = client.put(b"content", "job")
    first.close()
    with pytest.raises(BlobUnavailable, match=first.address):
        BlobClient(first.address)
    with BlobClient(start(tmp_path / "blobs").address) as client:
        assert client.get_bytes(key) == b"content"


def test_a_closed_server_leaves_nobody_waiting(start: StartServer) -> None:
    server = start()
    with RawConnection(server.address) as idle, RawConnection(server.address) as busy:
        busy.put(b"content")
        assert busy.answer().status is Status.SEND
        wait_until(lambda: len(server._active) == 2, "both are served")
        server.close()
        assert idle.is_over()
        assert busy.is_over()
    assert files_below(server.depot.files.directory) == []


def test_two_servers_may_share_a_directory(start: StartServer, tmp_path: Path) -> None:
    """The second one does not take for abandoned what is on its way into the first."""
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
