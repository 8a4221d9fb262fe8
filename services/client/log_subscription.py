"""Subscribes to the events that the log has for one client, for all clients, and for everyone.

A subscription starts at the end of the log at the time when it is opened; if it is opened before a request, it gets
every answer. Like every reader it ignores events of deposed leaders, so it folds the leadership from the start. It also
follows the cluster's configuration in the log.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.event import EVERYONE, Record
from ...schemas.everyone import ConfigurationChanged
from ..core.leadership import LeadershipState
from ..core.role import CLIENT, DISPATCHER, JOB_MASTER, address
from ..log import EventLog, Tail
from ..snapshots.recovery import read_newest_client_view
from ..snapshots.store import SnapshotStore
from . import job_incidents
from .subscription import Subscription


class ClusterSubscription(Subscription):
    """A subscription for one thread. Raises LogUnavailable when opened."""

    def __init__(self, log: EventLog, client_address: str, store: SnapshotStore | None = None) -> None:
        """The leadership is read from the log, and from a snapshot in `store` if there is one."""
        super().__init__()
        end = log.end()
        self._leadership, self._configuration, start = (
            (LeadershipState(), {}, 0) if store is None else read_newest_client_view(log, store)
        )
        tail = log.tail(start, concerns=lambda _, recipient: recipient == EVERYONE)
        try:
            while tail.position < end:
                for record in tail.poll(1.0):
                    if record.offset < end:
                        self._apply(record)
        finally:
            tail.close()
        self._own_addresses = frozenset({client_address, CLIENT, EVERYONE})
        self._job_master: str | None = None
        self._log = log
        self._position = end
        """The position to continue from while there is no connection."""
        self._connected: Tail | None = None
        self._connect()

    def add_address(self, client_address: str) -> None:
        """From now on also receives the answers to another client."""
        self._own_addresses |= {client_address}

    def follow(self, job_id: str) -> None:
        """From now on also receives the events of a job that `JobIncidentTracker` needs."""
        self._job_master = address(JOB_MASTER, job_id)

    @property
    def feature_level(self) -> int:
        """The cluster's feature level, as far as the log has been read."""
        return self._leadership.feature_level

    @property
    def configuration(self) -> Mapping[str, str]:
        """The cluster's configuration, as far as the log has been read."""
        return self._configuration

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The servers of the leading master: name -> host:port, as far as the log has been read."""
        leader = self._leadership.leader(DISPATCHER)
        return {} if leader is None else leader.endpoints

    def _apply(self, record: Record) -> None:
        if isinstance(record.body, ConfigurationChanged) and self._leadership.accepts(record):
            self._configuration = record.body.configuration
        self._leadership = self._leadership.evolve(record)

    def _read(self, timeout_s: float) -> list[Record]:
        accepted = []
        for record in self._connect().poll(timeout_s):
            if self._leadership.accepts(record):
                self._apply(record)
                accepted.append(record)
        return accepted

    def disconnect(self) -> None:
        """Closes the connection until the next `poll`, which continues from here."""
        if self._connected is not None:
            self._position = self._connected.position
            self._connected.close()
            self._connected = None

    def _connect(self) -> Tail:
        if self._connected is None:
            self._connected = self._log.tail(self._position, concerns=self._concerns)
        return self._connected

    def _concerns(self, sender: str, recipient: str) -> bool:
        return recipient in self._own_addresses or (
            self._job_master is not None and job_incidents.is_about_job(self._job_master, sender, recipient)
        )
