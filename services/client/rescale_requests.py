"""Follows a request for another parallelism of a job until it runs at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ...schemas import client, job_master
from ...schemas.event import Record
from ...schemas.types import JobStatus
from .log_subscription import ClusterSubscription
from .subscription import NoAnswerError

_ANSWER_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.2


class RescaleFailedError(Exception):
    """The parallelism was not changed; the message is the reason."""


class RescaleRequest:
    """A request for another parallelism. The caller passes events in the order of the log."""

    def __init__(self, job_id: str, requester: str) -> None:
        """`requester`: the beginning of the address that the request is sent from."""
        self._job_id = job_id
        self._requester = requester
        self._request: int | None = None
        self.is_started = False
        """Whether the JobMaster has accepted it."""
        self.cut: int | None = None
        """The checkpoint from which the tasks restart, once it is triggered."""
        self.is_restarting = False

    def on_event(self, record: Record) -> Mapping[str, int] | None:
        """Returns the new parallelism by vertex id once the job runs at it. Raises RescaleFailedError."""
        cause, body = record.header.cause, record.body
        match body:
            case job_master.RescaleJob(job_id=self._job_id, requester=requester):
                if self._request is None and requester.startswith(self._requester):
                    self._request = record.offset
            case job_master.RescaleStarted(job_id=self._job_id) if cause == self._request:
                self.is_started = True
            case job_master.CheckpointTriggered(job_id=self._job_id) as triggered if self.is_started:
                if triggered.options.stops:
                    self.cut = triggered.checkpoint_id
            case client.JobStatusChanged(job_id=self._job_id, status=JobStatus.RESTARTING):
                self.is_restarting = self.cut is not None
            case client.JobRescaled(job_id=self._job_id) if cause == self._request:
                return body.parallelism
            case client.RescaleFailed(job_id=self._job_id) if self._is_answer(record):
                raise RescaleFailedError(body.reason)
            case _:
                pass
        return None

    def wait(
        self,
        conversation: ClusterSubscription,
        *,
        timeout_s: float = _ANSWER_TIMEOUT_S,
        show: Callable[[RescaleRequest], None] = lambda _: None,
    ) -> Mapping[str, int]:
        """Waits until the job runs at the new parallelism, for as long as that takes; returns it. `show` is called
        again and again. Raises RescaleFailedError, NoAnswerError if no JobMaster answers within `timeout_s`,
        LogUnavailable."""
        until = time.monotonic() + timeout_s
        while (done := conversation.wait_for(self.on_event, _POLL_INTERVAL_S)) is None:
            show(self)
            if not self.is_started and time.monotonic() > until:
                raise NoAnswerError(
                    f"another parallelism of job {self._job_id} was requested, but no jobmanager answered within "
                    f"{timeout_s:g} s: is one running? The next one to start will process it"
                )
        return done

    def _is_answer(self, record: Record) -> bool:
        by_dispatcher = self._request is None and record.header.recipient.startswith(self._requester)
        return by_dispatcher or record.header.cause == self._request
