"""Follows the leader of a role through a watch on the information that the leader publishes (Flink's
LeaderRetrievalService).

The last known leader stays valid while ZooKeeper is unreachable: a short outage must not restart anything. It is a hint
for connecting only: the log decides whether a leader's events count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from .leader_information import LeaderInformation, decode
from .paths import Paths
from .session import Session
from .settings import ZooKeeperSettings

_log = logger(__name__)


class NoLeader(Exception):
    """No leader was found in time. The message says whether ZooKeeper answered."""


class LeaderRetriever(Closeable):
    """Follows the leader of one role until it is closed. A context manager.

    Calls `on_leader` in its own thread on each change, with the leader, or None if there is none.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        role: str,
        on_leader: Callable[[LeaderInformation | None], None] = lambda _: None,
    ) -> None:
        """Connects in the background. Raises ConfigurationError if the settings cannot be applied on this machine."""
        self._role = role
        self._quorum = settings.quorum
        self._path = Paths.from_settings(settings).leader(role)
        self._on_leader = on_leader
        self._changed = threading.Condition()
        self._leader: LeaderInformation | None = None
        self._stale = True
        self._session = Session(settings, f"leader-of-{role}")
        self._session.start(self)

    @property
    def leader(self) -> LeaderInformation | None:
        """Returns the last known leader."""
        return self._leader

    def wait(self, timeout_s: float) -> LeaderInformation:
        """Waits for a leader and returns it. Raises NoLeader."""
        with self._changed:
            if (
                self._changed.wait_for(lambda: self._leader is not None, timeout_s)
                and self._leader is not None
            ):
                return self._leader
        complaint = self._session.complaint
        if complaint:
            reason = f"ZooKeeper at {self._quorum} cannot be reached ({complaint}): is it up, is the address correct?"
        else:
            reason = f"no leader is published in {self._path}: is a jobmanager running?"
        raise NoLeader(f"no leader of {self._role} was found within {timeout_s:g} s: {reason}")

    def close(self) -> None:
        """Stops following."""
        self._session.close()

    def on_connected(self, *, anew: bool) -> None:
        """Reads again: the watch was lost with the connection (SessionListener)."""
        del anew
        self._stale = True

    def on_lost(self, *, gone: bool) -> None:
        """Does nothing: it holds nothing (SessionListener)."""

    def run_once(self) -> None:
        """Reads if something changed (SessionListener)."""
        while self._stale:
            self._stale = False
            try:
                found = self._read()
            except Exception:
                self._stale = True
                raise
            if found != self._leader:
                with self._changed:
                    self._leader = found
                    self._changed.notify_all()
                self._on_leader(found)

    def _read(self) -> LeaderInformation | None:
        client, settle = self._session.client, self._session.settle
        # Set the watch first: it also fires when the node is created.
        if settle(client.exists_async(self._path, watch=self._on_event)) is None:
            return None
        try:
            content, _ = settle(client.get_async(self._path))
        except NoNodeError:
            return None
        found = decode(content)
        if found is None:
            _log.warning("the information that a leader published cannot be read", path=self._path)
        return found

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._stale = True
            self._session.wake()
