"""A kazoo client, created from the settings, with three additions.

1. kazoo waits a whole session timeout for a server that does not answer: with one of three machines down, the session
   would be lost before it tries the next server. Here a connection has its own timeout, which also covers the connect
   request: a server that is just starting may accept a connection and forget it (ZOOKEEPER-5051).
2. kazoo does not report the session timeout that the servers granted, which may be shorter than the requested one.
3. kazoo sends no ping while it has other requests to send, so it may never notice that the server is silent. Here the
   caller can drop the connection.

kazoo handles states, requests and watches. This package has its own recipes: kazoo's Lock and Election do not fence.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import socket
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ..configuration import ConfigurationError
from ..configuration.options.zookeeper import ZOOKEEPER_SASL, SaslMechanism, ZooKeeperAcl
from .settings import ZooKeeperSettings

UNSETTLED: tuple[type[Exception], ...] = (
    ConnectionLoss,
    ConnectionClosedError,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
"""The request may or may not have been executed: read the state again once there is a connection."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_READ_OF_SESSION = 2 / 3
"""The fraction of the session timeout after which kazoo treats a silent server as down."""


class LastErrorHandler(logging.Handler):
    """Keeps the last message of a client, which logs one for each attempt. One line for an outage is enough."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.text = f"{record.getMessage()}: {error}" if error else record.getMessage()


class Client(KazooClient):  # type: ignore[misc]
    """`complaints` holds the last message that the client logged."""

    def __init__(self, settings: ZooKeeperSettings, name: str) -> None:
        """Raises ConfigurationError if SASL is configured and its package is not installed."""
        self.complaints = LastErrorHandler()
        logger = logging.Logger(name, logging.WARNING)
        logger.addHandler(self.complaints)
        tls, sasl = settings.tls, _sasl_options(settings)
        super().__init__(
            hosts=settings.quorum,
            timeout=settings.session_timeout_s,
            handler=_Handler(settings.connection_timeout_s),
            default_acl=CREATOR_ALL_ACL if settings.acl is ZooKeeperAcl.CREATOR else OPEN_ACL_UNSAFE,
            auth_data=None if settings.digest is None else {("digest", settings.digest.text)},
            sasl_options=sasl,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_FIRST_PAUSE_S, backoff=1.5, max_delay=_LONGEST_PAUSE_S
            ),
            logger=logger,
            use_ssl=tls is not None,
            ca=tls and tls.ca,
            certfile=tls and tls.certificate,
            keyfile=tls and tls.key,
            keyfile_password=tls and tls.key_password and tls.key_password.text,
            check_hostname=tls is not None and tls.check_hostname,
        )
        self._asked_s = settings.session_timeout_s
        self._connection: _Connection = _Connection(
            settings.connection_timeout_s, self, self._conn_retry.copy(), logger=logger, sasl_options=sasl
        )

    @property
    def session_timeout_s(self) -> float:
        """The session timeout that the servers granted, in seconds."""
        return self._connection.granted_s or self._asked_s

    @property
    def is_dead(self) -> bool:
        """Whether the client has given up for good, for example after a rejected authentication; create another one to
        connect."""
        return self._connection.has_ended

    def drop_connection(self) -> None:
        """Closes the connection, not the session: the client reconnects to any server that answers."""
        self._connection.drop()

    def discard(self) -> None:
        """Ends the session, if possible, and all threads. Takes seconds if no server answers; do not call it in a
        listener."""
        with contextlib.suppress(Exception):
            self.stop()
        with contextlib.suppress(Exception):
            self.close()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    def __init__(self, connection_timeout_s: float) -> None:
        super().__init__()
        self._connection_timeout_s = connection_timeout_s

    def create_connection(self, *args: Any, timeout: float | None = None, **more: Any) -> socket.socket:
        longest = self._connection_timeout_s
        bounded = longest if timeout is None else min(timeout, longest)
        made: socket.socket = super().create_connection(*args, timeout=bounded, **more)
        return made


class _Connection(ConnectionHandler):  # type: ignore[misc]
    granted_s = 0.0

    def __init__(self, timeout_s: float, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._timeout_s = timeout_s

    def _invoke(self, timeout_s: float, *args: Any, **more: Any) -> Any:
        """Sends the connect request and returns the answer."""
        return super()._invoke(min(timeout_s, self._timeout_s), *args, **more)

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_ms, connect_ms = super()._connect(host, hostip, port)
        # The server grants whole milliseconds.
        self.granted_s = round(read_ms / _READ_OF_SESSION) / 1000
        return read_ms, connect_ms

    @property
    def has_ended(self) -> bool:
        return self._connection_routine is not None and not self._connection_routine.is_alive()

    def drop(self) -> None:
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _sasl_options(settings: ZooKeeperSettings) -> dict[str, str] | None:
    sasl = settings.sasl
    if sasl is None:
        return None
    if importlib.util.find_spec("puresasl") is None:
        needed = "pip install 'tailrace[sasl]'"
        raise ConfigurationError(
            [
                f"{ZOOKEEPER_SASL.key} is {sasl.mechanism}, but the package pure-sasl is not installed: {needed}"
            ]
        )
    found = {"mechanism": sasl.mechanism.value, "service": sasl.service}
    if sasl.mechanism is SaslMechanism.DIGEST_MD5:
        found |= {"username": sasl.user, "password": sasl.password.text}
    return found
