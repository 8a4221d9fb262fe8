"""A small HTTP server that only reads, in threads of its own.

It answers few requests at the same time, and a slow client costs one thread for some seconds: a connection has a limit
of time, and those above a limit of number are closed at once. The paths that it serves are given as data.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...infra.server_socket import listen
from ...infra.tls import ServerTls

_log = logger(__name__)
_CLIENT_TIMEOUT_S: Final = 5.0
_BACKLOG: Final = 64
_POLL_S: Final = 0.2
_THREADS: Final = 4
MOST_CONNECTIONS: Final = 64
_CONNECTION_TIMEOUT_S: Final = 30.0
"""From the connection to the end of its answer, whatever the client sends meanwhile."""
ENDPOINT: Final = "diagnostics"
"""The name of the server among the endpoints of a master (LeaderElected)."""
PROCESS_HEADER: Final = "Tailrace-Process"
"""A request for another process is refused: an address of loopback, or of a process that has ended, may be that of
another one."""
TOKEN_USE: Final = "diagnostics"
"""For SharedSecret.token."""
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class Query(NamedTuple):
    """A request: what follows the name of the path, decoded; the parameters; the Accept header."""

    rest: str
    parameters: Mapping[str, str]
    accept: str


class Content(NamedTuple):
    """An answer. `headers` are those beside type and length."""

    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


class UnknownPath(Exception):
    """There is nothing at this path; the message is one sentence."""


class Unhealthy(Exception):
    """The process does not work; the message is a short reason."""


Handler = Callable[[Query], Content]
"""Answers a request; raises UnknownPath, Unhealthy, or ValueError for a parameter that cannot be read."""


class DiagnosticsServer(Closeable):
    """Listens from its construction until `close`. Raises OSError if the address is not available."""

    def __init__(
        self,
        paths: Mapping[str, Handler],
        *,
        host: str,
        ports: Iterable[int] = (0,),
        process: str = "",
        token: bytes | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """Listens on the first free port of `ports`; 0: any. `paths`: the first part of a path -> what answers it.
        `process`: the address of the process for messages; requests for others are refused. `token`: requests need the
        header `Authorization: Bearer <token>`; None: all are served."""
        self._server = _Server(listen(host, ports, _BACKLOG), paths, process, token, tls)
        self.address: Final = f"{host}:{self._server.server_port}"
        """host:port."""
        self._thread = threads.Thread(
            target=lambda: self._server.serve_forever(_POLL_S), name="diagnostics server"
        )
        self._thread.start()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(HTTPServer):
    def __init__(
        self,
        listener: socket.socket,
        paths: Mapping[str, Handler],
        process: str,
        token: bytes | None,
        tls: ServerTls | None,
    ) -> None:
        super().__init__(listener.getsockname()[:2], _RequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.paths = paths
        self.process = process
        self.token = token
        self._tls = tls
        self._pool = threads.Pool(_THREADS, "diagnostics")
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of the pool."""
        connection = _Connection(request, time.monotonic() + _CONNECTION_TIMEOUT_S)
        with self._lock:
            is_surplus = len(self._connections) >= MOST_CONNECTIONS
            if not is_surplus:
                self._connections.add(connection)
        if is_surplus:
            self.shutdown_request(request)
        else:
            self._pool.submit(self._answer, connection, client_address)

    def service_actions(self) -> None:
        """Ends the connections whose time is over; the loop of the server calls it all the time."""
        now = time.monotonic()
        with self._lock:
            overdue = [each.socket for each in self._connections if each.deadline_s < now]
        for each in overdue:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _answer(self, connection: _Connection, client_address: Any) -> None:
        try:
            connection.socket.settimeout(_CLIENT_TIMEOUT_S)
            if self._tls is not None:
                connection.socket = self._tls.wrap(connection.socket)
            try:
                self.finish_request(connection.socket, client_address)
            finally:
                self.shutdown_request(connection.socket)
        except Exception as error:
            # A client that goes away, or is too slow, concerns nobody else.
            _log.debug("a request was not answered", client=str(client_address), reason=str(error))
        finally:
            with self._lock:
                self._connections.discard(connection)

    def server_close(self) -> None:
        super().server_close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Connection:
    """A connection, and when its time is over, by the monotonic clock."""

    __slots__ = ("deadline_s", "socket")

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        self.socket = connected
        self.deadline_s = deadline_s


class _RequestHandler(BaseHTTPRequestHandler):
    timeout = _CLIENT_TIMEOUT_S
    server_version = "tailrace"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        """Answers a request."""
        if not self._is_authorized():
            self.send_error(401, "the request needs the token of the cluster")
            return
        if self.headers.get(PROCESS_HEADER, self.server.process) != self.server.process:
            self.send_error(421, "this is another process")
            return
        path, _, parameters = self.path.partition("?")
        name, _, rest = path.lstrip("/").partition("/")
        answer = self.server.paths.get(name)
        if answer is None:
            self.send_error(
                404, f"there is only {', '.join(sorted(f'/{each}' for each in self.server.paths))}"
            )
            return
        try:
            query = Query(unquote(rest), dict(parse_qsl(parameters)), self.headers.get("Accept", ""))
            content = answer(query)
        except UnknownPath as error:
            self.send_error(404, str(error))
            return
        except Unhealthy as error:
            self.send_error(503, str(error))
            return
        except ValueError as error:
            # The reason is in the first line of the answer, which is ASCII.
            self.send_error(400, ascii(str(error)[:200])[1:-1])
            return
        except Exception:
            _log.exception("a request could not be answered", path=name)
            self.send_error(500, "the answer could not be made: see the log of the process")
            return
        self.send_response(200)
        self.send_header("Content-Type", content.content_type)
        self.send_header("Content-Length", str(len(content.body)))
        for header, value in content.headers.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(content.body)

    def _is_authorized(self) -> bool:
        token = self.server.token
        if token is None:
            return True
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: there is a request every few seconds."""
