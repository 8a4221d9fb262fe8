"""`tailrace checkpoint`, `checkpoints` and `stop`, and `savepoint trigger`: taking checkpoints and looking at them."""

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
        help="Where the savepoint gets a directory of its own (path or URI). \\[default: state.savepoints.dir]",
    ),
]


def checkpoint(
    job: JobId,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Take a checkpoint of a job now, and print where it is.

    Until it is complete, who has not acknowledged is told.
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
    """Take a savepoint of a job, and print where it is. It stays until it is disposed of.

    Until it is complete, who has not acknowledged is told.
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
            "--drain", help="Let all windows and timers fire first; not for a job that is to go on from it."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="For a job whose tasks hang: cancel it without a savepoint, keep its last checkpoint, and print where "
            "that is.",
        ),
    ] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """End a job with a savepoint, and print where that is: nothing is done after it, and nothing is lost.

    `tailrace run -s PATH` goes on from there.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    if force:
        if drain or target is not None:
            raise CommandFailure(ExitCode.USAGE, "--force takes no savepoint: leave --target and --drain out")
        return _cancel_and_keep(configuration, job, output)
    directory = parse_optional_location(target)
    asking = _CheckpointWait(configuration, job, "savepoint", stops=True)
    done = asking.ask(
        lambda client: client.stop_with_savepoint(asking.job.job_id, directory, drain=drain), ends=True
    )
    asking.show(done, output)
    return ExitCode.OK


def _cancel_and_keep(configuration: Configuration, job: str, output: Format) -> int:
    """Cancels a job whose last checkpoint stays. Raises Failure."""
    from .jobs import cancel_and_wait

    _, found = _read_checkpoints(configuration, job)
    if found.status in JOB_ENDS:
        raise CommandFailure(
            ExitCode.JOB, f"job {found.job_id} is already {found.status.value}: there is nothing to cancel"
        )
    if found.checkpoints.last is None:
        raise CommandFailure(
            ExitCode.SAVEPOINT,
            f"job {found.job_id} has no complete checkpoint that could be kept: `tailrace cancel {found.job_id}` ends "
            "it, and a later `run` begins anew, but for a KafkaSource with a group_id and StartingOffsets.committed(); "
            "`execution.checkpointing.interval` has checkpoints taken",
        )
    status = cancel_and_wait(configuration, found.job_id, keep_checkpoints=True)
    print_progress(f"job {found.job_id} is {status.value}")
    # One that was under way may have been completed meanwhile.
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
    """List a job's checkpoints and savepoints, oldest first: under way, completed, failed and why. JSON: one a line."""
    from ...history import cluster_view

    fold, found = _read_checkpoints(find_cluster(home, bootstrap_servers, cluster_id), job)
    view = cluster_view.checkpoints(fold, found.job_id)
    if output is Format.JSON:
        import msgspec

        for each in view.checkpoints[-last:]:
            print_result(msgspec.json.encode(checkpoint_to_data(each)).decode())
        return ExitCode.OK
    print_table(
        f"Checkpoints of {found.job_id}",
        ("ID", "TYPE", "STATUS", "TRIGGERED", "DURATION", "SIZE", "WRITTEN", "SUBTASKS", "WHERE OR WHY"),
        [row(each, time.time_ns() // 1000) for each in view.checkpoints[-last:]],
    )
    print_progress(format_summary(view))
    return ExitCode.OK


def row(each: CheckpointView, now: int) -> tuple[str, ...]:
    """A checkpoint as a line of a table."""
    return (
        str(each.checkpoint_id),
        each.snapshot_type.value,
        each.status.value,
        format_time(each.triggered),
        format_duration(max(0, (each.ended or now) - each.triggered)),
        format_size(each.size or sum(part.size for part in each.subtasks)),
        format_size(each.bytes_written),
        f"{each.acknowledged}/{len(each.subtasks)}",
        where_or_why(each),
    )


def where_or_why(each: CheckpointView) -> str:
    """Where a completed one is, who has not acknowledged one under way, why one failed."""
    match each.status.value:
        case "COMPLETED":
            return "discarded" if each.discarded else each.uri
        case "IN_PROGRESS":
            declined = next((part for part in each.subtasks if part.declined), None)
            if declined is not None:
                return f"{declined.task} declines: {declined.declined}"
            return (
                f"not acknowledged by {format_some(each.waiting_for)}" if each.waiting_for else "is written"
            )
        case _:
            why = " ".join(f"{each.failure}: {each.reason}".split())
            return why if len(why) <= _LONGEST_REASON else f"{why[: _LONGEST_REASON - 3]}..."


def format_summary(view: CheckpointsView) -> str:
    """How many there were, and what the job began with."""
    under_way = sum(each.status.value == "IN_PROGRESS" for each in view.checkpoints)
    told = f"{view.completed} completed, {view.failed} failed, {under_way} in progress"
    restored = view.restored
    return told if restored is None else f"{told}; restored {format_restore(restored)}"


def format_restore(restored: RestoreView) -> str:
    """What a job last began with, and which newer checkpoints could not be read."""
    if restored.failure is not None:
        return f"nothing at {format_time(restored.at)}: {restored.failure}"
    passed_over = "".join(f"; passed over {uri}: {why}" for uri, why in restored.passed_over.items())
    return f"from {restored.uri or 'nothing'} at {format_time(restored.at)}{passed_over}"


def checkpoint_to_data(each: CheckpointView) -> dict[str, Any]:
    """A checkpoint for JSON, with what follows from it; `duration_ms` of one that has ended."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(each)
    ended = each.ended
    return {
        **data,
        "duration_ms": None if ended is None else round((ended - each.triggered) / 1000, 3),
        "acknowledged": each.acknowledged,
        "waiting_for": each.waiting_for,
        "bytes_written": each.bytes_written,
    }


def format_some(tasks: list[str]) -> str:
    """The first few by name."""
    left = len(tasks) - _MAX_NAMED
    return ", ".join(tasks[:_MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


class _CheckpointWait:
    """A request for a checkpoint of a job, and what is told of it meanwhile.

    Raises Failure for a job that there is not, or that has ended.
    """

    def __init__(self, configuration: Configuration, job: str, what: str, *, stops: bool = False) -> None:
        """`stops`: the job is to end with it, so that people are told of the way out where a task hangs."""
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
        """Waits until it is complete and, where the job `ends` with it, until that has ended.

        Raises CheckpointFailedError, NoAnswer, LogUnavailable, Failure.
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
        """Its directory; or all that is known of it as JSON."""
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
                    f"a {self._what} of job {self.job.job_id} begins when all its tasks run, and others are complete"
                    f"{format_not_running(self.job)}"
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
            names = [self._fold.task_of(each) for each in progress.waiting_for]
            come = progress.subtasks - len(names)
            print_progress(
                f"{come} of {progress.subtasks} subtasks have acknowledged, but not {format_some(names)}"
            )
        self._offer_force(is_triggered=progress is not None)

    def _offer_force(self, *, is_triggered: bool) -> None:
        if self._offers_force and time.monotonic() - self._began > _HANGS_AFTER_S:
            self._offers_force = False
            job_id = self.job.job_id
            state = (
                "is not complete after {:g} s: a task may hang"
                if is_triggered
                else f"has not begun after {{:g}} s: `tailrace show {job_id}` says what the job waits for"
            ).format(_HANGS_AFTER_S)
            print_progress(
                f"the savepoint {state}. `tailrace stop --force {job_id}` cancels the job and keeps its last checkpoint"
            )

    def _end(self, status: JobStatus | None, done: CompletedCheckpoint) -> None:
        job_id = self.job.job_id
        if status is None:
            raise CommandFailure(
                ExitCode.UNREACHABLE,
                f"job {job_id} did not end within {_STOP_TIMEOUT_S:g} s of its savepoint {done.uri}: see "
                f"`tailrace log --job {job_id}`",
            )
        if status.value != "FINISHED":
            raise CommandFailure(
                ExitCode.JOB,
                f"job {job_id} is {status.value}: before its tasks had ended it was cancelled, or some began again; "
                f"its savepoint is complete: `tailrace run -s {done.uri}` goes on from there",
            )
        print_progress(f"job {job_id} is {status.value}")


def format_not_running(job: JobView) -> str:
    """Which tasks did not run when the request was made; nothing where all did."""
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
