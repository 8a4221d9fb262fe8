"""A ZooKeeper session, and the one thread that sends requests in it.

kazoo calls listeners and watches in its own threads, which must never block. Here they only record a change and wake
the
session's thread, which sends all requests. The thread does not rely on the content of notifications: it reads the nodes
and does what is missing. After an interruption it reads them again with the next connection.

- SUSPENDED (no connection): not `usable` from that moment on. Grants stay held until the lease lapses.
- CONNECTED again in the same session: usable once the session has proved to be alive (`sync` goes through the leader of
  the ensemble) and the listener has checked its nodes.
- LOST, or the lease has lapsed by the local clock: all grants are given up. The listener starts from scratch with the
  next connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.exceptions import ConnectionLoss, KazooException, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from ...infra import threads
from ...infra.logging_setup import logger
from .client import UNSETTLED, Client
from .lease import Lease, uptime
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
        """There is a connection. `anew`: nothing is held yet. Otherwise checks what it holds before it returns."""
        ...

    def on_lost(self, *, gone: bool) -> None:
        """Everything it held is given up. `gone`: the session has ended, and its ephemeral nodes vanish by
        themselves."""
        ...

    def run_once(self) -> float | None:
        """Does what is missing. Returns the seconds until the next call without a notification, or None."""
        ...

    def on_closing(self) -> None:
        """The session is about to end: deletes the nodes that do not vanish with it."""
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
        self._changes = 0
        self._losses = 0
        self._seen_losses = 0
        self._resumed = -1
        self._holds = False
        self._id: int | None = None
        self._beaten = 0.0
        self._asked: float | None = None
        self._not_before = 0.0
        self._look_again: float | None = None
        self._said = ""
        self._unreachable_since: float | None = clock()
        self._client = self._new_client()
        self._thread = threads.Thread(target=self._run, name=name)

    def start(self, tenant: SessionListener) -> None:
        """Connects, and calls the listener as soon as there is a session."""
        self._tenant = tenant
        self._client.start_async()
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether everything that is held is certainly still held: no other process can have got it. Thread-safe."""
        return self._resumed == self._changes and self._lease.renew_at(self._clock())

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
        """The problem with the connection, for people; empty if there is none."""
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
        if self._losses != self._seen_losses:
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
        if state == KazooState.LOST:
            self._losses += 1
        self._changes += 1
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
                _log.exception("work with ZooKeeper failed; tries again", error=str(error))
        self._client.remove_listener(self._on_state)
        if self._client.connected:
            try:
                self._tenant.on_closing()
            except Exception as error:
                _log.debug("not all was removed from ZooKeeper", error=repr(error))
        self._client.discard()

    def _poll_timeout(self) -> float:
        now = self._clock()
        if now < self._not_before:
            return self._not_before - now
        times = [now + _LONGEST_WAIT_S]
        if self._client.connected:
            asked, timeout = self._asked, self.timeout_s
            times.append(self._beaten + timeout / _BEATS if asked is None else asked + timeout * _PATIENCE)
            if self._look_again is not None:
                times.append(self._look_again)
        return max(0.001, min(times) - now)

    def _run_once(self) -> None:
        changes, now = self._changes, self._clock()
        if self._client.is_dead:
            self._renew()
        if self._losses != self._seen_losses:
            self._seen_losses = self._losses
            self._end(gone=True)
        elif self._holds and not self._lease.is_held_until(now):
            self._end(gone=False)
        if not self._client.connected:
            self._log_outage(now)
            return
        if now < self._not_before:
            return
        if changes != self._resumed or not self._holds:
            self._resume(changes)
        self._send_keepalive()
        again = self._tenant.run_once()
        self._look_again = None if again is None else self._clock() + again

    def _resume(self, changes: int) -> None:
        sent = self._clock()
        self._asked = None
        self.settle(self._client.sync_async("/"))
        of_client = self._client.client_id
        if of_client is None:
            raise ConnectionLoss
        if self._holds and of_client[0] == self._id:
            self._lease.confirm(sent, self._clock())
            if not self._lease.is_held_until(self._clock()):
                self._end(gone=False)
        elif self._holds:
            self._end(gone=True)
        self._id = of_client[0]
        self._tenant.on_connected(anew=not self._holds)
        if not self._holds:
            self._lease.begin(sent, self.timeout_s)
            self._holds = True
        self._resumed = changes
        self._unreachable_since = None
        self._log_once("connected to ZooKeeper", "info", session=f"{self._id:#x}", timeout_s=self.timeout_s)

    def _end(self, *, gone: bool) -> None:
        self._lease.expire()
        if self._holds:
            self._log_once(
                "the session with ZooKeeper is lost" if gone else "the lease has lapsed", "warning"
            )
        self._holds = False
        if gone:
            self._id = None
        self._tenant.on_lost(gone=gone)

    def _send_keepalive(self) -> None:
        now = self._clock()
        if not self._client.connected:
            self._asked = None
        elif self._asked is not None:
            if now - self._asked > self.timeout_s * _PATIENCE:
                self._asked = None
                self._client.drop_connection()
        elif now - self._beaten >= self.timeout_s / _BEATS:
            self._beaten = self._asked = now
            self._client.sync_async("/").rawlink(lambda result: self._on_keepalive(now, result))

    def _on_keepalive(self, sent: float, result: Any) -> None:
        if self._asked == sent:
            self._asked = None
        if result.successful():
            self._lease.confirm(sent, self._clock())

    def _renew(self) -> None:
        old = self._client
        _log.error(
            "ZooKeeper does not take this client; tries again",
            quorum=self._settings.quorum,
            reason=old.complaints.text or str(old.client_state),
        )
        old.remove_listener(self._on_state)
        old.discard()
        self._losses += 1
        self._changes += 1
        self._not_before = self._clock() + _LONGEST_WAIT_S
        if not self._closing.wait(_LONGEST_WAIT_S):
            self._client = self._new_client()
            self._client.start_async()

    def _on_refused(self, error: KazooException) -> None:
        self._not_before = self._clock() + _AFTER_A_REFUSAL_S
        text = f"{type(error).__name__} {error}".strip()
        _log.error(
            "ZooKeeper refuses what a master has to do; tries again",
            error=text,
            where=self._settings.cluster_path,
            advice="look at the nodes' ACLs and at the client.acl, client.auth-file and sasl options of "
            "high-availability.zookeeper",
        )

    def _log_outage(self, now: float) -> None:
        if self._unreachable_since is None:
            self._unreachable_since = now
        if now - self._unreachable_since >= min(self._settings.connection_timeout_s, self.timeout_s / 2):
            self._log_once(
                "ZooKeeper cannot be reached; keeps trying",
                "warning",
                quorum=self._settings.quorum,
                reason=self.complaint,
            )

    def _log_once(self, what: str, level: str, **more: Any) -> None:
        if what != self._said:
            self._said = what
            getattr(_log, level)(what, **more)
