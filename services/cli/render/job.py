"""A job as text and as JSON: its state, its subtasks, and its last failures with their stack traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...dispatcher.build_queue import PARALLEL_BUILDS
from ...history.checkpoint_history import CheckpointsSummary
from ...history.cluster_view import JobView, SubtaskStateView
from ...job_master.autoscaler.state import ScalingDecision
from ...job_master.exception_history import TaskException
from .checkpoint_table import format_restore
from .formatting import format_amount, format_count, format_duration, format_size, format_time

_TENANT = "TENANT"
_JOB_COLUMNS = ("JOB", "NAME", "STATUS", "SUBMITTED", "ENDED", "TASKS", "WHY")
DECISION_COLUMNS = ("TIME", "DECISION")
_MAX_REASON_LENGTH = 240
_RECORDS_IN, _RECORDS_OUT = "numRecordsIn", "numRecordsOut"
_OWN_METRICS = (_RECORDS_IN, _RECORDS_OUT, "numCommits")
_NO_METRICS: Mapping[str, Mapping[str, float]] = {}


def failure_reason(job: JobView, longest: int | None = _MAX_REASON_LENGTH) -> str:
    """Returns why a job restarts, waits, or is in its state, as one line without a stack trace.

    The line has at most `longest` characters. It is empty if there is no reason.
    """
    text = job.reason or ""
    if job.restarting is not None:
        text = f"restarting, attempt {job.restarting.attempt_number + 1}: {job.restarting.reason}"
    elif job.missing_slots and not text:
        text = f"waits for {job.missing_slots} of {job.required_slots} slots"
    elif job.programs_before is not None and not text:
        text = describe_position(job.programs_before)
    text = " ".join(text.partition("\n")[0].split())
    return text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."


def describe_position(before: int) -> str:
    """Returns what happens to a job's program, with so many programs before it in the queue."""
    if before < PARALLEL_BUILDS:
        return "is being built"
    return f"waits to be built: {before:,} programs are before it"


def job_table(
    jobs: Sequence[JobView], shown_ids: Mapping[str, str]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the table of jobs: the column titles, and one row per job; with tenants, if a job has one."""
    rows = [_job_row(job, shown_ids[job.job_id]) for job in jobs]
    if not any(job.tenant for job in jobs):
        return _JOB_COLUMNS, rows
    with_tenants = [(row[0], job.tenant, *row[1:]) for job, row in zip(jobs, rows, strict=True)]
    return (_JOB_COLUMNS[0], _TENANT, *_JOB_COLUMNS[1:]), with_tenants


def _job_row(job: JobView, job_id: str) -> tuple[str, ...]:
    tasks = ", ".join(f"{count} {state}" for state, count in job.tasks.items())
    times = format_time(job.submitted), format_time(job.ended)
    return job_id, job.name, job.status.value, *times, tasks, failure_reason(job)


def job_to_data(
    job: JobView,
    running: Sequence[SubtaskStateView] = (),
    metrics: Mapping[str, Mapping[str, float]] = _NO_METRICS,
    waits: Sequence[str] = (),
    decisions: Sequence[ScalingDecision] = (),
) -> dict[str, Any]:
    """Returns a job for JSON: the fields of `list`, what it waits for, its subtasks with their metrics, and the last
    decisions of its autoscaler."""
    data: dict[str, Any] = msgspec.to_builtins(job)
    data["waits_for"] = list(waits)
    data["autoscaler"] = [
        {**msgspec.to_builtins(replace(each, parallelism=Map())), "parallelism": dict(each.parallelism)}
        for each in decisions
    ]
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


def format_job(job: JobView, waits: Sequence[str] = ()) -> list[str]:
    """Returns the lines that describe a job."""
    why = failure_reason(job, longest=None)
    tenant = f" by tenant {job.tenant}" if job.tenant else ""
    lines = [
        f"job {job.job_id} ({job.name}) is {job.status.value}{f': {why}' if why else ''}",
        f"  submitted    {format_time(job.submitted)}{tenant}",
    ]
    if job.ended is not None and job.submitted is not None:
        lines.append(
            f"  ended        {format_time(job.ended)}, after {format_duration(job.ended - job.submitted)}"
        )
    tasks = ", ".join(f"{count} {state}" for state, count in job.tasks.items())
    slots = format_count(job.required_slots, "slot")
    lines.append(f"  tasks        {tasks} in {slots}")
    if job.stage is not None:
        lines.append(f"  stage        {job.stage} of {job.stages}")
    lines += [f"  {'waits for' if i == 0 else '':<12} {wait}" for i, wait in enumerate(waits)]
    lines += [f"  {line}" for line in _checkpoints(job.checkpoints)]
    if job.changed_options:
        changed = ", ".join(f"{key}={text}" for key, text in job.changed_options.items())
        lines.append(f"  configured   {changed}")
    if job.accumulators:
        counted = ", ".join(f"{name} {format_amount(value)}" for name, value in job.accumulators.items())
        lines.append(f"  accumulators {counted}")
    return lines


def decision_rows(decisions: Sequence[ScalingDecision]) -> list[tuple[str, str]]:
    """Returns a row for each decision of the autoscaler, oldest first (DECISION_COLUMNS)."""
    return [
        (format_time(each.time), f"{each.reason}{' (advice)' if each.is_advice else ''}")
        for each in decisions
    ]


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
