"""A log in memory, relays of it, and readers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from polling import TIMEOUT_S

from tailrace.infra.tls import ClientTls
from tailrace.schemas import dispatcher
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.types import Header
from tailrace.services.blobs.shared_secret_auth import SharedSecret
from tailrace.services.log import Codec, Tail
from tailrace.services.log.event_log import AddressFilter, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.raw_record import RawTail
from tailrace.services.relay.connection import RelayConnection
from tailrace.services.relay.protocol import LogName
from tailrace.services.relay.relayed_log import RelayedEventLog
from tailrace.services.relay.server import RelayLimits, RelayServer
from tailrace.services.relay.tail import RelayTimeouts

NAME = LogName("t.log", "the-id")
ADDRESSES = ("task_executor/a", "task_executor/b")
QUICK = RelayTimeouts(
    connect_s=5.0, silence_s=5.0, stall_s=0.5, probe_s=0.2, retry_s=0.01, longest_retry_s=0.02
)
CODEC = Codec("t.log")
numbers = itertools.count()


class Log(MemoryEventLog):
    """A log that counts how often it is read."""

    def __init__(self) -> None:
        super().__init__(CODEC, "t.log")
        self.readings = 0

    def probe_end(self, timeout_s: float) -> Future[int]:
        del timeout_s
        answer: Future[int] = Future()
        answer.set_result(self.end())
        return answer

    def raw_tail(self, start: int, **more: Any) -> RawTail:
        self.readings += 1
        return super().raw_tail(start, **more)


def event(sender: str = "dispatcher", recipient: str = EVERYONE, size: int = 0) -> Event:
    """Returns a new event of at least `size` bytes."""
    number = str(next(numbers)).ljust(size, "-")
    header = Header(event_id=number, time=1, sender=sender, sender_epoch=0, recipient=recipient)
    return Event(header, dispatcher.CancelJob(job_id=number))


def serve(
    log: MemoryEventLog, name: LogName = NAME, *, memory_bytes: int = 64 << 20, **more: Any
) -> RelayServer:
    server = RelayServer(log, name, limits=RelayLimits(1_000, memory_bytes), **more)
    server.start()
    return server


def relayed(
    log: Log,
    find_relay: Callable[[], str | None],
    *,
    secret: SharedSecret | None = None,
    tls: ClientTls | None = None,
    timeouts: RelayTimeouts = QUICK,
) -> RelayedEventLog:
    """Returns the log of a process that reads by the relay."""

    def connect(address: str, start: int, addresses: frozenset[str]) -> RelayConnection:
        return RelayConnection(
            address, NAME, start, addresses, secret=secret, tls=tls, timeout_s=timeouts.connect_s
        )

    return RelayedEventLog(log, find_relay, connect, timeouts)


def filter_of(*addresses: str) -> AddressFilter:
    return AddressFilter(frozenset(addresses))


def expected(log: MemoryEventLog, addresses: Iterable[str], start: int = 0) -> list[Record]:
    """Returns what a reader of these addresses gets from the log itself."""
    concerns = AddressFilter(frozenset(addresses))
    return [
        record
        for batch in read_to_end(log, start)
        for record in batch
        if concerns(record.header.sender, record.header.recipient)
    ]


def read_until(tail: Tail, end: int) -> list[Record]:
    """Returns the records below offset `end`. Raises AssertionError after a timeout."""
    records: list[Record] = []
    deadline = time.monotonic() + TIMEOUT_S
    while tail.position < end:
        records += tail.poll(0.05)
        assert time.monotonic() < deadline, f"the reader is at {tail.position} of {end}"
    return records


def poll_until(tail: Tail, condition: Callable[[], bool]) -> list[Record]:
    """Polls until the condition holds. Raises AssertionError after a timeout."""
    records: list[Record] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        records += tail.poll(0.02)
        assert time.monotonic() < deadline
    return records
