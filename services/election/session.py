"""A ZooKeeper session, and the one thread that uses it.

kazoo's listeners and watches run in kazoo's threads, which must never wait. Here they note what changed and wake the
session's thread, which sends all requests. The thread trusts no notification: it reads the current state and does what
is missing, so interrupted work is repeated with the next connection.

- SUSPENDED (no connection): not `usable` from that moment on. Everything stays held until the lease expires.
- CONNECTED again in the same session: usable once `sync`, which goes through the leader of the ensemble, proves that
  the session lives, and the listener has checked what it holds.
- LOST, or the lease expired by the local clock: everything is given up. The listener starts anew with the next
  connection.
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
"""So often within a session timeout the session is proved alive."""
_PATIENCE = 1 / 3
"""The part of the session timeout that an answer may take before another server is tried."""
_AFTER_A_REFUSAL_S = 5.0
_LONGEST_WAIT_S = 1.0
_CLOSING_S = 10.0


class SessionListener(Protocol):
    """What is done in a session; all by the session's thread."""

    def on_connected(self, *, anew: bool) -> None:
        """There is a connection; `anew`: nothing is held yet. What is held is looked after before this returns."""
        ...

    def on_lost(self, *, gone: bool) -> None:
        """All that was held is given up; `gone`: the session is over, and nodes of it vanish by themselves."""
        ...

    def run_once(self) -> float | None:
        """Does what is missing. Returns the seconds after which to look again although nobody says so, or None."""
        ...

    def on_closing(self) -> None:
        """The session is about to be ended: the last chance to remove what does not go with it."""
        ...


class Session:
    """Of one tenant; connects in the background and stays with it until it is closed.

    `clock` is for tests of what a stopped process finds.
    """

    def __init__(
        self, settings: ZooKeeperSettings, name: str, *, clock: Callable[[], float] = uptime
    ) -> None:
        """Raises ConfigurationError where the settings cannot be obeyed on this machine."""
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
        """Connects, and has the tenant work as soon as there is a session."""
        self._tenant = tenant
        self._client.start_async()
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether all that is held is certainly held still, and nobody else can have got it. From any thread."""
        return self._resumed == self._changes and self._lease.renew_at(self._clock())

    @property
    def held(self) -> bool:
        """Whether what is held is not given up. From any thread."""
        return self._lease.is_held_until(self._clock())

    @property
    def client(self) -> Client:
        """For the tenant."""
        return self._client

    @property
    def id(self) -> int | None:
        """The session's id, as nodes name their owner; None before the first and after a loss."""
        return self._id

    @property
    def timeout_s(self) -> float:
        """The session timeout that the servers granted."""
        return self._client.session_timeout_s

    @property
    def complaint(self) -> str:
        """What is wrong with the connection, for people; empty where nothing is."""
        return "" if self._client.connected else self._client.complaints.text or "not connected"

    def wake(self) -> None:
        """Has the tenant work soon; from any thread, kazoo's too."""
        self._woken.set()

    def settle(self, result: Any) -> Any:
        """Waits for the answer to a request; for the tenant. Raises what ZooKeeper answers, and UNSETTLED errors."""
        self._send_keepalive()
        try:
            answer = result.get(timeout=self.timeout_s * _PATIENCE)
        except KazooTimeoutError:
            self._client.drop_connection()
            raise
        if self._losses != self._seen_losses:
            # kazoo goes on by itself, in a session that the tenant has not heard of.
            raise SessionExpiredError
        return answer

    def close(self) -> None:
        """Ends the session: what it held is free at once, where a server can be reached. That may take seconds."""
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
