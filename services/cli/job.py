"""`tailrace show`: one job in full, with the last failures of its tasks and their stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..text import printable
from .checkpoints import restored_from
from .errors import ExitCode
from .jobs import JobId, find_job, read_jobs, why
from .options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from .show import amount, clock, lasted, result, size

if TYPE_CHECKING:
    from ..history.checkpoints import CheckpointsSummary
    from ..history.views import JobView
    from ..job_master.exceptions import TaskException


def show(
    job: JobId,
    failures: Annotated[
        int, typer.Option(min=0, metavar="N", help="So many of the last failures, with their stacks.")
    ] = 3,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Show a job: its tasks, checkpoints, and the last failures of its tasks, with what was raised and where."""
    found = find_job(read_jobs(find_cluster(home, bootstrap_servers, cluster_id)), job)
    if output is Format.JSON:
        import msgspec

        result(msgspec.json.encode(as_data(found)).decode())
        return ExitCode.OK
    for line in [*described(found), *told(found.failures[len(found.failures) - failures :])]:
        result(printable(line))
    return ExitCode.OK


def as_data(job: JobView) -> dict[str, Any]:
    """A job for JSON: as in `list`, with all failures."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(job)
    return data


def described(job: JobView) -> list[str]:
    """A job in some lines."""
    told_why = why(job)
    lines = [
        f"job {job.job_id} ({job.name}) is {job.status.value}{f': {told_why}' if told_why else ''}",
        f"  submitted    {clock(job.submitted)}",
    ]
    if job.ended is not None and job.submitted is not None:
        lines.append(f"  ended        {clock(job.ended)}, after {lasted(job.ended - job.submitted)}")
    tasks = ", ".join(f"{count} {state}" for state, count in job.tasks.items())
    slots = "1 slot" if job.required_slots == 1 else f"{job.required_slots} slots"
    lines.append(f"  tasks        {tasks} in {slots}")
    lines += [f"  {line}" for line in _checkpoints(job.checkpoints)]
    if job.accumulators:
        counted = ", ".join(f"{name} {amount(value)}" for name, value in job.accumulators.items())
        lines.append(f"  accumulators {counted}")
    return lines


def told(failures: tuple[TaskException, ...]) -> list[str]:
    """Failures, oldest first: when, which task, where, what; below each its stack."""
    lines = []
    for each in failures:
        first, _, stack = each.text.partition("\n")
        where = f" on {each.resource_id}" if each.resource_id else ""
        lines += ["", f"{clock(each.time)}  {each.task} failed{where}: {first}"]
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
            f"the last     {last.checkpoint_id}, {clock(last.ended)}, {lasted(last.ended - last.triggered)}, "
            f"{size(last.size)}, {last.uri}{gone}"
        )
    if known.restored is not None:
        lines.append(f"restored     {restored_from(known.restored)}")
    return lines
