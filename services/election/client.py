"""kazoo's client, configured by the settings, with three additions.

1. A connection timeout of its own. kazoo waits for a silent server as long as a session lasts: with one machine of
   three gone, the session would expire before it tries the next server. The timeout also covers the session handshake:
   a starting server may accept a connection and forget it (ZOOKEEPER-5051).
2. The session timeout that the servers granted, which may be below the requested one.
3. A way to drop the connection. kazoo sends no ping while it has other requests, so it may never detect a dead server.

Everything else is kazoo's: states, requests, watches. Its Lock and Election recipes are not used: they are hints and do
not fence.
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
"""What was asked for may have happened or not: look again once there is a connection."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_READ_OF_SESSION = 2 / 3
"""The part of the session timeout after which kazoo takes a silent server for gone."""


class LastErrorHandler(logging.Handler):
    """Keeps the last complaint of a client, which makes one for each attempt: for people one line an outage will do."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.text = f"{record.getMessage()}: {error}" if error else record.getMessage()


class Client(KazooClient):  # type: ignore[misc]
    """`complaints` has what the client last complained of."""

    def __init__(self, settings: ZooKeeperSettings, name: str) -> None:
        """Raises ConfigurationError where SASL is asked for and its package is not installed."""
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
        """For how long the servers let the session live without a word, in seconds."""
        return self._connection.granted_s or self._asked_s

    @property
    def is_dead(self) -> bool:
        """Whether the client has given up for ever, such as after it was refused; only another one can connect then."""
        return self._connection.has_ended

    def drop_connection(self) -> None:
        """Ends the connection, not the session: the client connects anew, to whichever server answers."""
        self._connection.drop()

    def discard(self) -> None:
        """Ends the session, if it can, and all threads. Takes seconds where no server answers; not for listeners."""
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

    def _invoke(self, timeout: float, *args: Any, **more: Any) -> Any:
        """What is said to establish a connection, and its answer."""
        return super()._invoke(min(timeout, self._timeout_s), *args, **more)

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_ms, connect_ms = super()._connect(host, hostip, port)
        self.granted_s = read_ms / 1000 / _READ_OF_SESSION
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
            [f"{ZOOKEEPER_SASL.key} is {sasl.mechanism}, but the package pure-sasl is not there: {needed}"]
        )
    found = {"mechanism": sasl.mechanism.value, "service": sasl.service}
    if sasl.mechanism is SaslMechanism.DIGEST_MD5:
        found |= {"username": sasl.user, "password": sasl.password.text}
    return found
