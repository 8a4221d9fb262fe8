"""A ZooKeeper session, and the one thread that sends requests in it.

kazoo calls listeners and watches in its own threads, which must never block. Here they only record a change and wake
the session's thread, which sends all requests. The thread does not rely on the content of notifications: it reads the
nodes and sends the missing requests. After an interruption it reads them again with the next connection.

session_state.py has the table of states. A connection proves itself by `sync`, which goes through the leader of the
ensemble. A grant is usable only in the state HELD, without a notification that the thread has not handled yet.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.exceptions import ConnectionLoss, KazooException, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from ...infra import threads
from ...infra.logging_setup import logger
from .client import UNSETTLED, Client
from .lease import Lease, uptime
from .session_state import SessionEvent, SessionState, transition
from .settings import ZooKeeperSettings

_log = logger(__name__)

_BEATS = 6
"""Keepalive requests for each session timeout."""
_PATIENCE = 1 / 3
"""The fraction of the session timeout that an answer may take before the client tries another server."""
_AFTER_A_REFUSAL_S = 5.0
_LONGEST_WAIT_S = 1.0
_CLOSING_S = 10.0


class SessionListener(Protocol):
    """The user of a session. All methods are called on the session's thread."""

    def on_connected(self, *, anew: bool) -> None:
        """Called for a new connection. `anew`: nothing is held yet. Otherwise it checks the held nodes before it
        returns."""
        ...

    def on_lost(self, *, gone: bool) -> None:
        """Called when everything that was held is given up. `gone`: the session has ended, and its ephemeral nodes
        vanish by themselves."""
        ...

    def run_once(self) -> None:
        """Does what is missing."""
        ...


class Session:
    """The session of one listener. It connects in the background and reconnects until it is closed.

    `clock` can be replaced in tests of stopped processes.
    """

    def __init__(
        self, settings: ZooKeeperSettings, name: str, *, clock: Callable[[], float] = uptime
    ) -> None:
        """Raises ConfigurationError if the settings cannot be applied on this machine."""
        self._settings = settings
        self._name = name
        self._clock = clock
        self._lease = Lease()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._state = SessionState.NEW
        self._notifications: deque[SessionEvent] = deque()
        """Notifications of kazoo's threads that this thread has not handled."""
        self._id: int | None = None
        self._beat_at = 0.0
        self._request_sent_at: float | None = None
        self._not_before = 0.0
        self._last_message = ""
        self._unreachable_since: float | None = clock()
        self._client = self._new_client()
        self._thread = threads.Thread(target=self._run, name=name)

    def start(self, listener: SessionListener) -> None:
        """Connects, and calls the listener as soon as there is a session."""
        self._listener = listener
        self._client.start_async()
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether everything that is held is certainly still held, and no other process can hold it. Thread-safe."""
        is_proved = self._state is SessionState.HELD and not self._notifications
        return is_proved and self._lease.renew_at(self._clock())

    @property
    def held(self) -> bool:
        """Whether what is held has not been given up. Thread-safe."""
        return self._lease.is_held_until(self._clock())

    @property
    def client(self) -> Client:
        """The client, for the listener."""
        return self._client

    @property
    def id(self) -> int | None:
        """The session's id, as nodes name their owner; None before the first session and after a loss."""
        return self._id

    @property
    def timeout_s(self) -> float:
        """The session timeout that the servers granted."""
        return self._client.session_timeout_s

    @property
    def complaint(self) -> str:
        """The problem with the connection, for messages; empty if there is none."""
        return "" if self._client.connected else self._client.complaints.text or "not connected"

    def wake(self) -> None:
        """Calls the listener soon. Thread-safe, also from kazoo's threads."""
        self._woken.set()

    def settle(self, result: Any) -> Any:
        """Waits for the answer to a request, for the listener. Raises ZooKeeper's errors and AMBIGUOUS_ERRORS."""
        self._send_keepalive()
        try:
            answer = result.get(timeout=self.timeout_s * _PATIENCE)
        except KazooTimeoutError:
            self._client.drop_connection()
            raise
        if SessionEvent.LOST in self._notifications:
            # kazoo continues by itself in a new session that the listener does not know of.
            raise SessionExpiredError
        return answer

    def close(self) -> None:
        """Ends the session, which frees what it held at once if a server is reachable. May take seconds."""
        self._closing.set()
        self._lease.expire()
        self._woken.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_CLOSING_S)

    def _new_client(self) -> Client:
        client = Client(self._settings, self._name)
        client.add_listener(self._on_state)
        return client

    def _on_state(self, state: str) -> None:
        self._notify(SessionEvent.LOST if state == KazooState.LOST else SessionEvent.CONNECTION_CHANGED)

    def _notify(self, event: SessionEvent) -> None:
        self._notifications.append(event)
        self._woken.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(self._poll_timeout())
            self._woken.clear()
            try:
                if not self._closing.is_set():
                    self._run_once()
            except UNSETTLED as error:
                _log.debug("a request to ZooKeeper was not answered", error=repr(error))
            except KazooException as error:
                self._on_refused(error)
            except Exception as error:
                self._not_before = self._clock() + _AFTER_A_REFUSAL_S
                _log.exception("a request to ZooKeeper failed; retries", error=str(error))
        self._client.remove_listener(self._on_state)
        self._client.discard()

    def _poll_timeout(self) -> float:
        now = self._clock()
        if now < self._not_before:
            return self._not_before - now
        times = [now + _LONGEST_WAIT_S]
        if self._client.connected:
            asked, timeout = self._request_sent_at, self.timeout_s
            times.append(self._beat_at + timeout / _BEATS if asked is None else asked + timeout * _PATIENCE)
        return max(0.001, min(times) - now)

    def _run_once(self) -> None:
        now = self._clock()
        if self._client.is_dead:
            self._renew()
        while self._notifications:
            self._on_event(self._notifications[0])
            # `usable` sees the notification until it sees the state.
            self._notifications.popleft()
        if self._state is not SessionState.NEW and not self._lease.is_held_until(now):
            self._on_event(SessionEvent.LEASE_LAPSED)
        if not self._client.connected:
            self._log_outage(now)
            return
        if now < self._not_before:
            return
        if self._state is not SessionState.HELD:
            self._resume()
        self._send_keepalive()
        self._listener.run_once()

    def _resume(self) -> None:
        sent = self._clock()
        self._request_sent_at = None
        self.settle(self._client.sync_async("/"))
        of_client = self._client.client_id
        if of_client is None:
            raise ConnectionLoss
        if self._state is SessionState.SUSPENDED and of_client[0] == self._id:
            self._lease.confirm(sent, self._clock())
            if not self._lease.is_held_until(self._clock()):
                self._on_event(SessionEvent.LEASE_LAPSED)
        elif self._state is SessionState.SUSPENDED:
            self._on_event(SessionEvent.LOST)
        self._id = of_client[0]
        is_new = self._state is SessionState.NEW
        self._listener.on_connected(anew=is_new)
        if is_new:
            self._lease.begin(sent, self.timeout_s)
        self._on_event(SessionEvent.PROVED)
        self._unreachable_since = None
        self._log_once("connected to ZooKeeper", "info", session=f"{self._id:#x}", timeout_s=self.timeout_s)

    def _on_event(self, event: SessionEvent) -> None:
        is_new, self._state = self._state is SessionState.NEW, transition(self._state, event)
        if event not in (SessionEvent.LOST, SessionEvent.LEASE_LAPSED):
            return
        gone = event is SessionEvent.LOST
        self._lease.expire()
        if not is_new:
            self._log_once(
                "the session with ZooKeeper is lost" if gone else "the lease has lapsed", "warning"
            )
        if gone:
            self._id = None
        self._listener.on_lost(gone=gone)

    def _send_keepalive(self) -> None:
        now = self._clock()
        if not self._client.connected:
            self._request_sent_at = None
        elif self._request_sent_at is not None:
            if now - self._request_sent_at > self.timeout_s * _PATIENCE:
                self._request_sent_at = None
                self._client.drop_connection()
        elif now - self._beat_at >= self.timeout_s / _BEATS:
            self._beat_at = self._request_sent_at = now
            self._client.sync_async("/").rawlink(lambda result: self._on_keepalive(now, result))

    def _on_keepalive(self, sent: float, result: Any) -> None:
        if self._request_sent_at == sent:
            self._request_sent_at = None
        if result.successful():
            self._lease.confirm(sent, self._clock())

    def _renew(self) -> None:
        old = self._client
        _log.error(
            "ZooKeeper rejects this client; retries",
            quorum=self._settings.quorum,
            reason=old.complaints.text or str(old.client_state),
        )
        old.remove_listener(self._on_state)
        old.discard()
        self._notify(SessionEvent.LOST)
        self._not_before = self._clock() + _LONGEST_WAIT_S
        if not self._closing.wait(_LONGEST_WAIT_S):
            self._client = self._new_client()
            self._client.start_async()

    def _on_refused(self, error: KazooException) -> None:
        self._not_before = self._clock() + _AFTER_A_REFUSAL_S
        text = f"{type(error).__name__} {error}".strip()
        _log.error(
            "ZooKeeper rejects a required request; retries",
            error=text,
            where=self._settings.cluster_path,
            advice="check the nodes' ACLs, and the client.acl, client.auth-file and sasl options of "
            "high-availability.zookeeper",
        )

    def _log_outage(self, now: float) -> None:
        if self._unreachable_since is None:
            self._unreachable_since = now
        if now - self._unreachable_since >= min(self._settings.connection_timeout_s, self.timeout_s / 2):
            self._log_once(
                "ZooKeeper cannot be reached; retries",
                "warning",
                quorum=self._settings.quorum,
                reason=self.complaint,
            )

    def _log_once(self, what: str, level: str, **more: Any) -> None:
        if what != self._last_message:
            self._last_message = what
            getattr(_log, level)(what, **more)
