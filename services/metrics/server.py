"""Serves the metrics of a process at /metrics, on a thread of its own.

It answers one request after another: scrapes are few and short, and a slow client costs one thread at most.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...infra.server_socket import listen

PATH: Final = "/metrics"
_log = logger(__name__)
_CLIENT_TIMEOUT_S: Final = 5.0
_BACKLOG: Final = 16
_POLL_S: Final = 0.2

Expose = Callable[[str], tuple[str, bytes]]
"""(Accept header) -> content type and text."""


class MetricsServer(Closeable):
    """Listens from its construction until `close`. Raises OSError if the address is not available."""

    def __init__(self, expose: Expose, *, host: str, ports: Iterable[int] = (0,)) -> None:
        """Listens on the first free port of `ports`; 0: any."""
        self._server = _Server(listen(host, ports, _BACKLOG), expose)
        self.address: Final = f"{host}:{self._server.server_port}"
        """host:port."""
        self._thread = threads.Thread(
            target=lambda: self._server.serve_forever(_POLL_S), name="metrics server"
        )
        self._thread.start()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(HTTPServer):
    def __init__(self, listener: socket.socket, expose: Expose) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.expose = expose

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or is too slow, concerns nobody else."""
        _log.debug("a request for metrics was not answered", client=str(client_address))


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_TIMEOUT_S
    server_version = "tailrace"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        """Answers with the metrics."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"there is only {PATH}")
            return
        try:
            content_type, content = self.server.expose(self.headers.get("Accept", ""))
        except Exception:
            _log.exception("the metrics could not be collected")
            self.send_error(500, "the metrics could not be collected: see the log of the process")
            return
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: there is a request every few seconds."""
