"""The parts of the screen as rich text: the rows of tables, the lines of the log, the title bar and the warnings.

They are pure functions of the View, the status and the live processes. What others wrote (names, reasons) is made safe
for the terminal here.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from ....infra.sanitize import escape_control_characters, local_time
from ....schemas.states import JOB_ENDS
from ....schemas.types import ExecutionState, JobStatus
from ...core.role import Time
from ...history.checkpoint_history import CheckpointStatus, CheckpointView
from ..render.formatting import (
    format_clock,
    format_count,
    format_duration,
    format_size,
    format_span,
    format_time,
)
from .event_player import PlayerMode, PlayerStatus
from .live_processes import LiveProcesses
from .view import JobDetail, JobLine, LogLine, MasterView, View

Row = tuple[Text, ...]
Rows = dict[str, Row]
"""The cells of each row by the row's key."""

MASTER_COLUMNS = ("MASTER", "LEADS")
EXECUTOR_COLUMNS = ("TASKEXECUTOR", "USED", "TASKS", "SLOTS")
JOB_COLUMNS = ("JOB", "STATUS", "TASKS", "SLOTS", "RESTARTS", "CHECKPOINT", "AGE", "NAME")
TASK_COLUMNS = ("TASK", "SUBTASK", "STATE", "ATTEMPT", "TASKEXECUTOR")
MARKS = "!! a failure began  ! it followed  x has no effect"
_MARK_STYLES = {"!!": "bold red", "!": "red", "x": "dim"}
_STATE_STYLES: Mapping[str, str] = {
    "RUNNING": "green",
    "FAILED": "bold red",
    "FAILING": "red",
    "RESTARTING": "red",
    "FINISHED": "dim",
    "CANCELED": "dim",
}
_SHORT = {
    "created": "new",
    "scheduled": "sched",
    "deploying": "depl",
    "initializing": "init",
    "running": "run",
    "finished": "fin",
    "failed": "fail",
}
_MAX_BAR = 8
_MAX_WAITING = 3


def clean(text: str) -> str:
    """The text of others on one line, safe for a terminal."""
    return escape_control_characters(text if text.isprintable() else " ".join(text.split()))


def title_bar(view: View, status: PlayerStatus) -> Table:
    """The first line: which log on the left, which place in it on the right."""
    bar = Table.grid(expand=True)
    bar.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    bar.add_column(no_wrap=True, justify="right")
    bar.add_row(
        f" tailrace top  {clean(view.cluster)}  {clean(status.source)}", format_place(view, status) + " "
    )
    return bar


def format_place(view: View, status: PlayerStatus) -> str:
    """Returns what the player does, and where: LIVE  offset 147  2026-11-22 08:31:07."""
    mode = status.mode.value.upper()
    if status.mode is PlayerMode.READING:
        mode += f" {status.progress:4.0%}"
    elif status.mode is PlayerMode.PLAYING:
        mode += f" ×{status.speed:g}"
    elif status.mode is PlayerMode.LIVE and status.trouble is not None:
        mode = "UNREACHABLE"
    if view.offset < 0:
        return mode
    end = "" if status.mode is PlayerMode.LIVE else f" of {max(status.end - 1, view.offset):,}"
    playing = status.mode is PlayerMode.PLAYING
    return f"{mode}  offset {view.offset:,}{end}  {format_time(status.now if playing else view.time)}"


def warnings(view: View, status: PlayerStatus, pattern: str = "") -> Text:
    """Returns warnings about the shown data; mostly empty."""
    lines = []
    if status.trouble is not None:
        again = "; tries again" if status.retries else ""
        lines.append(Text(f"{clean(status.trouble)}{again}", "bold red"))
    if status.unreadable:
        count = format_count(len(status.unreadable), "record")
        lines.append(Text(f"skips {count} that cannot be read: {clean(status.unreadable[0])}", "yellow"))
    if not view.whole:
        lines.append(
            Text("the log's head is deleted: earlier history is known as far as a snapshot has it", "dim")
        )
    if pattern:
        lines.append(Text(f"only what contains '{clean(pattern)}' (esc: all)", "yellow"))
    if status.skipped and status.mode is not PlayerMode.LIVE:
        lines.append(Text(f"skips {format_span(status.skipped)} without events", "dim"))
    return Text("\n").join(lines)


def master_rows(view: View, live: LiveProcesses) -> Rows:
    """Leaders first, then those that stand by, then those that led before."""
    known = {master.address: master for master in view.masters}
    leading = [master.address for master in view.masters if master.epoch]
    standby = [*(live.contenders or ()), *(address for address, runs in live.running.items() if runs)]
    return {
        address: _master(known.get(address, MasterView(address)), live)
        for address in dict.fromkeys([*leading, *standby, *known])
    }


def _master(master: MasterView, live: LiveProcesses) -> Row:
    gone = live.running.get(master.address) is False or (
        live.contenders is not None and master.address not in live.contenders
    )
    leads = Text()
    if master.epoch:
        jobs = [format_count(master.jobs, "job")] if master.jobs else []
        leads.append(", ".join((*master.roles, *jobs)))
        leads.append("  is gone" if gone else f"  epoch {master.epoch}", "red" if gone else "dim")
    elif live.running.get(master.address) or master.address in (live.contenders or ()):
        leads.append("stands by")
    else:
        leads.append(f"led before (elected at offset {master.since:,})", "dim")
    name = f"{live.names.get(master.address, '')} {master.address}".lstrip()
    return Text(clean(name), "cyan"), leads


def executor_rows(view: View, pattern: str = "") -> Rows:
    """The registered TaskExecutors with their slots, then the lost ones."""
    rows: Rows = {}
    for executor in view.taskexecutors:
        free = executor.slots - executor.used - executor.pending
        scale = min(1.0, _MAX_BAR / max(1, executor.slots))
        bar = Text()
        for sign, count, style in (
            ("■", executor.used, "green"),
            ("◧", executor.pending, "yellow"),
            ("□", free, "dim"),
        ):
            bar.append(sign * -int(-count * scale // 1), style)
        used = f"{executor.used}/{executor.slots}" if executor.slots else "?"
        name = Text(clean(executor.resource_id), "cyan")
        rows[executor.resource_id] = name, Text(used), Text(str(executor.tasks or "")), bar
    for lost in view.lost:
        reason = lost.reason.removeprefix(f"TaskExecutor {lost.resource_id} is lost: ")
        text = Text(f"lost at {local_time(lost.time, '%H:%M:%S')}: {clean(reason)}", "red")
        rows[lost.resource_id] = Text(clean(lost.resource_id), "red"), Text(), Text(), text
    return {key: row for key, row in rows.items() if pattern.casefold() in key.casefold()}


def executor_title(view: View) -> str:
    """The title of their panel: how many slots there are."""
    slots = view.slots
    parts = [f"{len(view.taskexecutors)}", f"slots {slots.used}/{slots.total}"]
    parts += [f"{slots.pending} requested"] if slots.pending else []
    parts += [f"{slots.missing} missing"] if slots.missing else []
    parts += [f"{len(view.lost)} lost"] if view.lost else []
    return f"TaskExecutors: {', '.join(parts)}"


def matches_job(line: JobLine, pattern: str) -> bool:
    """Whether a filter shows the job."""
    job = line.job
    return pattern.casefold() in f"{job.job_id} {job.name} {job.status.value}".casefold()


def job_row(line: JobLine, shown_id: str, now: Time | None, *, wide: bool = True) -> Row:
    """A row of JOB_COLUMNS; states of tasks are abbreviated unless it is `wide`."""
    job = line.job
    ended = job.status in JOB_ENDS
    plain = "dim" if ended else ""
    status = (
        "RESTARTING" if job.restarting is not None and job.status is JobStatus.RUNNING else job.status.value
    )
    is_short = not ended and line.slots < job.required_slots
    last = job.checkpoints.last
    parts = []
    if last is not None:
        parts.append(
            f"{last.checkpoint_id}" if ended else f"{last.checkpoint_id} {_ago(last.ended, now)} ago"
        )
    if job.checkpoints.failed:
        parts.append(f"{job.checkpoints.failed} failed")
    return (
        Text(clean(shown_id), plain or "cyan"),
        Text(status, _STATE_STYLES.get(status, "yellow")),
        Text(format_tasks(job.tasks, short=not wide), plain),
        Text("" if ended else f"{line.slots}/{job.required_slots}", "yellow" if is_short else plain),
        Text(str(line.restarts or ""), plain or "red"),
        Text(", ".join(parts), plain),
        Text(_ago(job.submitted, job.ended or now), plain),
        Text(clean(job.name), plain),
    )


def job_title(view: View, shown: int) -> str:
    """The title of their panel: how many there are."""
    ended = sum(line.job.status in JOB_ENDS for line in view.jobs)
    suspended = sum(line.job.status is JobStatus.SUSPENDED for line in view.jobs)
    parts = [f"{len(view.jobs) - ended - suspended} live"]
    parts += [f"{suspended} suspended"] if suspended else []
    parts += [f"{ended} ended"] if ended else []
    parts += [f"{shown} shown"] if shown != len(view.jobs) else []
    return f"Jobs: {', '.join(parts)}"


def format_tasks(counts: Mapping[str, int], *, short: bool = False) -> str:
    """7 running, 3 finished; short: 7 run, 3 fin."""
    found = [(counts[state], state.value.lower()) for state in ExecutionState if counts.get(state)]
    return ", ".join(f"{count} {_SHORT.get(state, state) if short else state}" for count, state in found)


def failure_text(line: JobLine, now: Time | None) -> Text:
    """Why a job waits or has ended, or how a task of it failed last; empty if all is well."""
    job = line.job
    if job.status in JOB_ENDS or job.status is JobStatus.SUSPENDED:
        return Text(_last_line(job.reason or ""), "red" if job.status is JobStatus.FAILED else "")
    if job.restarting is not None:
        at = job.restarting.at
        again = f"again in {format_span(at - now)}: " if now is not None and at > now else ""
        return Text(f"{again}{_last_line(job.restarting.reason)}", "red")
    if job.missing_slots:
        return Text(f"waits for {format_count(job.missing_slots, 'slot')}", "red")
    if job.failures:
        last = job.failures[-1]
        return Text(f"{_ago(last.time, now)} ago: {clean(last.task)}: {_last_line(last.text)}")
    return Text()


def job_head(line: JobLine, now: Time | None) -> Text:
    """The head of a job's page."""
    job = line.job
    status = job.status.value
    head = Text.assemble(
        (clean(job.name), "bold"),
        (f"  {clean(job.job_id)}  ", "cyan"),
        (status, _STATE_STYLES.get(status, "yellow")),
    )
    if job.submitted is not None:
        head.append(f"\nsubmitted {format_time(job.submitted)}, ")
        head.append(
            f"{_ago(job.submitted, now)} ago" if job.ended is None else f"ended {format_time(job.ended)}"
        )
    slots = f"{line.slots} of {format_count(job.required_slots, 'slot')}"
    head.append(
        f"; {slots}, {format_count(line.restarts, 'restart')}; {format_tasks(job.tasks) or 'no tasks yet'}"
    )
    failure = failure_text(line, now)
    return Text("\n").join([head, failure]) if failure else head


def task_rows(detail: JobDetail | None) -> Rows:
    """The current attempts of a job's subtasks."""
    return {
        task.execution_attempt_id: (
            Text(clean(task.vertex), "cyan"),
            Text(f"{task.subtask}/{task.parallelism or '?'}"),
            Text(task.state.value, _STATE_STYLES.get(task.state.value, "yellow")),
            Text(str(task.attempt), "red" if task.attempt > 1 else ""),
            Text(clean(task.resource_id or "")),
        )
        for task in (() if detail is None else detail.tasks)
    }


def checkpoint_lines(detail: JobDetail | None, now: Time | None) -> Text:
    """The checkpoints in progress, and the last one that completed and that failed."""
    found = [] if detail is None else list(detail.checkpoints.checkpoints)
    if detail is None or not found:
        return Text("no checkpoints yet", "dim")
    shown = [
        checkpoint
        for i, checkpoint in enumerate(found)
        if checkpoint.status is CheckpointStatus.IN_PROGRESS
        or all(later.status is not checkpoint.status for later in found[i + 1 :])
    ]
    restored = detail.checkpoints.restored
    summary = f"{detail.checkpoints.completed} completed, {detail.checkpoints.failed} failed"
    if restored is not None and restored.checkpoint_id is not None:
        summary += f"; restored from {restored.checkpoint_id}"
    return Text("\n").join([Text(summary), *(_checkpoint(checkpoint, now) for checkpoint in reversed(shown))])


def _checkpoint(checkpoint: CheckpointView, now: Time | None) -> Text:
    line = Text(f"{checkpoint.snapshot_type.value.lower()} {checkpoint.checkpoint_id} ")
    match checkpoint.status:
        case CheckpointStatus.COMPLETED:
            took = format_duration((checkpoint.ended or checkpoint.triggered) - checkpoint.triggered)
            line.append("completed", "green")
            line.append(f" {_ago(checkpoint.ended, now)} ago, took {took}, {format_size(checkpoint.size)}")
            line.append(", its files are deleted" if checkpoint.discarded else "")
        case CheckpointStatus.FAILED:
            line.append("failed", "red")
            reason = checkpoint.reason or checkpoint.failure or ""
            line.append(f" {_ago(checkpoint.ended, now)} ago: {clean(reason)}")
        case CheckpointStatus.IN_PROGRESS:
            waiting = checkpoint.waiting_for
            names = ", ".join(map(clean, waiting[:_MAX_WAITING])) + (
                "" if len(waiting) <= _MAX_WAITING else ", ..."
            )
            line.append("in progress", "yellow")
            line.append(f" for {_ago(checkpoint.triggered, now)}, {checkpoint.acknowledged} of ")
            line.append(f"{len(checkpoint.subtasks)} acknowledged{f'; waits for {names}' if names else ''}")
    return line


def filter_log(view: View, pattern: str, job_id: str | None = None) -> list[LogLine]:
    """The lines that a filter shows, oldest first; `job_id`: those of one job."""
    wanted = pattern.casefold()
    return [
        line
        for line in view.log
        if (job_id is None or line.job == job_id)
        and (not wanted or wanted in f"{line.who}: {line.text} {line.type} {line.job or ''}".casefold())
    ]


def log_line(line: LogLine, width: int) -> Text | Table:
    """An event; a text that is longer than the width continues below itself."""
    style = _MARK_STYLES.get(line.mark, "")
    root = f" (began with {line.root:,})" if line.root is not None else ""
    head = Text.assemble((f"{line.offset:>6} {format_clock(line.time)} ", "dim"), (f"{line.mark:<2} ", style))
    who = clean(line.who).replace(" -> ", " → ")
    text = Text.assemble((who, "dim" if line.mark == "x" else "cyan"), (f": {clean(line.text)}{root}", style))
    if head.cell_len + text.cell_len <= width:
        return head + text
    rows = Table.grid(padding=0)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row(head, text)
    return rows


def _ago(time: Time | None, now: Time | None) -> str:
    return "?" if time is None or now is None else format_span(now - time)


def _last_line(text: str) -> str:
    """Returns the error: the last line of a traceback, the first of any other text."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    return clean(lines[-1].strip() if lines[0].startswith("Traceback") else lines[0].strip())
