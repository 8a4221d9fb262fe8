"""Assembles the REST server of a jobmanager or a gateway.

A jobmanager without a REST server still leads: if no port is free, it goes on without one. A server that would be open
to others without authentication is refused.
"""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.config.option_types import SECOND
from ...infra.logging_setup import logger
from ...infra.server_socket import is_loopback, listen
from ...infra.tls import ServerTls
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.rest import (
    HISTORY_REFRESH_INTERVAL,
    REST_ADDRESS,
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_ENABLED,
    REST_JWT_JWKS_URL,
    REST_MAX_CONNECTIONS,
    REST_MAX_CONTENT_LENGTH,
    REST_MAX_REQUESTS,
    REST_PORT,
    REST_PRINCIPALS_FILE,
    REST_TLS,
    REST_TLS_AUTHENTICATION,
    REST_TOKEN_FILE,
    WEB_ALLOW_ORIGIN,
)

if TYPE_CHECKING:
    from ..history.past_logs import LogFinder
    from ..rest.application import Settings
    from ..rest.authenticator import Authenticator

_log = logger(__name__)
ENDPOINT = "rest"
"""The name of the server among the endpoints of a master."""
_BACKLOG = 128
_PAUSE_S = 0.2
_END_TIMEOUT_S = 10.0
_AUTHENTICATION = (REST_TOKEN_FILE, REST_PRINCIPALS_FILE, REST_JWT_JWKS_URL)
_WANTED = f"set {', '.join(option.key for option in _AUTHENTICATION)} or {REST_TLS_AUTHENTICATION.key}"


class RestServer(Closeable):
    """A REST server, listening from its construction on.

    Raises ConfigurationError if it must not or can't listen at the configured address.
    """

    def __init__(
        self, configuration: Configuration, *, is_optional: bool = False, finder: LogFinder | None = None
    ) -> None:
        """`is_optional`: a fault of the server does not end the process. `finder`: of the logs of a history server."""
        host = configuration.get(REST_BIND_ADDRESS)
        self._authenticator = _create_authenticator(configuration)
        self._tls = _create_tls(configuration)
        if self._authenticator is None and not is_loopback(host):
            raise ConfigurationError(
                [f"{REST_BIND_ADDRESS.key} is {host}, which other machines reach: {_WANTED}"]
            )
        if self._authenticator is None and configuration.kafka.is_secured:
            raise ConfigurationError(
                [f"Kafka is secured, so a REST server needs to know who asks: {_WANTED}"]
            )
        self._socket = _listen(configuration, host)
        port = configuration.get(REST_PORT) or self._socket.getsockname()[1]
        self.address = f"{configuration.get(REST_ADDRESS) or host}:{port}"
        """host:port, as clients are told."""
        self.url = f"{'http' if self._tls is None else 'https'}://{self.address}"
        self._configuration = configuration
        self._is_optional = is_optional
        self._finder = finder
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="rest")
        self._thread.start()

    def close(self) -> None:
        """Ends the server."""
        self._closed.set()
        self._thread.join(_END_TIMEOUT_S)
        self._socket.close()

    def _run(self) -> None:
        if not self._is_optional:
            self._serve()
            return
        try:
            self._serve()
        except Exception:
            _log.exception("the REST server has failed; the process goes on without it")

    def _serve(self) -> None:
        """Loads the server soon after the start of the process, so that the first request is answered quickly. It
        begins to read the log when the first client connects. A history server reads at once."""
        if self._finder is None:
            # The process starts first: a master has to lead.
            self._await_client(_PAUSE_S)
        from ..rest.application import Settings

        settings = Settings(
            self._authenticator,
            self._configuration.get(REST_MAX_CONTENT_LENGTH),
            self._configuration.get(REST_MAX_REQUESTS),
            self._configuration.get(WEB_ALLOW_ORIGIN),
            checks_host=self._authenticator is None,
            host=self._configuration.get(REST_ADDRESS),
        )
        if self._finder is None:
            from ..rest.assembly import ReplicaServer

            while not self._await_client(_PAUSE_S):
                if self._closed.is_set():
                    return
            server: Closeable = ReplicaServer(
                self._configuration, self._socket, settings, self._tls, address=self.address
            )
        else:
            server = self._create_history_server(self._finder, settings)
        with server:
            self._closed.wait()

    def _await_client(self, timeout_s: float) -> bool:
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def _create_history_server(self, finder: LogFinder, settings: Settings) -> Closeable:
        from ..rest.history_server import HistoryServer

        return HistoryServer(
            finder,
            self._configuration.get(HISTORY_REFRESH_INTERVAL) / SECOND,
            self._socket,
            settings,
            self._configuration.get(REST_MAX_CONNECTIONS),
            self._tls,
        )


def create_master_rest(configuration: Configuration) -> RestServer | None:
    """Returns the REST server of a jobmanager; None without one. Raises ConfigurationError for an address that must not
    be served."""
    if not configuration.get(REST_ENABLED):
        return None
    if configuration.kafka.is_secured and not _has_authentication(configuration):
        _log.warning("no REST server: Kafka is secured, so it needs to know who asks", options=_WANTED)
        return None
    try:
        return RestServer(configuration, is_optional=True)
    except PortsTaken as error:
        _log.warning("no REST server", reason=str(error))
        return None


def _has_authentication(configuration: Configuration) -> bool:
    return configuration.get(REST_TLS_AUTHENTICATION) or any(
        configuration.get(option) is not None for option in _AUTHENTICATION
    )


def _create_authenticator(configuration: Configuration) -> Authenticator | None:
    """Returns None if every request is served. Raises ConfigurationError."""
    if not _has_authentication(configuration):
        return None
    from ..rest.authenticator import Authenticator

    return Authenticator(configuration)


def _create_tls(configuration: Configuration) -> ServerTls | None:
    """Returns None without TLS. Raises ConfigurationError."""
    if not configuration.get(REST_TLS) and not configuration.get(REST_TLS_AUTHENTICATION):
        return None
    from ..rest.tls import create_tls

    return create_tls(configuration)


class PortsTaken(ConfigurationError):
    """No configured port is free."""


def _listen(configuration: Configuration, host: str) -> socket.socket:
    ports, port = configuration.get(REST_BIND_PORT), configuration.get(REST_PORT)
    wanted = [port] if port is not None and not configuration.has(REST_BIND_PORT.key) else list(ports)
    try:
        return listen(host, wanted, _BACKLOG)
    except OSError as error:
        shown = ports if len(wanted) > 1 else wanted[0]
        raise PortsTaken(
            [f"{REST_BIND_PORT.key}: no REST server can be started on {host}:{shown}: {error}"]
        ) from error
