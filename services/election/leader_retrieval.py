"""Finds the leader of a role: follows what the leader publishes, through a ZooKeeper watch (LeaderRetrievalService).

The last known leader stays known while ZooKeeper is unreachable, so that a short outage restarts nothing. The address
is a hint; the log decides whether the leader's events count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from ...infra.logging_setup import logger
from .leader_information import LeaderInformation, decode
from .paths import Paths
from .session import Session
from .settings import ZooKeeperSettings

_log = logger(__name__)


class NoLeader(Exception):
    """Nobody was found in time; the text says whether ZooKeeper could be asked at all."""


class LeaderRetriever:
    """Of one role, until it is closed. A context manager.

    `on_leader` is told of each change, in a thread of the retriever's own: the leader, or None when there is none.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        role: str,
        on_leader: Callable[[LeaderInformation | None], None] = lambda _: None,
    ) -> None:
        """Connects in the background. Raises ConfigurationError where the settings cannot be obeyed here."""
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
        """As last seen."""
        return self._leader

    def wait(self, timeout_s: float) -> LeaderInformation:
        """The leader, as soon as there is one. Raises NoLeader."""
        with self._changed:
            if (
                self._changed.wait_for(lambda: self._leader is not None, timeout_s)
                and self._leader is not None
            ):
                return self._leader
        complaint = self._session.complaint
        if complaint:
            reason = f"ZooKeeper at {self._quorum} cannot be reached ({complaint}): does it run, is the address right?"
        else:
            reason = f"nobody has published itself in {self._path}: is a jobmanager running?"
        raise NoLeader(f"no leader of {self._role} was found within {timeout_s:g} s: {reason}")

    def close(self) -> None:
        """Follows no more."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on_connected(self, *, anew: bool) -> None:
        """The watch went with the connection: looks again (Tenant)."""
        del anew
        self._stale = True

    def on_lost(self, *, gone: bool) -> None:
        """Nothing is held (Tenant)."""

    def on_closing(self) -> None:
        """Nothing of it is there (Tenant)."""

    def run_once(self) -> None:
        """Looks, if something has changed (Tenant)."""
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
        # The watch first: it also tells of a node that is not there yet.
        if settle(client.exists_async(self._path, watch=self._on_event)) is None:
            return None
        try:
            content, _ = settle(client.get_async(self._path))
        except NoNodeError:
            return None
        found = decode(content)
        if found is None:
            _log.warning("what a leader says of itself cannot be read", path=self._path)
        return found

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._stale = True
            self._session.wake()
