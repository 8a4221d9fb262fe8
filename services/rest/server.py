"""An HTTP server in a thread: uvicorn, with limits for connections and for the time until a request has arrived."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.tls import ServerTls
from .application import CERTIFICATE_SUBJECT, IS_SURPLUS
from .tls import find_subject

_MOST_SURPLUS = 64
"""Connections above the limit that are told so; further ones are closed at once."""
_HEADER_TIMEOUT_S = 20.0
_KEEP_ALIVE_S = 30
_MAX_HEADER_BYTES = 32 << 10
_END_TIMEOUT_S = 1
_UNACKNOWLEDGED_MS = 60_000


class _TimedProtocol(H11Protocol):
    """Closes a connection whose request line and headers do not arrive in time, and those above the limit."""

    max_connections = 256
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        surplus = len(self.connections) - self.max_connections
        if surplus > _MOST_SURPLUS:
            transport.abort()
            return
        subject = find_subject(transport.get_extra_info("ssl_object"))
        self.app_state = {**self.app_state, IS_SURPLUS: surplus > 0, CERTIFICATE_SUBJECT: subject}
        limit_unacknowledged_time(transport.get_extra_info("socket"))
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._header_timer is None:
                self._await_headers()
        else:
            self._cancel_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(_HEADER_TIMEOUT_S, self._expire)

    def _expire(self) -> None:
        self._header_timer = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()

    def _cancel_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def limit_unacknowledged_time(connection: Any) -> None:
    """Ends a connection whose peer acknowledges nothing, although the server has sent something. Keep-alive comments
    of a stream are sent, so half-open connections end. TCP_USER_TIMEOUT (RFC 5482) is Linux's."""
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)


class HttpServer(Closeable):
    """Serves an application on a listening socket from its construction until `close`."""

    def __init__(
        self,
        application: ASGIApp,
        listening: socket.socket,
        max_connections: int = 256,
        tls: ServerTls | None = None,
    ) -> None:
        configuration = uvicorn.Config(
            application,
            http=type("_Protocol", (_TimedProtocol,), {"max_connections": max_connections}),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_END_TIMEOUT_S,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
            ssl_context_factory=None if tls is None else lambda *_: tls.context(),
        )
        self._server: Final = uvicorn.Server(configuration)
        self._thread = threads.Thread(target=self._server.run, name="rest server", args=([listening],))
        self._thread.start()

    def close(self) -> None:
        """Ends requests that are being answered within seconds, and the thread."""
        self._server.should_exit = True
        self._thread.join(5.0)
