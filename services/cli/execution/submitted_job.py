"""The JobClient of a program that `tailrace run` runs: a job that the cluster has accepted.

`result` shows what the job prints while it waits for the job's end. Ctrl-C then asks for the job to be cancelled and
goes on waiting; a second Ctrl-C leaves the job to the cluster. Detached, nothing is waited for and nothing shown. A
program may use a JobClient from several threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ....infra import threads
from ....pipelines.api.executor import CheckpointFailedError, JobExecutionResult
from ....schemas.client import JobAccepted, JobFinished, JobStatusChanged
from ....schemas.event import Record
from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...client import (
    AccumulatorTotals,
    Client,
    ClusterSubscription,
    Incident,
    JobIncidentTracker,
    KafkaHeartbeatReports,
    OutputRecord,
    read_output,
)
from ...client import checkpoint_requests as answers
from ..args.savepoint_location import parse_optional_location

_SLOT_NOTICE_S = 3.0


class JobOutcome(msgspec.Struct, frozen=True):
    """What became of a job, as far as it was heard."""

    job_id: str
    name: str
    status: JobStatus
    reason: str | None = None
    accumulators: dict[str, float] = {}
    """Of a job that has ended."""
    duration: timedelta | None = None
    """From its acceptance to its end."""
    over: bool = False
    """Whether it has ended, or was suspended: nothing more will be heard of it."""
    cancelled: bool = False
    """Whether the program itself asked for it to be cancelled."""


class JobListener(Protocol):
    """What people are told of."""

    def on_message(self, line: str) -> None:
        """Something about a job."""

    def on_accepted(self, job: JobOutcome) -> None:
        """The cluster will run the job."""

    def on_incident(self, incident: Incident) -> None:
        """Something has happened to the job, which may go on nevertheless."""

    def on_output(self, record: OutputRecord) -> None:
        """A record of the job's output; called on another thread. May raise BrokenPipeError."""

    def on_ended(self, job: JobOutcome) -> None:
        """The job is over, and all that it printed was shown."""


class SubmittedJob:
    """See the module's head. `give_up` is told why a job's end was not waited for."""

    def __init__(
        self,
        client: Client,
        conversation: ClusterSubscription,
        accepted: Record,
        listener: JobListener,
        *,
        detached: bool,
        give_up: Callable[[Exception], None],
    ) -> None:
        body = accepted.body
        assert isinstance(body, JobAccepted)
        self._client = client
        self._conversation = conversation
        self._accepted_at = accepted.header.time
        self._listener = listener
        self._detached = detached
        self._give_up = give_up
        self._incidents = JobIncidentTracker(body.job_id)
        self._counts = AccumulatorTotals(body.job_id)
        self._reports = KafkaHeartbeatReports(client.configuration, body.job_id)
        self._outcome = JobOutcome(body.job_id, body.name, JobStatus.INITIALIZING)
        self._told = False
        self._waits_since: float | None = None
        """Since when it waits for slots; infinite: people were told."""
        self._hearing = threading.RLock()
        self._waiting = threading.Lock()

    @property
    def job_id(self) -> str:
        """The id under which the cluster knows the job."""
        return self._outcome.job_id

    @property
    def outcome(self) -> JobOutcome:
        """What was heard of the job so far."""
        return self._outcome

    def status(self) -> JobStatus:
        """As far as the log has told it. Raises LogUnavailable."""
        self._catch_up()
        return self._outcome.status

    def cancel(self) -> None:
        """Asks for the job to be cancelled; returns at once. Raises LogUnavailable."""
        self._client.cancel(self.job_id)
        self._outcome = replace(self._outcome, cancelled=True)

    def trigger_checkpoint(self) -> str:
        """Waits until it is complete; its directory's URI. Raises CheckpointFailedError, NoAnswer, LogUnavailable."""
        return self._request_snapshot(lambda asker: asker.trigger_checkpoint(self.job_id))

    def trigger_savepoint(self, directory: str | None = None) -> str:
        """As `trigger_checkpoint`; a relative `directory` is of the program's own working directory."""
        where = parse_optional_location(directory)
        return self._request_snapshot(lambda asker: asker.trigger_savepoint(self.job_id, where))

    def stop_with_savepoint(self, directory: str | None = None, *, drain: bool = False) -> str:
        """As `trigger_savepoint`; returns when the savepoint is complete, `result` waits for the job's end."""
        where = parse_optional_location(directory)
        return self._request_snapshot(
            lambda asker: asker.stop_with_savepoint(self.job_id, where, drain=drain)
        )

    def _request_snapshot(self, what: Callable[[Client], None]) -> str:
        try:
            return answers.request_checkpoint(self._client.configuration, self.job_id, what).uri
        except answers.CheckpointFailedError as error:
            raise CheckpointFailedError(str(error)) from error

    def accumulators(self) -> dict[str, float]:
        """What the job has counted and committed so far; of a job that has ended, all of it. Raises LogUnavailable.

        While it runs this lags by a heartbeat interval.
        """
        with self._hearing:
            self._catch_up()
            if self._outcome.over and self._outcome.status in JOB_ENDS:
                return dict(self._outcome.accumulators)
            for report in self._reports.poll():
                self._counts.on_report(report)
            return self._counts.total()

    def result(self) -> JobExecutionResult:
        """Waits for the job's end, unless detached, and shows what it prints meanwhile."""
        if self._detached:
            with self._hearing:
                self._disconnect()
            return self._result()
        with self._waiting:
            if not self._told:
                self._wait_and_show()
            return self._result()

    def close(self) -> None:
        """The program has ended. Raises nothing."""
        if not self._waiting.acquire(blocking=False):
            # A thread of the program that nobody waits for is waiting for the job still.
            return
        with self._hearing:
            if self._outcome.over and not self._told:
                self._report_end()
            elif not self._outcome.over and not self._told and not self._detached:
                self._report_still_running()
            self._disconnect()
        self._waiting.release()

    def _report_still_running(self) -> None:
        verb = "was asked to end" if self._outcome.cancelled else "runs on"
        self._listener.on_message(
            f"job {self.job_id} {verb}, and the program does not wait for it: `tailrace output -f "
            f"{self.job_id}` shows what it prints, `tailrace cancel {self.job_id}` ends it"
        )

    def _result(self) -> JobExecutionResult:
        known = self._outcome
        return JobExecutionResult(known.job_id, known.status, dict(known.accumulators), known.duration)

    def _report_end(self) -> None:
        self._told = True
        self._listener.on_ended(self._outcome)
        with self._hearing:
            self._disconnect()

    def _disconnect(self) -> None:
        """A program may run thousands of jobs: one that it may never ask about again has no connections."""
        self._conversation.disconnect()
        self._reports.close()

    def _wait_and_show(self) -> None:
        ended = threading.Event()
        printing = _OutputPrinter(self._client, self.job_id, self._listener, ended)
        interrupted = False
        try:
            self._wait(printing)
        except KeyboardInterrupt:
            interrupted = True
            self._cancel_and_wait(printing)
        finally:
            ended.set()
        printing.join()
        if printing.failure is not None:
            # Inside the program this would look like the program's own mistake.
            self._told = True
            if not self._outcome.over:
                self._report_still_running()
            self._give_up(printing.failure)
            raise printing.failure
        self._report_end()
        if interrupted:
            raise KeyboardInterrupt

    def _wait(self, printing: _OutputPrinter) -> None:
        while not self._outcome.over and printing.failure is None:
            self._listen(0.2)
            self._report_missing_slots()

    def _report_missing_slots(self) -> None:
        """Says once that the job waits for slots, when it has waited for some seconds, and again when it waits anew."""
        missing = self._incidents.waits_for_slots
        if not missing:
            self._waits_since = None
            return
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        elif self._waits_since + _SLOT_NOTICE_S < now:
            self._waits_since = math.inf
            slots = "1 slot" if missing == 1 else f"{missing} slots"
            self._listener.on_message(
                f"job {self.job_id} waits for {slots}: `tailrace cluster status` shows which there are, and "
                "`tailrace list` who has them"
            )

    def _cancel_and_wait(self, printing: _OutputPrinter) -> None:
        self._listener.on_message(f"interrupted: cancelling job {self.job_id} (Ctrl-C again: do not wait)")
        try:
            self.cancel()
            self._wait(printing)
        except KeyboardInterrupt:
            self._listener.on_message(f"job {self.job_id} is left to the cluster, which is cancelling it")
            self._told = True
            raise

    def _catch_up(self) -> None:
        while self._listen(0):
            pass

    def _listen(self, timeout: float) -> bool:
        """Whether anything was heard."""
        with self._hearing:
            if self._told and self._outcome.over and self._outcome.status in JOB_ENDS:
                return False
            records = self._conversation.poll(timeout)
            self._counts.on_event(records)
            for record in records:
                self._on_event(record)
            if not self._detached:
                for incident in self._incidents.on_event(records):
                    self._listener.on_incident(incident)
            return bool(records)

    def _on_event(self, record: Record) -> None:
        known, job_id = self._outcome, self.job_id
        match record.body:
            case JobStatusChanged(job_id=of, status=status) if of == job_id:
                # Where the cluster is about to end, the program's wait ends with it.
                self._outcome = replace(
                    known, status=status, over=known.over or status is JobStatus.SUSPENDED
                )
                if status not in JOB_ENDS and status is not JobStatus.SUSPENDED and not self._detached:
                    self._listener.on_message(f"job {job_id} is {status.value}")
            case JobFinished(job_id=of, status=status, reason=reason, accumulators=counts) if of == job_id:
                self._outcome = replace(
                    known,
                    status=status,
                    reason=reason,
                    accumulators=dict(counts),
                    duration=timedelta(microseconds=max(0, record.header.time - self._accepted_at)),
                    over=True,
                )
            case _:
                pass


class _OutputPrinter:
    """A thread that shows the job's output until the job has ended and all of it was shown."""

    def __init__(self, client: Client, job_id: str, listener: JobListener, ended: threading.Event) -> None:
        self.failure: Exception | None = None
        self._source = read_output(client.configuration, job_id, over=ended.is_set)
        self._listener = listener
        self._thread = threads.Thread(target=self._run, name="output")
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            for record in self._source:
                self._listener.on_output(record)
        except Exception as error:
            self.failure = error
        except BaseException as error:
            # Nobody else would see it: `run` would wait for the job's end, and show nothing of it.
            self.failure = threads.ThreadFailed(self._thread.name, error)
