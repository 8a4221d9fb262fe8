"""Requests a checkpoint or savepoint of a job, and shows its progress until it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ....schemas.types import CompletedCheckpoint, JobStatus
from ...client import CheckpointProgress
from ...client.checkpoint_requests import CheckpointRequest
from ...client.rest_client import JobClient, open_job_client
from ...configuration import Configuration
from ...history.cluster_view import JobView
from ..args.common_options import Format
from ..exit_codes import CommandFailure, ExitCode
from ..render.checkpoint_table import format_some
from ..render.formatting import format_count, format_duration, format_size
from ..render.job import failure_reason
from ..render.output import print_json, print_progress, print_result
from .job_control import cancel_and_wait, check_not_ended, read_job

_STOP_TIMEOUT_S = 120.0
_SHOW_EVERY_S = 1.0
_PATIENCE_S = 2.0
_HANGS_AFTER_S = 5.0

Request = Callable[[JobClient, str], None]
"""A method of a client that requests a checkpoint of the job with that id."""


def take_checkpoint(
    configuration: Configuration,
    job: str,
    what: str,
    request: Request,
    output: Format,
    *,
    stops: bool = False,
) -> None:
    """Requests a checkpoint, waits until it is complete, and prints where it is. `what`: "checkpoint" or "savepoint".

    `stops`: the savepoint stops the job, and the call waits for its end; if a task hangs, the user is told about
    `stop --force`. Raises CheckpointFailedError, NoAnswerError, LogUnavailable, CommandFailure.
    """
    _CheckpointWait(configuration, job, what, stops=stops).run(request, output)


def cancel_and_keep_checkpoint(configuration: Configuration, wanted: str, output: Format) -> None:
    """Cancels a job, keeps its last checkpoint, and prints where that is. Raises CommandFailure."""
    _, job = read_job(configuration, wanted)
    check_not_ended(job, "there is nothing to cancel")
    if job.checkpoints.last is None:
        raise CommandFailure(
            ExitCode.SAVEPOINT,
            f"job {job.job_id} has no completed checkpoint to keep: `tailrace cancel {job.job_id}` cancels it, and "
            "a later `run` starts without state; only a KafkaSource with a group_id and StartingOffsets.committed() "
            "continues; set `execution.checkpointing.interval` to take checkpoints",
        )
    status = cancel_and_wait(configuration, job.job_id, keep_checkpoints=True)
    print_progress(f"job {job.job_id} is {status.value}")
    # A checkpoint that was in progress may have completed since the first read.
    _, job = read_job(configuration, job.job_id)
    last = job.checkpoints.last
    if status is not JobStatus.CANCELED or last is None or last.discarded or last.uri is None:
        raise CommandFailure(
            ExitCode.SAVEPOINT, f"no checkpoint of job {job.job_id} is left: it is {status.value}"
        )
    if output is Format.TEXT:
        print_result(last.uri)
    else:
        data = {"job_id": job.job_id, "checkpoint_id": last.checkpoint_id, "uri": last.uri, "size": last.size}
        print_json(data)


class _CheckpointWait:
    def __init__(self, configuration: Configuration, wanted: str, what: str, *, stops: bool) -> None:
        self._configuration = configuration
        self._what = what
        self._stops = self._offers_force = stops
        self._fold, self._job = read_job(configuration, wanted)
        check_not_ended(self._job, f"no {what} can be taken")
        self._start = time.monotonic()
        self._last_line = 0.0
        self._subtasks = 0
        self._shown: CheckpointProgress | None = None

    def run(self, request: Request, output: Format) -> None:
        job_id = self._job.job_id
        with (
            open_job_client(self._configuration, self._what, 10.0) as client,
            client.subscribe() as conversation,
        ):
            conversation.follow(job_id)
            request(client, job_id)
            waiting = CheckpointRequest(job_id, client.address)
            done = waiting.wait(conversation, show=self._show)
            print_progress(
                f"{self._what} {done.checkpoint_id} of job {job_id} is complete: {format_size(done.size)}, "
                f"{format_duration(round(self._elapsed_s() * 1e6))}"
            )
            if self._stops:
                self._check_end(waiting.wait_for_end(conversation, _STOP_TIMEOUT_S), done)
        if output is Format.TEXT:
            print_result(done.uri)
            return
        duration_ms = round(self._elapsed_s() * 1000)
        data = {"subtasks": self._subtasks, "duration_ms": duration_ms}
        print_json({"job_id": job_id, **msgspec.to_builtins(done), **data})

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def _show(self, progress: CheckpointProgress | None) -> None:
        """Shows the progress. None: the checkpoint is not triggered yet."""
        line = self._line(progress)
        if line is not None:
            self._last_line = time.monotonic()
            print_progress(line)
        if self._offers_force and self._elapsed_s() > _HANGS_AFTER_S:
            self._offers_force = False
            job_id = self._job.job_id
            state = (
                f"has not started after {_HANGS_AFTER_S:g} s: `tailrace show {job_id}` shows what the job waits for"
                if progress is None
                else f"is not complete after {_HANGS_AFTER_S:g} s: a task may hang"
            )
            print_progress(
                f"the savepoint {state}. `tailrace stop --force {job_id}` cancels the job and keeps its last checkpoint"
            )

    def _line(self, progress: CheckpointProgress | None) -> str | None:
        """Returns the next line to show, if its time has come."""
        job_id = self._job.job_id
        if progress is None:
            if self._last_line or self._elapsed_s() <= _PATIENCE_S:
                return None
            return (
                f"the {self._what} of job {job_id} starts when all its tasks run and no other checkpoint is in progress"
                f"{format_not_running(self._job)}"
            )
        if not self._subtasks:
            self._subtasks = progress.subtasks
            subtasks = format_count(progress.subtasks, "subtask")
            return f"{self._what} {progress.checkpoint_id} of job {job_id} is triggered; {subtasks} to acknowledge"
        is_due = time.monotonic() - self._last_line > _SHOW_EVERY_S
        if not progress.waiting_for or progress == self._shown or not is_due:
            return None
        self._shown = progress
        names = [self._fold.task_of(attempt) for attempt in progress.waiting_for]
        acknowledged = progress.subtasks - len(names)
        return f"{acknowledged} of {progress.subtasks} subtasks have acknowledged; waiting for {format_some(names)}"

    def _check_end(self, status: JobStatus | None, done: CompletedCheckpoint) -> None:
        """Raises CommandFailure if the job did not end, or did not finish, after its savepoint."""
        job_id = self._job.job_id
        if status is None:
            raise CommandFailure(
                ExitCode.UNREACHABLE,
                f"job {job_id} did not end within {_STOP_TIMEOUT_S:g} s after its savepoint {done.uri}: see "
                f"`tailrace log --job {job_id}`",
            )
        if status is not JobStatus.FINISHED:
            raise CommandFailure(
                ExitCode.JOB,
                f"job {job_id} is {status.value}: it was cancelled, or tasks restarted, before all tasks had ended; "
                f"its savepoint is complete: `tailrace run -s {done.uri}` resumes from it",
            )
        print_progress(f"job {job_id} is {status.value}")


def format_not_running(job: JobView) -> str:
    """Returns the tasks that were not running at the request, by state; empty if all were running."""
    waiting = {state: count for state, count in job.tasks.items() if state not in ("RUNNING", "FINISHED")}
    if not waiting:
        return ""
    counts = ", ".join(f"{count} {state}" for state, count in waiting.items())
    reason = failure_reason(job, longest=None)
    return f"; now {counts}{f': {reason}' if reason else ''}"
