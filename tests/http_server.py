"""HTTP servers of tests, on free ports of this machine."""

from __future__ import annotations

import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tailrace.infra import threads
from tailrace.infra.closing import Closeable


class HttpHandler(BaseHTTPRequestHandler):
    """Handles requests and logs nothing."""

    def read_body(self) -> bytes:
        """Returns the content of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, content: bytes, **headers: str) -> None:
        """Sends an answer; `Content_Type` is the header of that name."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def answer_json(self, status: int, found: object) -> None:
        """Sends an answer in JSON."""
        self.answer(status, json.dumps(found).encode(), Content_Type="application/json")

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


class HttpServer(Closeable):
    """Serves from its creation until `close`."""

    def __init__(self, handler: type[HttpHandler], context: ssl.SSLContext | None = None) -> None:
        """`context`: for TLS."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http{'' if context is None else 's'}://{self.address}"
        self._thread = threads.Thread(target=lambda: self._server.serve_forever(0.05), name="http server")
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
