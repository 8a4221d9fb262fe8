"""A REST server on a log in memory, and a client of its streams."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.infra.server_socket import listen
from tailrace.infra.tls import ServerTls
from tailrace.schemas.event import Event, Record
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.log_source import LogSource
from tailrace.services.log import EventLog
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.rest.api import cluster, jobs
from tailrace.services.rest.application import Settings, create_application
from tailrace.services.rest.endpoint import Endpoint
from tailrace.services.rest.event_feed import EventFeed
from tailrace.services.rest.flink.endpoints import READS
from tailrace.services.rest.live_replica import LiveReplica
from tailrace.services.rest.log_endpoints import log_endpoints
from tailrace.services.rest.server import HttpServer

GOLDEN = Path(__file__).parents[2] / "golden" / "0.1.0"


def golden_records(name: str) -> list[Record]:
    """Returns the events of a golden log."""
    with closing(FileLog.open(GOLDEN / f"{name}.avro")) as log:
        return [record for batch in read_to_end(log) for record in batch]


def append(log: EventLog, records: list[Record]) -> None:
    """Appends events again, in the same order."""
    log.append([Event(record.header, record.body) for record in records])


@dataclass
class Message:
    """A server-sent event; `comment` has the text of a block without data."""

    id: str | None = None
    event: str | None = None
    data: str | None = None
    comment: str | None = None


class LiveServer:
    """The server."""

    def __init__(self, log: MemoryEventLog, port: int, feed: EventFeed) -> None:
        self.log = log
        self.port = port
        self.feed = feed

    def get(self, path: str) -> tuple[int, Any]:
        """Returns status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def pages(self, query: str = "", limit: int = 7) -> list[Any]:
        """Returns all events of /api/v1/events, page by page."""
        found: list[Any] = []
        start = 0
        while True:
            status, page = self.get(f"/api/v1/events?from={start}&limit={limit}{query}")
            assert status == 200, page
            found += page["events"]
            if page["next"] == start:
                return found
            start = page["next"]

    @contextmanager
    def stream(self, query: str = "", last_event_id: int | None = None) -> Iterator[Iterator[Message]]:
        """Yields the messages of a stream, without its first comment."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
        with closing(connection):
            connection.request("GET", f"/api/v1/events/stream?{query}", headers=headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            messages = _messages(answer)
            assert next(messages).comment is not None
            yield messages

    def connect(self, query: str = "") -> socket.socket:
        """Sends a request for a stream, and returns the connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=90)
        connection.sendall(f"GET /api/v1/events/stream?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return connection


def _messages(answer: http.client.HTTPResponse) -> Iterator[Message]:
    message = Message()
    while line := answer.readline():
        name, _, value = line.decode().rstrip("\n").partition(":")
        match name:
            case "" if not value:
                yield message
                message = Message()
            case "":
                message.comment = value.strip()
            case _:
                setattr(message, name, value.removeprefix(" "))


@contextmanager
def serve(
    log: MemoryEventLog,
    *,
    keep_alive_s: float = 15.0,
    send_timeout_s: float = 30.0,
    port: int = 0,
    flink: Sequence[Endpoint] = (),
    own: Sequence[Endpoint] = (),
    settings: Settings | None = None,
    tls: ServerTls | None = None,
) -> Iterator[LiveServer]:
    """Serves the log until the end of the context. `flink`, `own`: endpoints besides those that read."""

    def open_source() -> LogSource:
        return LogSource(_SharedLog(log), "memory")

    listening = listen("127.0.0.1", [port], 128)
    with LiveReplica(open_source) as live:
        feed = EventFeed(open_source, live, keep_alive_s=keep_alive_s, send_timeout_s=send_timeout_s)

        @contextmanager
        def read(_: str | None, _parameters: object) -> Iterator[Any]:
            with live.read() as moment:
                yield moment

        application = create_application(
            read,
            [*READS, *flink],
            [*cluster.READS, *jobs.READS, *log_endpoints(open_source, feed), *own],
            settings,
        )
        with HttpServer(application, listening, tls=tls), feed:
            yield LiveServer(log, listening.getsockname()[1], feed)


class _SharedLog:
    """A log that its readers do not close."""

    def __init__(self, log: MemoryEventLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def close(self) -> None:
        pass
