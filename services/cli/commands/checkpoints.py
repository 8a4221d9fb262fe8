"""`tailrace checkpoint`, `checkpoints`, `stop` and `savepoint trigger`: trigger and list checkpoints and savepoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....schemas.states import JOB_ENDS
from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..args.savepoint_location import parse_optional_location
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import (
    format_duration,
    format_size,
    format_time,
    print_progress,
    print_result,
    print_table,
)
from .jobs import JobId, failure_reason, find_job

if TYPE_CHECKING:
    from ....schemas.types import CompletedCheckpoint, JobStatus
    from ...client import CheckpointProgress, Client
    from ...configuration import Configuration
    from ...history import HistoryProjection
    from ...history.checkpoint_history import CheckpointsView, CheckpointView, RestoreView
    from ...history.cluster_view import JobView

_MAX_NAMED = 3
_STOP_TIMEOUT_S = 120.0
_SHOW_EVERY_S = 1.0
_PATIENCE_S = 2.0
_HANGS_AFTER_S = 5.0
_LONGEST_REASON = 160

Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="DIR",
        help="The parent directory of the savepoint's own directory (path or URI). \\[default: state.savepoints.dir]",
    ),
]


def checkpoint(
    job: JobId,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Trigger a checkpoint of a job now, and print its path.

    The command waits until the checkpoint is complete, and names the tasks that have not acknowledged yet.
    """
    asking = _CheckpointWait(find_cluster(home, bootstrap_servers, cluster_id), job, "checkpoint")
    asking.show(asking.ask(lambda client: client.trigger_checkpoint(asking.job.job_id)), output)
    return ExitCode.OK


def trigger(
    job: JobId,
    target: Target = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Trigger a savepoint of a job, and print its path. The cluster keeps it until `savepoint dispose`.

    The command waits until the savepoint is complete, and names the tasks that have not acknowledged yet.
    """
    directory = parse_optional_location(target)
    asking = _CheckpointWait(find_cluster(home, bootstrap_servers, cluster_id), job, "savepoint")
    done = asking.ask(lambda client: client.trigger_savepoint(asking.job.job_id, directory))
    asking.show(done, output)
    return ExitCode.OK


def stop(
    job: JobId,
    target: Target = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Fire all windows and timers first. Do not use it if you want to resume the job."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="For a job whose tasks hang: cancel it without a savepoint, keep its last checkpoint, and print that "
            "checkpoint's path.",
        ),
    ] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Stop a job with a savepoint, and print the savepoint's path.

    The job processes no record after the savepoint. `tailrace run -s PATH` resumes from it.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    if force:
        if drain or target is not None:
            raise CommandFailure(ExitCode.USAGE, "--force takes no savepoint: remove --target and --drain")
        return _cancel_and_keep(configuration, job, output)
    directory = parse_optional_location(target)
    asking = _CheckpointWait(configuration, job, "savepoint", stops=True)
    done = asking.ask(
        lambda client: client.stop_with_savepoint(asking.job.job_id, directory, drain=drain), ends=True
    )
    asking.show(done, output)
    return ExitCode.OK


def _cancel_and_keep(configuration: Configuration, job: str, output: Format) -> int:
    """Cancels a job and keeps its last checkpoint. Raises CommandFailure."""
    from .jobs import cancel_and_wait

    _, found = _read_checkpoints(configuration, job)
    if found.status in JOB_ENDS:
        raise CommandFailure(
            ExitCode.JOB, f"job {found.job_id} is already {found.status.value}: there is nothing to cancel"
        )
    if found.checkpoints.last is None:
        raise CommandFailure(
            ExitCode.SAVEPOINT,
            f"job {found.job_id} has no completed checkpoint to keep: `tailrace cancel {found.job_id}` cancels it, and "
            "a later `run` starts without state; only a KafkaSource with a group_id and StartingOffsets.committed() "
            "continues; set `execution.checkpointing.interval` to take checkpoints",
        )
    status = cancel_and_wait(configuration, found.job_id, keep_checkpoints=True)
    print_progress(f"job {found.job_id} is {status.value}")
    # A checkpoint that was in progress may have completed since the first read.
    _, found = _read_checkpoints(configuration, found.job_id)
    last = found.checkpoints.last
    if status.value != "CANCELED" or last is None or last.discarded or last.uri is None:
        raise CommandFailure(
            ExitCode.SAVEPOINT, f"no checkpoint of job {found.job_id} is left: it is {status.value}"
        )
    if output is Format.TEXT:
        print_result(last.uri)
        return ExitCode.OK
    import msgspec

    data = {"job_id": found.job_id, "checkpoint_id": last.checkpoint_id, "uri": last.uri, "size": last.size}
    print_result(msgspec.json.encode(data).decode())
    return ExitCode.OK


def checkpoints(
    job: JobId,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="Only the last N.")] = 20,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """List a job's checkpoints and savepoints, oldest first, with their status. JSON: one object per line."""
    from ...history import cluster_view

    fold, found = _read_checkpoints(find_cluster(home, bootstrap_servers, cluster_id), job)
    view = cluster_view.checkpoints(fold, found.job_id)
    if output is Format.JSON:
        import msgspec

        for listed in view.checkpoints[-last:]:
            print_result(msgspec.json.encode(checkpoint_to_data(listed)).decode())
        return ExitCode.OK
    print_table(
        f"Checkpoints of {found.job_id}",
        ("ID", "TYPE", "STATUS", "TRIGGERED", "DURATION", "SIZE", "WRITTEN", "SUBTASKS", "WHERE OR WHY"),
        [row(listed, time.time_ns() // 1000) for listed in view.checkpoints[-last:]],
    )
    print_progress(format_summary(view))
    return ExitCode.OK


def row(view: CheckpointView, now: int) -> tuple[str, ...]:
    """Returns the table row of a checkpoint. `now` is in microseconds since the epoch."""
    return (
        str(view.checkpoint_id),
        view.snapshot_type.value,
        view.status.value,
        format_time(view.triggered),
        format_duration(max(0, (view.ended or now) - view.triggered)),
        format_size(view.size or sum(subtask.size for subtask in view.subtasks)),
        format_size(view.bytes_written),
        f"{view.acknowledged}/{len(view.subtasks)}",
        where_or_why(view),
    )


def where_or_why(view: CheckpointView) -> str:
    """Returns the path if completed, the tasks that have not acknowledged if in progress, the reason if failed."""
    match view.status.value:
        case "COMPLETED":
            return "discarded" if view.discarded else view.uri
        case "IN_PROGRESS":
            declined = next((subtask for subtask in view.subtasks if subtask.declined), None)
            if declined is not None:
                return f"{declined.task} declined: {declined.declined}"
            return (
                f"not acknowledged by {format_some(view.waiting_for)}"
                if view.waiting_for
                else "writes its metadata"
            )
        case _:
            why = " ".join(f"{view.failure}: {view.reason}".split())
            return why if len(why) <= _LONGEST_REASON else f"{why[: _LONGEST_REASON - 3]}..."


def format_summary(view: CheckpointsView) -> str:
    """Returns the number of checkpoints by status, and the last restore."""
    in_progress = sum(checkpoint.status.value == "IN_PROGRESS" for checkpoint in view.checkpoints)
    counts = f"{view.completed} completed, {view.failed} failed, {in_progress} in progress"
    restored = view.restored
    return counts if restored is None else f"{counts}; restored {format_restore(restored)}"


def format_restore(restored: RestoreView) -> str:
    """Returns the snapshot that the job last restored, and the newer checkpoints that could not be read."""
    if restored.failure is not None:
        return f"nothing at {format_time(restored.at)}: {restored.failure}"
    skipped = "".join(f"; skipped {uri}: {why}" for uri, why in restored.passed_over.items())
    return f"from {restored.uri or 'nothing'} at {format_time(restored.at)}{skipped}"


def checkpoint_to_data(view: CheckpointView) -> dict[str, Any]:
    """Returns a checkpoint for JSON, with derived values. `duration_ms` is null until the checkpoint ends."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(view)
    ended = view.ended
    return {
        **data,
        "duration_ms": None if ended is None else round((ended - view.triggered) / 1000, 3),
        "acknowledged": view.acknowledged,
        "waiting_for": view.waiting_for,
        "bytes_written": view.bytes_written,
    }


def format_some(tasks: list[str]) -> str:
    """Returns the first three task names and the number of the others."""
    left = len(tasks) - _MAX_NAMED
    return ", ".join(tasks[:_MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


class _CheckpointWait:
    """Requests a checkpoint of a job and prints its progress.

    Raises CommandFailure if the job does not exist or has ended.
    """

    def __init__(self, configuration: Configuration, job: str, what: str, *, stops: bool = False) -> None:
        """`stops`: the savepoint stops the job. If a task hangs, the user is told about `stop --force`."""
        self._configuration = configuration
        self._what = what
        self._fold, self.job = _read_checkpoints(configuration, job)
        if self.job.status in JOB_ENDS:
            raise CommandFailure(
                ExitCode.JOB,
                f"job {self.job.job_id} is already {self.job.status.value}: no {what} can be taken",
            )
        self._began = time.monotonic()
        self._told = 0.0
        self._subtasks = 0
        self._shown: CheckpointProgress | None = None
        self._offers_force = stops

    def ask(self, what: Callable[[Client], None], *, ends: bool = False) -> CompletedCheckpoint:
        """Waits until the checkpoint is complete and, with `ends`, until the job has ended.

        Raises CheckpointFailedError, NoAnswerError, LogUnavailable, CommandFailure.
        """
        from ...client import Client
        from ...client.checkpoint_requests import CheckpointRequest

        job_id = self.job.job_id
        with (
            Client(self._configuration, name=self._what, timeout=10.0) as client,
            client.subscribe() as conversation,
        ):
            conversation.follow(job_id)
            what(client)
            request = CheckpointRequest(job_id, client.address)
            done = request.wait(conversation, show=self._progress)
            print_progress(
                f"{self._what} {done.checkpoint_id} of job {job_id} is complete: {format_size(done.size)}, "
                f"{format_duration(round((time.monotonic() - self._began) * 1e6))}"
            )
            if ends:
                self._end(request.wait_for_end(conversation, _STOP_TIMEOUT_S), done)
        return done

    def show(self, done: CompletedCheckpoint, output: Format) -> None:
        """Prints the checkpoint's directory, or all its fields as JSON."""
        if output is Format.TEXT:
            print_result(done.uri)
            return
        import msgspec

        data = {
            "job_id": self.job.job_id,
            **msgspec.to_builtins(done),
            "subtasks": self._subtasks,
            "duration_ms": round((time.monotonic() - self._began) * 1000),
        }
        print_result(msgspec.json.encode(data).decode())

    def _progress(self, progress: CheckpointProgress | None) -> None:
        if progress is None:
            if not self._told and time.monotonic() - self._began > _PATIENCE_S:
                self._told = time.monotonic()
                print_progress(
                    f"the {self._what} of job {self.job.job_id} starts when all its tasks run and no other checkpoint "
                    f"is in progress{format_not_running(self.job)}"
                )
        elif not self._subtasks:
            self._subtasks = progress.subtasks
            many = "1 subtask" if progress.subtasks == 1 else f"{progress.subtasks} subtasks"
            print_progress(
                f"{self._what} {progress.checkpoint_id} of job {self.job.job_id} is triggered; {many} to acknowledge"
            )
            self._told = time.monotonic()
        elif (
            progress.waiting_for and progress != self._shown and time.monotonic() - self._told > _SHOW_EVERY_S
        ):
            self._told, self._shown = time.monotonic(), progress
            names = [self._fold.task_of(attempt) for attempt in progress.waiting_for]
            acknowledged = progress.subtasks - len(names)
            print_progress(
                f"{acknowledged} of {progress.subtasks} subtasks have acknowledged; waiting for {format_some(names)}"
            )
        self._offer_force(is_triggered=progress is not None)

    def _offer_force(self, *, is_triggered: bool) -> None:
        if self._offers_force and time.monotonic() - self._began > _HANGS_AFTER_S:
            self._offers_force = False
            job_id = self.job.job_id
            state = (
                "is not complete after {:g} s: a task may hang"
                if is_triggered
                else f"has not started after {{:g}} s: `tailrace show {job_id}` shows what the job waits for"
            ).format(_HANGS_AFTER_S)
            print_progress(
                f"the savepoint {state}. `tailrace stop --force {job_id}` cancels the job and keeps its last checkpoint"
            )

    def _end(self, status: JobStatus | None, done: CompletedCheckpoint) -> None:
        job_id = self.job.job_id
        if status is None:
            raise CommandFailure(
                ExitCode.UNREACHABLE,
                f"job {job_id} did not end within {_STOP_TIMEOUT_S:g} s after its savepoint {done.uri}: see "
                f"`tailrace log --job {job_id}`",
            )
        if status.value != "FINISHED":
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


def _read_checkpoints(configuration: Configuration, job: str) -> tuple[HistoryProjection, JobView]:
    from ...history.cluster_view import jobs
    from ..readers.cluster_state import replay_log

    fold = replay_log(configuration)
    return fold, find_job(jobs(fold), job)
