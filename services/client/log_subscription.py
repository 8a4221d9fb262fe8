"""Subscribes to the events that the log has for one client, for all clients, and for everyone.

A subscription starts at the end of the log at the time when it is opened; if it is opened before a request, it gets
every answer. Like every reader it ignores events of deposed leaders, so it folds the leadership from the start. It also
follows the cluster's configuration in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from ...infra.closing import Closeable
from ...schemas import client
from ...schemas.event import EVERYONE, Record
from ...schemas.everyone import ConfigurationChanged
from ..core.leadership import LeadershipState
from ..core.role import CLIENT, JOB_MASTER, address
from ..log import EventLog, Tail
from ..snapshots.recovery import read_newest_client_view
from ..snapshots.store import SnapshotStore
from . import job_incidents

T = TypeVar("T")
_MAX_WAIT_S = 0.2


class JobRejectedError(Exception):
    """The cluster rejects a request; the message says why and what to do."""

    def __init__(self, job_id: str, reason: str) -> None:
        self.job_id = job_id
        self.reason = reason
        super().__init__(reason)


class NoAnswerError(Exception):
    """No jobmanager answered in time. The request remains in the submissions topic."""


def not_accepted_error(job_id: str, timeout_s: float) -> NoAnswerError:
    """Returns the error for a submitted job without an answer for `timeout_s` seconds."""
    return NoAnswerError(
        f"the submission of job {job_id} was written, but was not accepted within {timeout_s:g} s: a "
        "jobmanager is busy with other submissions, or none runs (`tailrace cluster status`). The job is not "
        "lost: `tailrace list` shows it after it is accepted"
    )


class ClusterSubscription(Closeable):
    """A subscription for one thread. Raises LogUnavailable when opened."""

    def __init__(self, log: EventLog, client_address: str, store: SnapshotStore | None = None) -> None:
        """The leadership is read from the log, and from a snapshot in `store` if there is one."""
        end = log.end()
        self._leadership, self._configuration, start = (
            (LeadershipState(), {}, 0) if store is None else read_newest_client_view(log, store)
        )
        self._unread: list[Record] = []
        tail = log.tail(start, concerns=lambda _, recipient: recipient == EVERYONE)
        try:
            while tail.position < end:
                for record in tail.poll(1.0):
                    if record.offset < end:
                        self._apply(record)
        finally:
            tail.close()
        self._mine = frozenset({client_address, CLIENT, EVERYONE})
        self._job_master: str | None = None
        self._log = log
        self._position = end
        """The position to continue from while there is no connection."""
        self._connected: Tail | None = None
        self._connect()

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

    def _apply(self, record: Record) -> None:
        if isinstance(record.body, ConfigurationChanged) and self._leadership.accepts(record):
            self._configuration = record.body.configuration
        self._leadership = self._leadership.evolve(record)

    def poll(self, timeout_s: float) -> list[Record]:
        """Returns the events since the last call; waits up to `timeout_s` seconds for the first."""
        if self._unread:
            unread, self._unread = self._unread, []
            return unread
        accepted = []
        for record in self._connect().poll(timeout_s):
            if self._leadership.accepts(record):
                self._apply(record)
                accepted.append(record)
        return accepted

    def wait_for(self, answer: Callable[[Record], T | None], timeout_s: float | None = None) -> T | None:
        """Returns the first answer that is not None; None after `timeout_s` seconds. Earlier events are skipped."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while until is None or time.monotonic() < until:
            records = self.poll(_MAX_WAIT_S)
            for index, record in enumerate(records):
                found = answer(record)
                if found is not None:
                    # Keep the events after the answer for the next call.
                    self._unread = records[index + 1 :]
                    return found
        return None

    def accepted_at(self, job_id: str, timeout_s: float) -> Record:
        """Returns the JobAccepted event with its header. Raises like `await_accepted`."""
        found = self.wait_for_acceptance(job_id, timeout_s)
        if found is None:
            raise not_accepted_error(job_id, timeout_s)
        return found

    def wait_for_acceptance(self, job_id: str, timeout_s: float) -> Record | None:
        """Like `accepted_at`, but returns None on timeout. Raises JobRejectedError."""

        def answer(record: Record) -> Record | None:
            body = record.body
            if isinstance(body, client.JobRejected) and body.job_id == job_id:
                raise JobRejectedError(job_id, body.reason)
            return record if isinstance(body, client.JobAccepted) and body.job_id == job_id else None

        return self.wait_for(answer, timeout_s)

    def disconnect(self) -> None:
        """Closes the connection until the next `poll`, which continues from here."""
        if self._connected is not None:
            self._position = self._connected.position
            self._connected.close()
            self._connected = None

    def close(self) -> None:
        """Closes the connection."""
        self.disconnect()

    def _connect(self) -> Tail:
        if self._connected is None:
            self._connected = self._log.tail(self._position, concerns=self._concerns)
        return self._connected

    def _concerns(self, sender: str, recipient: str) -> bool:
        return recipient in self._mine or (
            self._job_master is not None and job_incidents.is_about_job(self._job_master, sender, recipient)
        )
