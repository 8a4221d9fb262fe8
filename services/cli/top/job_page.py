"""The page of one job: its tasks and where they run, its checkpoints, how tasks failed, and what was said of it."""

from __future__ import annotations

from ...core.role import Time
from ...history.checkpoint_history import CheckpointStatus, CheckpointView
from ..render.output import format_size
from . import formatting
from .canvas import Canvas, Column, Line, Span, Style, row, width_of, widths
from .panels import format_failure, log
from .ui_state import UiState
from .view import JobLine, TaskLine, View

_TASKS = (
    Column("TASK", 20, 80),
    Column("SUBTASK", 7, 9, right=True),
    Column("STATE", 9, 12),
    Column("ATTEMPT", 7, 7, right=True),
    Column("TASKEXECUTOR", 8, 40),
)
_LEAST_LOG = 4
_MOST_CHECKPOINTS = 5


def job_page(
    canvas: Canvas, view: View, look: UiState, now: Time | None, room: int
) -> tuple[list[Line], int]:
    """The rows, and how many tasks are among them."""
    found = next((each for each in view.jobs if each.job.job_id == look.job), None)
    if found is None:
        return [canvas.line(Span("   there is no such job here and now: esc goes back", Style.DIM))], 1
    rows = _head(canvas, found, now)
    checkpoints = _checkpoints(canvas, view, now)
    tasks = view.detail.tasks if view.detail is not None else ()
    left = room - len(rows) - len(checkpoints) - 2
    visible = max(1, min(len(tasks), left - 1 - _LEAST_LOG))
    first = max(0, min(look.top, len(tasks) - visible))
    said = str(len(tasks)) if tasks else ""
    if len(tasks) > visible:
        said += f"; {first + 1} to {first + visible} are shown"
    rows.append(canvas.title("Tasks", said, focus=True))
    rows += _tasks(canvas, found, tasks, first, visible)
    rows += checkpoints
    lines, told = log(canvas, view, look, max(1, room - len(rows) - 1), found.job.job_id)
    rows.append(canvas.title("Log of the job", told))
    return [*rows, *lines], visible


def _head(canvas: Canvas, each: JobLine, now: Time | None) -> list[Line]:
    job = each.job
    times = f"submitted {formatting.date_and_time(job.submitted)[:19]}" if job.submitted is not None else ""
    if job.ended is not None:
        times += f", ended {formatting.date_and_time(job.ended)[:19]}"
    elif job.submitted is not None:
        times += f", {formatting.format_ago(job.submitted, now)} ago"
    facts = [
        f"{each.slots} of {formatting.format_count(job.required_slots, 'slot')}",
        formatting.format_count(each.restarts, "restart"),
    ]
    rows = [
        canvas.line(
            Span(" "),
            Span(canvas.clean(job.name), Style.TITLE),
            Span(f"  {canvas.clean(job.job_id)}  "),
            Span(job.status.value, formatting.job_style(job.status)),
        ),
        canvas.line(Span(f"   {times}{'; ' if times else ''}{', '.join(facts)}")),
    ]
    failure, bad = format_failure(canvas, each, now)
    if failure:
        rows.append(canvas.line(Span(f"   {failure}", Style.BAD if bad else Style.PLAIN)))
    return rows


def _tasks(canvas: Canvas, job: JobLine, tasks: tuple[TaskLine, ...], first: int, visible: int) -> list[Line]:
    if not tasks:
        counts = formatting.format_tasks(job.job.tasks, canvas.width)
        return [canvas.line(Span(f"   {counts or 'there are none yet'}", Style.DIM))]
    cells = [
        [
            Span(canvas.clean(each.vertex), Style.NAME),
            Span(each.subtask),
            Span(each.state, formatting.task_style(each.state)),
            Span(str(each.attempt), Style.BAD if each.attempt > 1 else Style.PLAIN),
            Span(canvas.clean(each.resource_id or "")),
        ]
        for each in tasks[first : first + visible]
    ]
    sizes = widths(
        _TASKS, canvas.width - 3, [max(width_of(each[i].text) for each in cells) for i in range(len(_TASKS))]
    )
    heading = row(canvas, _TASKS, sizes, [Span(each.name, Style.HEADING) for each in _TASKS], begin="   ")
    return [heading, *(row(canvas, _TASKS, sizes, each, begin="   ") for each in cells)]


def _checkpoints(canvas: Canvas, view: View, now: Time | None) -> list[Line]:
    found = view.detail.checkpoints if view.detail is not None else None
    if found is None or not found.checkpoints:
        return []
    last = list(found.checkpoints)
    pending = [each for each in last if each.status is CheckpointStatus.IN_PROGRESS]
    complete = [each for each in last if each.status is CheckpointStatus.COMPLETED][-1:]
    failed = [each for each in last if each.status is CheckpointStatus.FAILED][-1:]
    said = f"{found.completed} completed, {found.failed} failed"
    if found.restored is not None and found.restored.checkpoint_id is not None:
        said += f"; began with {found.restored.checkpoint_id}"
    rows = [canvas.title("Checkpoints", said)]
    for each in [*complete, *pending, *failed][:_MOST_CHECKPOINTS]:
        rows.append(_checkpoint(canvas, each, now))
    return rows


def _checkpoint(canvas: Canvas, each: CheckpointView, now: Time | None) -> Line:
    name = f"   {each.snapshot_type.value.lower()} {each.checkpoint_id} "
    match each.status:
        case CheckpointStatus.COMPLETED:
            took = formatting.format_span((each.ended or each.triggered) - each.triggered)
            gone = ", its files are deleted" if each.discarded else ""
            said = (
                f" {formatting.format_ago(each.ended, now)} ago, took {took}, {format_size(each.size)}{gone}"
            )
            return canvas.line(Span(name), Span("completed", Style.GOOD), Span(said))
        case CheckpointStatus.FAILED:
            why = canvas.clean(each.reason or each.failure or "")
            return canvas.line(
                Span(name),
                Span("failed", Style.BAD),
                Span(f" {formatting.format_ago(each.ended, now)} ago: {why}"),
            )
        case CheckpointStatus.IN_PROGRESS:
            waits = each.waiting_for
            some = ", ".join(canvas.clean(task) for task in waits[:3]) + (" ..." if len(waits) > 3 else "")
            since = formatting.format_ago(each.triggered, now)
            return canvas.line(
                Span(name),
                Span("in progress", Style.BUSY),
                Span(
                    f" for {since}, {each.acknowledged} of {len(each.subtasks)} acknowledged"
                    f"{f', but not by {some}' if some else ''}"
                ),
            )
