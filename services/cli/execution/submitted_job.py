"""The JobClient of a program that `tailrace run` runs: a job that the cluster has accepted.

`result` waits for the job's end, and shows what the job prints meanwhile. Ctrl-C requests the job's cancellation and
continues to wait; a second Ctrl-C leaves the job to the cluster. A detached job is not waited for, and nothing of it is
shown. A program may use a JobClient from several threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ....infra import threads
from ....pipelines.api.executor import CheckpointFailedError, JobExecutionResult, JobFailedError
from ....schemas.client import JobAccepted, JobFinished, JobStatusChanged
from ....schemas.event import Record
from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...client import (
    AccumulatorTotals,
    Client,
    Incident,
    JobIncidentTracker,
    KafkaHeartbeatReports,
    OutputRecord,
    Subscription,
)
from ...client.checkpoint_requests import CheckpointFailedError as RequestFailedError
from ...client.checkpoint_requests import request_checkpoint
from ...client.print_output import OutputDenied
from ...client.rest_client import JobClient
from ...client.rest_output import output_reader
from ..args.savepoint_location import parse_optional_location
from ..render.formatting import format_count

_SLOT_NOTICE_S = 3.0


class JobOutcome(msgspec.Struct, frozen=True):
    """The state of a job, as far as the client has read the log."""

    job_id: str
    name: str
    status: JobStatus
    reason: str | None = None
    accumulators: dict[str, float] = {}
    """Set when the job has ended."""
    duration: timedelta | None = None
    """From its acceptance to its end."""
    over: bool = False
    """Whether it has ended or was suspended, so that no more events of it follow."""
    cancelled: bool = False
    """Whether the program itself requested its cancellation."""


class JobListener(Protocol):
    """Shows the progress of jobs."""

    def on_message(self, line: str) -> None:
        """A line about a job."""

    def on_accepted(self, job: JobOutcome) -> None:
        """The cluster has accepted the job."""

    def on_incident(self, incident: Incident) -> None:
        """A failure in a job that may continue."""

    def on_output(self, record: OutputRecord) -> None:
        """A record that the job has printed; called on another thread. May raise BrokenPipeError."""

    def on_ended(self, job: JobOutcome) -> None:
        """The job is over, and all its output was shown."""


class SubmittedJob:
    """A job of a program. `give_up` gets the reason if the job's end was not waited for."""

    def __init__(
        self,
        client: JobClient,
        conversation: Subscription,
        accepted: Record,
        name: str,
        listener: JobListener,
        *,
        detached: bool,
        prints: bool = True,
        give_up: Callable[[Exception], None],
    ) -> None:
        """`name`: of the job, if the answer does not have it. `prints`: whether it may have a print sink."""
        body = accepted.body
        assert isinstance(body, JobAccepted)
        self._shown_to = 0
        """The first offset of the output that `collected` has not read."""
        self._client = client
        self._conversation = conversation
        self._accepted_at = accepted.header.time
        self._listener = listener
        self._detached = detached
        self._prints = prints
        self._give_up = give_up
        self._incidents = JobIncidentTracker(body.job_id)
        self._counts = AccumulatorTotals(body.job_id)
        self._reports: KafkaHeartbeatReports | None = None
        self._outcome = JobOutcome(body.job_id, body.name or name, JobStatus.INITIALIZING)
        self._is_reported = False
        """Whether the end of the job, or of the wait for it, was shown."""
        self._waits_since: float | None = None
        """The time since which it waits for slots; infinite: this was shown."""
        self._reading = threading.RLock()
        self._waiting = threading.Lock()

    @property
    def job_id(self) -> str:
        """The id of the job in the cluster."""
        return self._outcome.job_id

    @property
    def outcome(self) -> JobOutcome:
        """The state of the job, as far as the log was read."""
        return self._outcome

    def status(self) -> JobStatus:
        """The status according to the log. Raises LogUnavailable."""
        self._catch_up()
        return self._outcome.status

    def cancel(self) -> None:
        """Requests the job's cancellation; returns at once. Raises LogUnavailable."""
        self._client.cancel(self.job_id)
        self._outcome = replace(self._outcome, cancelled=True)

    def trigger_checkpoint(self) -> str:
        """Waits until it is complete; returns its URI. Raises CheckpointFailedError, NoAnswerError, LogUnavailable."""
        return self._request_snapshot(lambda client: client.trigger_checkpoint(self.job_id))

    def trigger_savepoint(self, directory: str | None = None) -> str:
        """Like `trigger_checkpoint`; a relative `directory` is resolved in the program's working directory."""
        uri = parse_optional_location(directory)
        return self._request_snapshot(lambda client: client.trigger_savepoint(self.job_id, uri))

    def stop_with_savepoint(self, directory: str | None = None, *, drain: bool = False) -> str:
        """Like `trigger_savepoint`; returns when the savepoint is complete. `result` waits for the job's end."""
        uri = parse_optional_location(directory)
        return self._request_snapshot(
            lambda client: client.stop_with_savepoint(self.job_id, uri, drain=drain)
        )

    def _request_snapshot(self, request: Callable[[Client], None]) -> str:
        try:
            return request_checkpoint(self._client.configuration, self.job_id, request).uri
        except RequestFailedError as error:
            raise CheckpointFailedError(str(error)) from error

    def accumulators(self) -> dict[str, float]:
        """The job's accumulators: final after its end, before that late by a heartbeat interval. Raises
        LogUnavailable."""
        with self._reading:
            self._catch_up()
            if self._has_ended():
                return dict(self._outcome.accumulators)
            if self._reports is None:
                self._reports = KafkaHeartbeatReports(self._client.configuration, self.job_id)
            for report in self._reports.poll():
                self._counts.on_report(report)
            return self._counts.total()

    def result(self) -> JobExecutionResult:
        """Waits for the job's end and shows what it prints meanwhile; returns at once if it is detached."""
        if self._detached:
            self._disconnect()
        else:
            with self._waiting:
                if not self._is_reported:
                    self._wait_and_show()
        known = self._outcome
        return JobExecutionResult(known.job_id, known.status, dict(known.accumulators), known.duration)

    def collected(self) -> Iterator[bytes]:
        """Yields the records that the program collects, to the job's end; other output is shown. Raises
        JobFailedError, LogUnavailable."""
        configuration = self._client.configuration
        for record in output_reader(configuration)(configuration, self.job_id, over=self._is_over):
            self._shown_to = record.offset + 1
            if record.collected is not None:
                yield record.collected
            elif not self._detached:
                self._listener.on_output(record)
        if self._outcome.status is JobStatus.FAILED:
            raise JobFailedError(f"job {self.job_id} has failed: {self._outcome.reason}")

    def _is_over(self) -> bool:
        self._catch_up()
        return self._outcome.over

    def close(self) -> None:
        """Ends the use of the job: the program has ended. Raises nothing."""
        if not self._waiting.acquire(blocking=False):
            # A thread of the program, which nobody joins, still waits for the job.
            return
        with self._reading:
            if self._outcome.over and not self._is_reported:
                self._report_end()
            elif not self._outcome.over and not self._is_reported and not self._detached:
                self._report_still_running()
            self._disconnect()
        self._waiting.release()

    def _has_ended(self) -> bool:
        return self._outcome.over and self._outcome.status in JOB_ENDS

    def _report_still_running(self) -> None:
        verb = "was asked to end" if self._outcome.cancelled else "runs on"
        self._listener.on_message(
            f"job {self.job_id} {verb}, and the program does not wait for it: `tailrace output -f "
            f"{self.job_id}` shows what it prints, `tailrace cancel {self.job_id}` ends it"
        )

    def _report_end(self) -> None:
        self._is_reported = True
        self._listener.on_ended(self._outcome)
        self._disconnect()

    def _disconnect(self) -> None:
        """A program may run thousands of jobs: one that it may never use again has no connections."""
        with self._reading:
            self._conversation.disconnect()
            if self._reports is not None:
                self._reports.close()

    def _wait_and_show(self) -> None:
        ended = threading.Event()
        output = _OutputPrinter(
            self._client, self.job_id, self._listener, ended, prints=self._prints, start=self._shown_to
        )
        interrupted = False
        try:
            self._wait(output)
        except KeyboardInterrupt:
            interrupted = True
            self._cancel_and_wait(output)
        finally:
            ended.set()
        output.join()
        if output.failure is not None:
            # Inside the program this would look like the program's own mistake.
            self._is_reported = True
            if not self._outcome.over:
                self._report_still_running()
            self._give_up(output.failure)
            raise output.failure
        self._report_end()
        if interrupted:
            raise KeyboardInterrupt

    def _wait(self, output: _OutputPrinter) -> None:
        while not self._outcome.over and output.failure is None:
            self._read(0.2)
            self._report_missing_slots()

    def _report_missing_slots(self) -> None:
        """Reports once that the job waits for slots, after some seconds, and again when it waits again."""
        missing = self._incidents.waits_for_slots
        now = time.monotonic()
        if not missing:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif self._waits_since + _SLOT_NOTICE_S < now:
            self._waits_since = math.inf
            self._listener.on_message(
                f"job {self.job_id} waits for {format_count(missing, 'slot')}: `tailrace cluster status` shows which "
                "there are, and `tailrace list` who has them"
            )

    def _cancel_and_wait(self, output: _OutputPrinter) -> None:
        self._listener.on_message(f"interrupted: cancelling job {self.job_id} (Ctrl-C again: do not wait)")
        try:
            self.cancel()
            self._wait(output)
        except KeyboardInterrupt:
            self._listener.on_message(f"job {self.job_id} is left to the cluster, which is cancelling it")
            self._is_reported = True
            raise

    def _catch_up(self) -> None:
        while self._read(0):
            pass

    def _read(self, timeout_s: float) -> bool:
        """Processes new events of the job; returns whether there were any."""
        with self._reading:
            if self._is_reported and self._has_ended():
                return False
            records = self._conversation.poll(timeout_s)
            self._counts.on_event(records)
            for record in records:
                self._on_event(record)
            if not self._detached:
                for incident in self._incidents.on_event(records):
                    self._listener.on_incident(incident)
            return bool(records)

    def _on_event(self, record: Record) -> None:
        body, known = record.body, self._outcome
        if isinstance(body, JobStatusChanged) and body.job_id == self.job_id:
            # A suspended job ends the program's wait: the cluster is about to stop.
            is_suspended = body.status is JobStatus.SUSPENDED
            self._outcome = replace(known, status=body.status, over=known.over or is_suspended)
            if body.status not in JOB_ENDS and not is_suspended and not self._detached:
                self._listener.on_message(f"job {self.job_id} is {body.status.value}")
        elif isinstance(body, JobFinished) and body.job_id == self.job_id:
            self._outcome = replace(
                known,
                status=body.status,
                reason=body.reason,
                accumulators=dict(body.accumulators),
                duration=timedelta(microseconds=max(0, record.header.time - self._accepted_at)),
                over=True,
            )


class _OutputPrinter:
    """A thread that shows the job's output until the job has ended and all output was shown."""

    def __init__(
        self,
        client: JobClient,
        job_id: str,
        listener: JobListener,
        ended: threading.Event,
        *,
        prints: bool,
        start: int,
    ) -> None:
        """`start`: the first offset to show."""
        self._start = start
        self.failure: Exception | None = None
        read = output_reader(client.configuration)
        self._source: Iterator[OutputRecord] = (
            read(client.configuration, job_id, over=ended.is_set) if prints else iter(())
        )
        self._job_id = job_id
        self._listener = listener
        self._thread = threads.Thread(target=self._run, name="output")
        self._thread.start()
        self.join = self._thread.join

    def _run(self) -> None:
        try:
            for record in self._source:
                if record.offset >= self._start and record.collected is None:
                    self._listener.on_output(record)
        except OutputDenied as error:
            # The job itself is not concerned.
            self._listener.on_message(f"what job {self._job_id} prints is not shown: {error}")
        except Exception as error:
            self.failure = error
        except BaseException as error:
            # Nobody else would see it: `run` would wait for the job's end, and show nothing of it.
            self.failure = threads.ThreadFailed(self._thread.name, error)
