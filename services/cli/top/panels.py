"""The parts of the main page, each made of a View for the rows and the width that it gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...core.role import Time
from ..render.wrapping import wrap_text
from . import formatting
from .canvas import Canvas, Column, Line, Span, Style, row, width_of, widths
from .live_processes import LiveProcesses
from .ui_state import Panel, UiState, jobs_of, log_of, selected_row
from .view import JobLine, LogLine, MasterView, TaskExecutorView, View

_MARKS = {"!!": Style.WORST, "!": Style.BAD, "x": Style.DIM}
_BAR = 8
"""Slots of a TaskExecutor that are shown one by one."""
_CELL_GAP = 3


def masters(canvas: Canvas, view: View, presence: LiveProcesses, room: int) -> list[Line]:
    """Who leads what, who stands by."""
    known = {each.address: each for each in view.masters}
    leading = [each.address for each in view.masters if each.epoch]
    others = [*(presence.contenders or ()), *(each for each, runs in presence.running.items() if runs)]
    addresses = list(dict.fromkeys([*leading, *others, *known]))
    rows = [
        _master(canvas, known.get(each, MasterView(each)), presence)
        for each in addresses[: room - 1 if len(addresses) > room else room]
    ]
    if len(addresses) > room > 0:
        more = addresses[room - 1 :]
        rows.append(
            canvas.line(Span(f"   and {formatting.format_count(len(more), 'more master')}", Style.DIM))
        )
    return rows or [canvas.line(Span("   nobody leads yet", Style.DIM))]


def _master(canvas: Canvas, master: MasterView, presence: LiveProcesses) -> Line:
    name = presence.names.get(master.address)
    spans = [
        Span("   "),
        Span(f"{name} " if name else "", Style.NAME),
        Span(canvas.clean(master.address), Style.NAME),
    ]
    gone = presence.running.get(master.address) is False or (
        presence.contenders is not None and master.address not in presence.contenders
    )
    if master.epoch:
        jobs = [formatting.format_count(master.jobs, "job")] if master.jobs else []
        spans += [Span("  leads "), Span(", ".join((*master.roles, *jobs)), Style.PLAIN)]
        spans.append(Span(f"  epoch {master.epoch}, since offset {master.since:,}", Style.DIM))
        if gone:
            spans.append(Span("  is gone", Style.BAD))
    elif presence.running.get(master.address) or master.address in (presence.contenders or ()):
        spans.append(Span("  stands by"))
    else:
        spans.append(Span(f"  led before (elected at offset {master.since:,})", Style.DIM))
    return canvas.line(*spans)


def executor_rows(canvas: Canvas, view: View, look: UiState, room: int) -> tuple[list[Line], str]:
    """TaskExecutors with their slots, as many beside each other as there is room for; and what the title says."""
    lost = {each.resource_id: each for each in view.lost}
    pattern = look.pattern.casefold()
    shown = [each for each in view.taskexecutors if pattern in each.resource_id.casefold()]
    said = _format_slots(view)
    rows: list[Line] = []
    if not shown:
        nothing = "none has that in its name" if view.taskexecutors else "none is registered"
        rows.append(canvas.line(Span(f"   {nothing}", Style.DIM)))
    for bar in (True, False):
        cells = [_executor(canvas, each, bar=bar) for each in shown]
        size = max((sum(width_of(span.text) for span in each) for each in cells), default=1)
        across = max(1, (canvas.width - 3 + _CELL_GAP) // (size + _CELL_GAP))
        rows_needed = -(-len(cells) // across)
        if rows_needed <= room:
            break
    grid = [cells[i * across : (i + 1) * across] for i in range(rows_needed)]
    spare = min(len(lost), max(0, room - min(len(grid), max(1, room - 1))))
    visible = max(1, room - spare)
    first = max(0, min(look.first_row, len(grid) - visible))
    for some in grid[first : first + visible]:
        rows.append(canvas.line(*_side_by_side(some, size)))
    if len(grid) > visible:
        end = min(len(shown), (first + visible) * across)
        said += f"; {first * across + 1} to {end} of {len(shown)} are shown"
    for each in list(lost.values())[-spare:] if spare else ():
        why = each.reason.removeprefix(f"TaskExecutor {each.resource_id} is lost: ")
        said_of = f" is lost since {formatting.format_clock(each.time)[:8]}: {canvas.clean(why)}"
        rows.append(
            canvas.line(
                Span("   "), Span(canvas.clean(each.resource_id), Style.BAD), Span(said_of, Style.BAD)
            )
        )
    return rows[:room], said


def executor_height(canvas: Canvas, view: View) -> int:
    """How many rows would show all of them."""
    cells = [_executor(canvas, each, bar=True) for each in view.taskexecutors]
    size = max((sum(width_of(span.text) for span in each) for each in cells), default=1)
    across = max(1, (canvas.width - 3 + _CELL_GAP) // (size + _CELL_GAP))
    return max(1, -(-len(cells) // across)) + min(2, len(view.lost))


def _format_slots(view: View) -> str:
    slots = view.slots
    said = f"{len(view.taskexecutors)}; {slots.used} of {slots.total} slots used"
    if slots.pending:
        said += f", {slots.pending} asked for"
    if slots.missing:
        said += f", {slots.missing} missing"
    if view.lost:
        said += f"; {len(view.lost)} lost"
    return said


def _executor(canvas: Canvas, each: TaskExecutorView, *, bar: bool) -> list[Span]:
    signs = canvas.glyphs
    spans = [Span(canvas.clean(each.resource_id), Style.NAME), Span(" ")]
    if each.slots == 0:
        return [*spans, Span("no report yet", Style.DIM)]
    free = each.slots - each.used - each.pending
    if bar and each.slots <= _BAR:
        parts = ((signs.used * each.used, Style.GOOD), (signs.pending * each.pending, Style.BUSY))
        spans += [Span(text, style) for text, style in parts if text]
        spans += [Span(signs.free * free, Style.DIM), Span(" ")]
    elif bar:
        full = max(each.used > 0, each.used * _BAR // each.slots)
        spans += [Span(signs.used * full, Style.GOOD), Span(signs.free * (_BAR - full), Style.DIM), Span(" ")]
    spans.append(Span(f"{each.used}/{each.slots}"))
    if bar and each.tasks:
        spans.append(Span(f" {formatting.format_count(each.tasks, 'task')}", Style.DIM))
    return spans


def _side_by_side(cells: Sequence[list[Span]], size: int) -> list[Span]:
    spans = [Span("   ")]
    for each in cells:
        spans += each
        spans.append(Span(" " * (size - sum(width_of(span.text) for span in each) + _CELL_GAP)))
    return spans[:-1]


_JOBS = (
    Column("JOB", 8, 64),
    Column("NAME", 15, 40, need=5),
    Column("STATUS", 9, 12),
    Column("TASKS", 16, 48),
    Column("SLOTS", 5, 9, need=3),
    Column("RESTARTS", 8, 8, need=4, right=True),
    Column("CHECKPOINTS", 12, 44, need=2),
    Column("AGE", 4, 6, need=6, right=True),
    Column("LAST FAILURE", 16, 200, need=7),
)
_WIDE_ENOUGH = 140
"""From this width on there is room for the last failure."""
_FEW = 3
_MOST_ROWS = 3
"""Of an event in the log."""
_NARROWEST = 20
_SHORTEST_ID, _LONGEST_ID = 8, 40


def jobs(canvas: Canvas, view: View, look: UiState, now: Time | None, room: int) -> tuple[list[Line], str]:
    """The jobs, with a heading; and what the title says."""
    found = jobs_of(view, look.pattern)
    said = _format_job_count(view)
    if look.pattern:
        said += f"; {len(found)} of {len(view.jobs)} fit the filter"
    if not found:
        nothing = "no job is called that" if look.pattern and view.jobs else "no jobs yet"
        return [canvas.line(Span(f"   {nothing}", Style.DIM))], said
    at = selected_row(look, found)
    told_of, bad = format_failure(canvas, found[at], now)
    below = _tells_below(canvas) and room > _FEW
    columns = _JOBS[:-1] if _tells_below(canvas) else _JOBS
    visible = max(1, room - 1 - below)
    first = max(0, min(at - visible // 2, len(found) - visible))
    shown = found[first : first + visible]
    if len(found) > visible:
        said += f"; {first + 1} to {first + len(shown)} of {len(found)} are shown"
    cells = [_job(canvas, each, now)[: len(columns)] for each in shown]
    wanted = [max(width_of(each[i].text) for each in cells) for i in range(len(columns))]
    # An id that is cut can't be used: names give way.
    columns = (columns[0]._replace(least=max(_SHORTEST_ID, min(wanted[0], _LONGEST_ID))), *columns[1:])
    sizes = widths(columns, canvas.width - 3, wanted)
    heading = row(canvas, columns, sizes, [Span(each.name, Style.HEADING) for each in columns], begin="   ")
    rows = [heading]
    for i, (each, some) in enumerate(zip(shown, cells, strict=True), first):
        here = i == at and look.panel is Panel.JOBS
        begin = f" {canvas.glyphs.cursor} " if here else "   "
        told = [*some]
        told[3] = Span(formatting.format_tasks(each.job.tasks, sizes[3]), some[3].style)
        rows.append(row(canvas, columns, sizes, told, begin=begin, chosen=here))
    if below:
        name = canvas.clean(found[at].job.name)
        told = [Span(f"   {name}: ", Style.NAME), Span(told_of, Style.BAD if bad else Style.PLAIN)]
        rows.append(canvas.line(*told) if told_of else canvas.blank())
    return rows, said


def job_height(canvas: Canvas, view: View) -> int:
    """How many rows would show all of them."""
    return max(1, len(view.jobs)) + 1 + _tells_below(canvas)


def _tells_below(canvas: Canvas) -> bool:
    """Whether there is no room for a column of last failures: that of the job under the cursor is told below."""
    return canvas.width < _WIDE_ENOUGH


def _format_job_count(view: View) -> str:
    kinds = Counter(
        "ended"
        if each.job.status in JOB_ENDS
        else "suspended"
        if each.job.status is JobStatus.SUSPENDED
        else "live"
        for each in view.jobs
    )
    said = [f"{kinds['live']} live"]
    if kinds["suspended"]:
        said.append(f"{kinds['suspended']} suspended")
    if kinds["ended"]:
        said.append(f"{kinds['ended']} ended")
    return ", ".join(said)


def _job(canvas: Canvas, each: JobLine, now: Time | None) -> list[Span]:
    job = each.job
    status = job.status.value
    style = formatting.job_style(job.status)
    if job.restarting is not None and job.status is JobStatus.RUNNING:
        status, style = "RESTARTING", Style.BAD
    over = job.status in JOB_ENDS
    plain = Style.DIM if over else Style.PLAIN
    slots = f"{each.slots}/{job.required_slots}" if not over else ""
    short = not over and each.slots < job.required_slots
    failure, failed = format_failure(canvas, each, now)
    return [
        Span(canvas.clean(job.job_id) if len(job.job_id) != 32 else job.job_id[:8], plain),
        Span(canvas.clean(job.name), Style.DIM if over else Style.NAME),
        Span(status, style),
        Span(formatting.format_tasks(job.tasks, 1 << 10), plain),
        Span(slots, Style.BUSY if short else plain),
        Span(str(each.restarts) if each.restarts else "", Style.BAD if not over else plain),
        *_checkpoints(each, now, plain),
        Span(formatting.format_ago(job.submitted, job.ended or now), plain),
        Span(failure, Style.BAD if failed and not over else plain),
    ]


def _checkpoints(each: JobLine, now: Time | None, plain: Style) -> list[Span]:
    found = each.job.checkpoints
    said = []
    if found.last is not None:
        when = formatting.format_ago(found.last.ended, now)
        live = each.job.status not in JOB_ENDS
        said.append(f"{found.last.checkpoint_id}{f' {when} ago' if when and live else ''}")
    if found.in_progress:
        said.append(f"{found.in_progress} in progress")
    if found.failed:
        said.append(f"{found.failed} failed")
    return [Span(", ".join(said), Style.BUSY if found.failed and plain is not Style.DIM else plain)]


def format_failure(canvas: Canvas, each: JobLine, now: Time | None) -> tuple[str, bool]:
    """Why a job waits or ended, or how a task of it failed last; and whether that is bad."""
    job = each.job
    if job.status in JOB_ENDS or job.status is JobStatus.SUSPENDED:
        return canvas.clean(formatting.last_line(job.reason or "")), job.status is JobStatus.FAILED
    if job.restarting is not None:
        at = job.restarting.at
        again = f"again in {formatting.format_span(at - now)}: " if now is not None and at > now else ""
        return f"{again}{canvas.clean(formatting.last_line(job.restarting.reason))}", True
    if job.missing_slots:
        return f"waits for {formatting.format_count(job.missing_slots, 'slot')}", True
    if job.failures:
        last = job.failures[-1]
        when = formatting.format_ago(last.time, now)
        text = canvas.clean(formatting.last_line(last.text))
        return f"{f'{when} ago ' if when else ''}{canvas.clean(last.task)}: {text}", False
    return "", False


def log(
    canvas: Canvas, view: View, look: UiState, room: int, job_id: str | None = None
) -> tuple[list[Line], str]:
    """The tail of the log in words; and what the title says."""
    found = log_of(view, look, job_id)
    said, end = "", len(found)
    if look.log_end is not None:
        end = next(
            (i + 1 for i in range(len(found) - 1, -1, -1) if found[i].offset <= look.log_end), len(found)
        )
    if end < len(found):
        said = f"{formatting.format_count(len(found) - end, 'newer line')} below"
    if not found:
        nothing = "no event has that in it" if look.pattern else "nothing was said yet"
        return [canvas.line(Span(f"   {nothing}", Style.DIM))], said
    focus = look.panel is Panel.LOG
    digits = len(f"{found[end - 1].offset}")
    rows: list[Line] = []
    for each in reversed(found[:end]):
        # Where there is little room, failures are told as a whole, and all else where somebody reads.
        most = _MOST_ROWS if focus or each.mark in ("!", "!!") else 1
        rows[:0] = log_rows(canvas, each, digits, most)
        if len(rows) >= room:
            break
    return rows[-room:], said


def log_rows(canvas: Canvas, each: LogLine, digits: int, most: int) -> list[Line]:
    """An event, in at most so many rows."""
    style = _MARKS.get(each.mark, Style.PLAIN)
    who = canvas.clean(each.who).replace(" -> ", f" {canvas.glyphs.arrow} ")
    began = f" (began with {each.root:,})" if each.root is not None else ""
    time = formatting.format_clock(each.time)
    if canvas.width < _WIDE_ENOUGH:
        time = time[:8]
    head = [
        Span(f" {each.offset:>{digits}} ", Style.DIM),
        Span(f"{time} ", Style.DIM),
        Span(f"{each.mark:<2} ", style),
    ]
    indent = sum(width_of(span.text) for span in head)
    room = canvas.width - indent
    named = Style.DIM if each.mark == "x" else Style.NAME
    text = f": {canvas.clean(each.text)}{began}"
    if most == 1 or width_of(who + text) <= room or room < _NARROWEST:
        return [canvas.line(*head, Span(who, named), Span(text, style))]
    first, *rest = wrap_text(who + text, room)
    if len(rest) >= most:
        rest = [*rest[: most - 2], " ".join(rest[most - 2 :])]
    rows = [canvas.line(*head, Span(first[: len(who)], named), Span(first[len(who) :], style))]
    rows += [canvas.line(Span(" " * indent), Span(canvas.cut(some, room), style)) for some in rest]
    return rows
