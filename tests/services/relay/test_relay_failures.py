"""A reader leaves a relay that is lost, silent, behind, faulty, or of another log; a relay drops readers that are slow
or no readers at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.schemas.event import EVERYONE
from tailrace.services.blobs.shared_secret_auth import SharedSecret
from tailrace.services.log.raw_record import RawRecord, RawTail
from tailrace.services.relay.protocol import LogName
from tailrace.services.relay.server import RelayServer
from tailrace.services.relay.tail import RelayedTail

from .relayed import (
    ADDRESSES,
    NAME,
    QUICK,
    Log,
    event,
    expected,
    filter_of,
    poll_until,
    read_until,
    relayed,
    serve,
)

SECRET = SharedSecret(b"a secret of a cluster")
OTHER_SECRET = SharedSecret(b"the secret of another")


PATIENT = QUICK._replace(silence_s=1_000.0, stall_s=1_000.0, probe_s=1_000.0)


class Reader:
    """A reader of the first address. It leaves a relay for the reasons of the test only."""

    def __init__(
        self, log: Log, address: str | None, secret: SharedSecret | None = None, **timeouts: float
    ) -> None:
        self.log = log
        self.address = address
        self.events = relayed(log, lambda: self.address, secret=secret, timeouts=PATIENT._replace(**timeouts))
        self.tail = self.events.tail(0, concerns=filter_of(ADDRESSES[0]))
        self.records = []

    @property
    def relay(self) -> str | None:
        source = self.events._tail
        assert isinstance(source, RelayedTail)
        return source.relay

    def read(self) -> None:
        self.records += read_until(self.tail, self.log.end())

    def read_until_relay_is(self, address: str | None) -> None:
        self.records += poll_until(self.tail, lambda: self.relay == address)

    def check(self) -> None:
        """Reads to the end. Raises AssertionError unless it has exactly its records."""
        self.read()
        assert self.records == expected(self.log, ADDRESSES[:1])


@pytest.fixture
def log() -> Log:
    log = Log()
    log.append([event(recipient=recipient) for recipient in (*ADDRESSES, EVERYONE, "resource_manager") * 3])
    return log


@pytest.fixture
def server(log: Log) -> Iterator[RelayServer]:
    with serve(log) as server:
        yield server


@contextmanager
def reading(
    log: Log, address: str | None, secret: SharedSecret | None = None, **timeouts: float
) -> Iterator[Reader]:
    reader = Reader(log, address, secret, **timeouts)
    try:
        yield reader
    finally:
        reader.tail.close()


def test_reader_reads_from_relay_and_log_is_not_read(log: Log, server: RelayServer) -> None:
    wait_until(lambda: log.readings == 1)
    with reading(log, server.address) as reader:
        reader.check()
        assert reader.relay == server.address
        log.append([event(recipient=recipient) for recipient in (ADDRESSES[0], ADDRESSES[1], EVERYONE)])
        reader.check()
        assert log.readings == 3, "by the relay, and by the two checks"


def test_reader_without_any_relay_reads_log(log: Log) -> None:
    with reading(log, None) as reader:
        reader.check()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with reading(log, address) as reader:
        reader.check()


def test_reader_continues_with_next_relay_after_loss(log: Log, server: RelayServer) -> None:
    with reading(log, server.address) as reader, serve(log) as standby:
        reader.read_until_relay_is(server.address)
        server.close()
        reader.read_until_relay_is(None)
        log.append([event(recipient=ADDRESSES[0])])
        reader.check()
        reader.address = standby.address
        reader.read_until_relay_is(standby.address)
        reader.check()


def test_reader_leaves_silent_relay(log: Log, server: RelayServer) -> None:
    with reading(log, server.address, silence_s=0.3) as reader:
        reader.read()
        with server._lock:
            reader.read_until_relay_is(None)
            log.append([event(recipient=ADDRESSES[0])])
            reader.read()
        reader.check()


def test_reader_leaves_relay_that_does_not_follow_log(log: Log) -> None:
    behind = Log()
    behind._entries = list(log._entries)
    with serve(behind) as server, reading(log, server.address, probe_s=0.2, stall_s=0.5) as reader:
        reader.read()
        log.append([event(recipient=ADDRESSES[0])])
        reader.read_until_relay_is(None)
        reader.check()


class _Lossy(Log):
    """A log whose raw tails lack the records of one address."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._entries, self._grown = log._entries, log._grown

    def raw_tail(self, start: int, **more: object) -> RawTail:
        tail = super().raw_tail(start, **more)
        poll = tail.poll

        def lose(timeout_s: float) -> list[RawRecord]:
            return [record for record in poll(timeout_s) if record.addresses != (ADDRESSES[0], "lost")]

        tail.poll = lose  # type: ignore[method-assign]
        return tail


def test_reader_leaves_relay_that_does_not_send_its_own_event(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        serve(_Lossy(log)) as server,
        reading(log, server.address, retry_s=1_000, longest_retry_s=1_000) as reader,
    ):
        reader.read_until_relay_is(server.address)
        reader.read()
        reader.events.append([event(ADDRESSES[0], "lost"), event(ADDRESSES[0], "resource_manager")])
        reader.read_until_relay_is(None)
        reader.check()


@pytest.mark.parametrize(
    ("secret_of_relay", "secret_of_reader", "name", "reason"),
    [
        (SECRET, None, NAME, "serves only readers that know its secret"),
        (SECRET, OTHER_SECRET, NAME, "serves only readers that know its secret"),
        (None, SECRET, NAME, "does not know the secret of this cluster"),
        (None, None, LogName(NAME.topic, "another"), "the relay has the log t.log another, not t.log the-id"),
        (
            SECRET,
            SECRET,
            LogName("c.log", NAME.topic_id),
            "the relay has the log c.log the-id, not t.log the-id",
        ),
    ],
)
def test_relay_with_other_secret_or_log_is_not_used(
    log: Log,
    secret_of_relay: SharedSecret | None,
    secret_of_reader: SharedSecret | None,
    name: LogName,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        serve(log, name, secret=secret_of_relay) as server,
        reading(log, server.address, secret_of_reader) as reader,
    ):
        poll_until(reader.tail, lambda: reader.events._tail._failures > 1)  # type: ignore[union-attr]
        assert reader.relay is None
    with reading(log, server.address) as reader:
        reader.check()


def test_relay_and_reader_with_same_secret_find_each_other(log: Log) -> None:
    with serve(log, secret=SECRET) as server, reading(log, server.address, SECRET) as reader:
        reader.check()
        assert reader.relay == server.address


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\0\0\0\1\xc1", b"\0\0\0\2\x91\xa1", b"\0\0\0\3\x92\xa1P"],
)
def test_garbage_ends_its_connection_only(log: Log, server: RelayServer, garbage: bytes) -> None:
    host, _, port = server.address.partition(":")
    with reading(log, server.address) as reader:
        reader.read_until_relay_is(server.address)
        with socket.create_connection((host, int(port)), 10) as strange:
            strange.sendall(garbage + b"\0" * 10)
            while strange.recv(1_000):
                pass
        log.append([event(recipient=ADDRESSES[0])])
        reader.check()
        assert reader.relay == server.address


def test_garbage_from_server_that_is_no_relay_loses_nothing(log: Log) -> None:
    with socket.create_server(("127.0.0.1", 0)) as strange, ExitStack() as connections:

        def answer() -> None:
            while True:
                try:
                    connection, _ = strange.accept()
                except OSError:
                    return
                connections.enter_context(connection)
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with reading(log, f"127.0.0.1:{strange.getsockname()[1]}") as reader:
            reader.check()
            assert reader.relay is None
        strange.shutdown(socket.SHUT_RDWR)


def test_slow_reader_is_dropped_and_continues_from_its_offset(log: Log, server: RelayServer) -> None:
    with reading(log, server.address) as slow, reading(log, server.address) as other:
        for reader in (slow, other):
            reader.read_until_relay_is(server.address)
        large = [b"x" * (1 << 20)] * 4
        for _ in range(20):
            log.append_values(large)
            log.append([event(recipient=ADDRESSES[0])])
            other.read()
        wait_until(lambda: len(server._connections) == 1, "the end of the slow reader's connection")
        assert other.relay == server.address
        other.check()
        slow.check()


class _Slow(Log):
    """A log that is read for the second time, and later, only once `is_open` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()

    def raw_tail(self, start: int, **more: object) -> RawTail:
        tail = super().raw_tail(start, **more)
        assert self.readings == 1 or self.is_open.wait(TIMEOUT_S)
        return tail


def test_readers_that_wait_together_cost_one_reading_of_log() -> None:
    log = _Slow()
    log.append([event(recipient=recipient) for recipient in (*ADDRESSES, EVERYONE) * 3])
    with serve(log, memory_bytes=1) as server, ExitStack() as stack:
        wait_until(lambda: server._router is not None and server._router.position == log.end())
        readers = [Reader(log, server.address) for _ in range(30)]
        for reader in readers:
            stack.callback(reader.tail.close)
        history = server._history
        wait_until(lambda: len(history._waiting) + len(history._served) == 30, "30 readers that wait")
        log.is_open.set()
        for reader in readers:
            reader.read()
            assert reader.relay == server.address
        assert log.readings <= 3, "by the relay, for the first readers, and for the others"
        wanted = expected(log, ADDRESSES[:1])
        assert all(reader.records == wanted for reader in readers)


def test_no_thread_remains(log: Log) -> None:
    before = set(threading.enumerate())
    with serve(log, memory_bytes=1) as server, reading(log, server.address) as reader:
        reader.check()
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        reading(log, f"127.0.0.1:{mute.getsockname()[1]}", connect_s=0.3) as reader,
    ):
        reader.check()
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads")
