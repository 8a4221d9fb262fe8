"""`tailrace show`: shows one job in full, with the last exceptions of its tasks and their stack traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from ....infra.sanitize import escape_control_characters
from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..exit_codes import ExitCode
from ..render.output import (
    format_amount,
    format_duration,
    format_size,
    format_time,
    print_result,
    print_table,
)
from .checkpoints import format_restore
from .jobs import JobId, failure_reason, find_job

if TYPE_CHECKING:
    from ...client.accumulators import JobAccumulators
    from ...configuration import Configuration
    from ...history import HistoryProjection
    from ...history.checkpoint_history import CheckpointsSummary
    from ...history.cluster_view import JobView
    from ...history.subtask_view import SubtaskStateView
    from ...job_master.exception_history import TaskException

_RECORDS_IN, _RECORDS_OUT = "numRecordsIn", "numRecordsOut"
_OWN_METRICS = (_RECORDS_IN, _RECORDS_OUT, "numCommits")
_NO_METRICS: Mapping[str, Mapping[str, float]] = {}


def show(
    job: JobId,
    failures: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show the last N failures with their stack traces.")
    ] = 3,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Show a job: its tasks, its checkpoints, and the last exceptions of its tasks."""
    from ...history.cluster_view import jobs
    from ...history.subtask_view import describe_waiting, subtasks
    from ..readers.cluster_state import replay_log

    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    fold = replay_log(configuration)
    found = find_job(jobs(fold), job)
    running = subtasks(fold.replica, found.job_id)
    counted = _read_counts(configuration, fold, found.job_id, running)
    if counted is not None:
        found = replace(found, accumulators=counted.accumulators)
    metrics = counted.metrics if counted is not None else {}
    waits = describe_waiting(fold, found)
    if output is Format.JSON:
        import msgspec

        print_result(msgspec.json.encode(job_to_data(found, running, metrics, waits)).decode())
        return ExitCode.OK
    for line in format_job(found, waits):
        print_result(escape_control_characters(line))
    if running:
        print_result("")
        print_table("Subtasks", *rows_of(running, metrics))
    for line in format_failures(found.failures[len(found.failures) - failures :]):
        print_result(escape_control_characters(line))
    return ExitCode.OK


def job_to_data(
    job: JobView,
    running: Sequence[SubtaskStateView] = (),
    metrics: Mapping[str, Mapping[str, float]] = _NO_METRICS,
    waits: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns a job for JSON: the fields of `list`, what it waits for, and its subtasks with their metrics."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(job)
    data["waits_for"] = list(waits)
    data["subtasks"] = [
        {**msgspec.to_builtins(subtask), "metrics": dict(metrics.get(subtask.execution_attempt_id, {}))}
        for subtask in running
    ]
    return data


def rows_of(
    running: Sequence[SubtaskStateView], metrics: Mapping[str, Mapping[str, float]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the table of the subtasks: the column titles, and one row per subtask."""
    rows = []
    for view in running:
        measured = metrics.get(view.execution_attempt_id, {})
        counts = [
            format_amount(measured[name]) if name in measured else "" for name in (_RECORDS_IN, _RECORDS_OUT)
        ]
        own = ", ".join(
            f"{name} {format_amount(value)}" for name, value in measured.items() if name not in _OWN_METRICS
        )
        subtask = f"{view.vertex} ({view.subtask}/{view.parallelism})"
        rows.append((subtask, view.state.value, str(view.attempt), view.resource_id or "", *counts, own))
    return ("SUBTASK", "STATE", "ATTEMPT", "TASKEXECUTOR", "RECORDS IN", "RECORDS OUT", "METRICS"), rows


def _read_counts(
    configuration: Configuration, fold: HistoryProjection, job_id: str, running: Sequence[SubtaskStateView]
) -> JobAccumulators | None:
    """Returns the current accumulators and metrics of a job, or None if none of its tasks run."""
    from ...client.accumulators import read_accumulators
    from ...core.role import JOB_MASTER, address
    from ...job_master.state import JobMasterState

    state = fold.replica.states.get(address(JOB_MASTER, job_id))
    if not running or not isinstance(state, JobMasterState):
        return None
    attempts = {attempt: state.executions[attempt].vertex for attempt in state.current.values()}
    return read_accumulators(configuration, job_id, attempts, dict(state.accumulators))


def format_job(job: JobView, waits: Sequence[str] = ()) -> list[str]:
    """Returns the lines that describe a job."""
    why = failure_reason(job, longest=None)
    lines = [
        f"job {job.job_id} ({job.name}) is {job.status.value}{f': {why}' if why else ''}",
        f"  submitted    {format_time(job.submitted)}",
    ]
    if job.ended is not None and job.submitted is not None:
        lines.append(
            f"  ended        {format_time(job.ended)}, after {format_duration(job.ended - job.submitted)}"
        )
    tasks = ", ".join(f"{count} {state}" for state, count in job.tasks.items())
    slots = "1 slot" if job.required_slots == 1 else f"{job.required_slots} slots"
    lines.append(f"  tasks        {tasks} in {slots}")
    lines += [f"  {'waits for' if i == 0 else '':<12} {wait}" for i, wait in enumerate(waits)]
    lines += [f"  {line}" for line in _checkpoints(job.checkpoints)]
    if job.accumulators:
        counted = ", ".join(f"{name} {format_amount(value)}" for name, value in job.accumulators.items())
        lines.append(f"  accumulators {counted}")
    return lines


def format_failures(failures: tuple[TaskException, ...]) -> list[str]:
    """Returns the failures, oldest first: time, task, TaskExecutor, exception; then the stack trace."""
    lines = []
    for failure in failures:
        first, _, stack = failure.text.partition("\n")
        where = f" on {failure.resource_id}" if failure.resource_id else ""
        lines += ["", f"{format_time(failure.time)}  {failure.task} failed{where}: {first}"]
        lines += [f"    {line}" for line in stack.splitlines()]
    return lines


def _checkpoints(known: CheckpointsSummary) -> list[str]:
    lines = []
    if known.completed or known.failed or known.in_progress:
        lines.append(
            f"checkpoints  {known.completed} completed, {known.failed} failed, {known.in_progress} in progress"
        )
    last = known.last
    if last is not None and last.ended is not None:
        gone = " (discarded)" if last.discarded else ""
        lines.append(
            f"the last     {last.checkpoint_id}, {format_time(last.ended)}, "
            f"{format_duration(last.ended - last.triggered)}, "
            f"{format_size(last.size)}, {last.uri}{gone}"
        )
    if known.restored is not None:
        lines.append(f"restored     {format_restore(known.restored)}")
    return lines
