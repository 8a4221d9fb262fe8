"""Follows a request for a checkpoint or savepoint: the subtasks that have not acknowledged, and the resulting location.

Answers name the client and the job, but not the request. A client with several concurrent requests for one job
therefore uses a separate address (a `Client`) for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from ...schemas import client, job_master
from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS, JOB_ENDS
from ...schemas.types import CompletedCheckpoint, JobStatus
from ..configuration import Configuration
from .client import Client
from .log_subscription import ClusterSubscription
from .subscription import NoAnswerError

_ANSWER_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.2


class CheckpointFailedError(Exception):
    """A checkpoint or savepoint failed; the message is the reason."""

    def __init__(self, job_id: str, reason: str) -> None:
        self.job_id = job_id
        self.reason = reason
        super().__init__(reason)


class SavepointNotDisposedError(Exception):
    """A savepoint was not deleted; the message is the reason."""


class CheckpointProgress(msgspec.Struct, frozen=True):
    """A checkpoint in progress: the number of subtasks, and the Executions that have not acknowledged yet."""

    checkpoint_id: int
    subtasks: int
    waiting_for: tuple[str, ...]


class CheckpointRequest:
    """A request for a checkpoint of a job. The caller passes events in the order of the log."""

    def __init__(self, job_id: str, requester: str) -> None:
        self._job_id = job_id
        self._requester = requester
        self._requests: set[int] = set()
        self.is_acknowledged = False
        """Whether a JobMaster has answered it."""
        self.progress: CheckpointProgress | None = None
        """Set once the checkpoint is triggered."""
        self.ended: JobStatus | None = None
        """The final status of the job, if it has ended."""

    def on_event(self, record: Record) -> CompletedCheckpoint | None:
        """Returns the checkpoint once it is complete. Raises CheckpointFailedError once it has failed."""
        to_me = record.header.recipient == self._requester
        match record.body:
            case job_master.TriggerCheckpoint(job_id=self._job_id, requester=self._requester):
                self.is_acknowledged = True
                self._requests.add(record.offset)
            case job_master.CheckpointTriggered(job_id=self._job_id) as triggered:
                if self._requests & set(triggered.requests):
                    awaited = triggered.to_acknowledge
                    self.progress = CheckpointProgress(triggered.checkpoint_id, len(awaited), awaited)
            case job_master.AcknowledgeCheckpoint(
                job_id=self._job_id, checkpoint_id=checkpoint_id, acknowledgements=parts
            ):
                if self.progress is not None and checkpoint_id == self.progress.checkpoint_id:
                    for part in parts:
                        self._done(part.execution_attempt_id)
            case job_master.UpdateTaskExecutionState(job_id=self._job_id) as update:
                if update.execution_state in EXECUTION_ENDS:
                    self._done(update.execution_attempt_id)
            case client.JobStatusChanged(job_id=self._job_id, status=status) if status in JOB_ENDS:
                self.ended = status
            case client.CheckpointSucceeded(job_id=self._job_id, checkpoint=done) if to_me:
                return done
            case client.CheckpointFailed(job_id=self._job_id, reason=reason) if to_me:
                raise CheckpointFailedError(self._job_id, reason)
            case _:
                pass
        return None

    def wait(
        self,
        conversation: ClusterSubscription,
        *,
        timeout_s: float = _ANSWER_TIMEOUT_S,
        show: Callable[[CheckpointProgress | None], None] = lambda _: None,
    ) -> CompletedCheckpoint:
        """Waits until the checkpoint is complete, for as long as the job takes.

        The subscription must follow the job since before the request. `show` is called with the current progress; None
        until the checkpoint is triggered.

        Raises CheckpointFailedError, NoAnswerError if no JobMaster answers within `timeout_s` seconds, and
        LogUnavailable.
        """
        until = time.monotonic() + timeout_s
        while (done := conversation.wait_for(self.on_event, _POLL_INTERVAL_S)) is None:
            if self.is_acknowledged:
                show(self.progress)
            if not self.is_acknowledged and time.monotonic() > until:
                raise NoAnswerError(
                    f"a checkpoint of job {self._job_id} was requested, but no jobmanager answered within "
                    f"{timeout_s:g} s: is one running? The next one to start will process it"
                )
        if self.progress is not None:
            # A fast checkpoint was never shown in progress.
            show(self.progress)
        return done

    def wait_for_end(self, conversation: ClusterSubscription, timeout_s: float) -> JobStatus | None:
        """Returns the final status of the job; None if it does not end within `timeout_s` seconds."""

        def answer(record: Record) -> JobStatus | None:
            self.on_event(record)
            return self.ended

        return self.ended or conversation.wait_for(answer, timeout_s)

    def _done(self, attempt: str) -> None:
        known = self.progress
        if known is not None and attempt in known.waiting_for:
            left = tuple(other for other in known.waiting_for if other != attempt)
            self.progress = msgspec.structs.replace(known, waiting_for=left)


def request_checkpoint(
    configuration: Configuration, job_id: str, what: Callable[[Client], None]
) -> CompletedCheckpoint:
    """Sends the request from a separate address, by a method of Client, and waits. Raises like
    `CheckpointRequest.wait`."""
    with (
        Client(configuration, name="checkpoint", timeout_s=10.0) as asker,
        asker.subscribe() as conversation,
    ):
        conversation.follow(job_id)
        what(asker)
        return CheckpointRequest(job_id, asker.address).wait(conversation)


def dispose_savepoint(configuration: Configuration, path: str, *, timeout_s: float = 60.0) -> Sequence[str]:
    """Requests the deletion of a savepoint and waits for it. Raises SavepointNotDisposedError, NoAnswerError,
    LogUnavailable.

    Returns the names of the first few other files in its directory, because of which the directory remains.
    """

    def answer(record: Record) -> client.SavepointDisposed | None:
        body = record.body
        return body if isinstance(body, client.SavepointDisposed) and record.header.recipient == me else None

    with Client(configuration, name="dispose", timeout_s=10.0) as asker, asker.subscribe() as conversation:
        me = asker.address
        asker.dispose_savepoint(path)
        answered = conversation.wait_for(answer, timeout_s)
    if answered is None:
        raise NoAnswerError(
            f"the disposal of {path} was requested, but no jobmanager answered within {timeout_s:g} s: is one running? "
            "The next one to start will process it"
        )
    if answered.failure is not None:
        raise SavepointNotDisposedError(answered.failure)
    return answered.left
