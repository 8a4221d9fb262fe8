"""The PipelineExecutor of `tailrace run`: gives a program's graphs to the cluster. Nothing in the services but the
command line knows pipelines.api.

Attached, it shows what a job prints while it waits for the job's end. Ctrl-C then asks for the job to be cancelled
and goes on waiting; a second Ctrl-C leaves the job to the cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from ...pipelines.api.executor import JobExecutionResult
from ...pipelines.graph.errors import ProgramError
from ...pipelines.graph.program import BUILD_TIMEOUT_S
from ...schemas.client import JobFinished, JobStatusChanged
from ...schemas.event import Record
from ...schemas.states import JOB_ENDS
from ...schemas.types import EntryPoint, JobGraph, JobStatus
from ..client import (
    Client,
    Conversation,
    Incident,
    Incidents,
    JobRejectedError,
    OutputRecord,
    read_output,
)

ACCEPT_TIMEOUT_S = 30.0


class Listener(Protocol):
    """What people are told of."""

    def said(self, line: str) -> None:
        """Something about the job."""

    def accepted(self, job_id: str, name: str) -> None:
        """The cluster will run the job."""

    def befell(self, incident: Incident) -> None:
        """Something has happened to the job, which may go on nevertheless."""

    def printed(self, record: OutputRecord) -> None:
        """A record of the job's output; called on another thread. May raise BrokenPipeError."""


class Outcome(msgspec.Struct, frozen=True):
    """How a job ended; INITIALIZING where nobody waited."""

    job_id: str
    status: JobStatus
    reason: str | None = None


class ClusterExecutor:
    """`outcomes` are those of the jobs that the program executed; `failure` is why one could not be given over."""

    def __init__(self, client: Client, listener: Listener, *, detached: bool) -> None:
        self._client = client
        self._listener = listener
        self._detached = detached
        self.outcomes: dict[str, Outcome] = {}
        self.failure: Exception | None = None

    def execute(self, job_graph: JobGraph) -> SubmittedJob:
        """Returns when the job is accepted. Raises ProgramError."""
        try:
            return self._submitted(job_graph, None, None, ACCEPT_TIMEOUT_S)
        except JobRejectedError as error:
            self.failure = error
            raise ProgramError(f"job {error.job_id} was rejected: {error.reason}") from error
        except Exception as error:
            # Inside the program this would look like the program's own mistake.
            self.failure = error
            raise

    def execute_entry_point(
        self, entry_point: EntryPoint, parallelism: int | None, job_id: str | None
    ) -> SubmittedJob:
        """As `execute`, of a program that the jobmanager runs. Raises JobRejectedError, NoAnswer, LogUnavailable."""
        return self._submitted(entry_point, parallelism, job_id, ACCEPT_TIMEOUT_S + BUILD_TIMEOUT_S)

    def _submitted(
        self, what: JobGraph | EntryPoint, parallelism: int | None, wanted_id: str | None, timeout: float
    ) -> SubmittedJob:
        conversation = self._client.conversation()
        try:
            job_id = self._client.submit(what, parallelism, wanted_id)
            if not self._detached:
                conversation.follow(job_id)
            name = conversation.accepted(job_id, timeout).name
        except BaseException:
            conversation.close()
            raise
        self._record(Outcome(job_id, JobStatus.INITIALIZING))
        self._listener.accepted(job_id, name)
        return SubmittedJob(
            self._client,
            conversation,
            job_id,
            self._listener,
            detached=self._detached,
            record=self._record,
            give_up=self._give_up,
        )

    def _record(self, outcome: Outcome) -> None:
        self.outcomes[outcome.job_id] = outcome

    def _give_up(self, failure: Exception) -> None:
        self.failure = failure


class SubmittedJob:
    """The program's JobClient."""

    def __init__(
        self,
        client: Client,
        conversation: Conversation,
        job_id: str,
        listener: Listener,
        *,
        detached: bool,
        record: Callable[[Outcome], None],
        give_up: Callable[[Exception], None],
    ) -> None:
        self._client = client
        self._conversation = conversation
        self._job_id = job_id
        self._listener = listener
        self._detached = detached
        self._record = record
        self._give_up = give_up
        self._incidents = Incidents(job_id)
        self._status = JobStatus.INITIALIZING
        self._outcome: Outcome | None = None

    @property
    def job_id(self) -> str:
        """The id under which the cluster knows the job."""
        return self._job_id

    def status(self) -> JobStatus:
        """As far as the log has told it."""
        self._listen(0)
        return self._status

    def cancel(self) -> None:
        """Asks for the job to be cancelled; returns at once."""
        self._client.cancel(self._job_id)

    def result(self) -> JobExecutionResult:
        """Waits for the job's end, unless detached, and shows what it prints meanwhile."""
        if self._detached or self._outcome is not None:
            return JobExecutionResult(self._job_id, self._status)
        ended = threading.Event()
        printing = _Printing(self._client, self._job_id, self._listener, ended)
        interrupted = False
        try:
            self._wait(printing)
        except KeyboardInterrupt:
            interrupted = True
            self._cancel_and_wait(printing)
        ended.set()
        printing.join()
        if printing.failure is not None:
            # Inside the program this would look like the program's own mistake.
            self._give_up(printing.failure)
            raise printing.failure
        if interrupted:
            self._listener.said(f"job {self._job_id} is {self._status.value}")
            raise KeyboardInterrupt
        return JobExecutionResult(self._job_id, self._status)

    def _wait(self, printing: _Printing) -> None:
        while self._outcome is None and printing.failure is None:
            self._listen(0.2)

    def _cancel_and_wait(self, printing: _Printing) -> None:
        self._listener.said(f"interrupted: cancelling job {self._job_id} (Ctrl-C again: do not wait)")
        try:
            self.cancel()
            self._wait(printing)
        except KeyboardInterrupt:
            self._listener.said(f"job {self._job_id} is left to the cluster, which is cancelling it")
            raise

    def _listen(self, timeout: float) -> None:
        records = self._conversation.poll(timeout)
        for record in records:
            self._hear(record)
        for incident in self._incidents.hear(records):
            self._listener.befell(incident)

    def _hear(self, record: Record) -> None:
        match record.body:
            case JobStatusChanged(job_id=self._job_id, status=status):
                self._status = status
                if status is JobStatus.SUSPENDED:
                    # The cluster is about to end, and this program's wait with it.
                    self._outcome = Outcome(self._job_id, status)
                    self._record(self._outcome)
                elif status not in JOB_ENDS:
                    self._listener.said(f"job {self._job_id} is {status.value}")
            case JobFinished(job_id=self._job_id, status=status, reason=reason):
                self._status = status
                self._outcome = Outcome(self._job_id, status, reason)
                self._record(self._outcome)
            case _:
                pass


class _Printing:
    """A thread that shows the job's output until the job has ended and all of it was shown."""

    def __init__(self, client: Client, job_id: str, listener: Listener, ended: threading.Event) -> None:
        self.failure: Exception | None = None
        self._source = read_output(client.configuration, job_id, over=ended.is_set)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            for record in self._source:
                self._listener.printed(record)
        except Exception as error:
            self.failure = error
