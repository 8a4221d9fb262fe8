"""Waits for the answers to the requests of one client. Where they come from, subclasses say."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from ...infra.closing import Closeable
from ...schemas import client
from ...schemas.event import Record

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


class Subscription(Closeable):
    """A subscription for one thread. It starts when it is opened: if that is before a request, it gets every answer."""

    def __init__(self) -> None:
        self._unread: list[Record] = []

    @abstractmethod
    def follow(self, job_id: str) -> None:
        """From now on also receives the events of a job that `JobIncidentTracker` needs, if it can."""

    @property
    @abstractmethod
    def configuration(self) -> Mapping[str, str]:
        """The cluster's configuration, as far as it is known."""

    @abstractmethod
    def disconnect(self) -> None:
        """Closes the connection until the next `poll`, which continues from here."""

    @abstractmethod
    def _read(self, timeout_s: float) -> list[Record]:
        """Returns the new events; waits up to `timeout_s` seconds for the first."""

    def poll(self, timeout_s: float) -> list[Record]:
        """Returns the events since the last call; waits up to `timeout_s` seconds for the first. Raises
        LogUnavailable."""
        if self._unread:
            unread, self._unread = self._unread, []
            return unread
        return self._read(timeout_s)

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
        """Returns the JobAccepted event with its header. Raises JobRejectedError, NoAnswerError, LogUnavailable."""
        found = self.wait_for_acceptance(job_id, timeout_s)
        if found is None:
            raise not_accepted_error(job_id, timeout_s)
        return found

    def wait_for_acceptance(self, job_id: str, timeout_s: float) -> Record | None:
        """Like `accepted_at`, but returns None on timeout."""

        def answer(record: Record) -> Record | None:
            body = record.body
            if isinstance(body, client.JobRejected) and body.job_id == job_id:
                raise JobRejectedError(job_id, body.reason)
            return record if isinstance(body, client.JobAccepted) and body.job_id == job_id else None

        return self.wait_for(answer, timeout_s)

    def close(self) -> None:
        """Closes the connection."""
        self.disconnect()
