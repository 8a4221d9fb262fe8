"""The whole screen: a pure function of what is known (View, Presence, Status), what is looked at, and its size."""

from __future__ import annotations

from typing import NamedTuple

from . import formatting, panels
from .canvas import Canvas, Glyphs, Line, Span, Style
from .event_player import PlayerMode, PlayerStatus
from .job_page import job_page
from .live_processes import LiveProcesses
from .ui_state import Page, Panel, Rows, UiState
from .view import View

_FEWEST_ROWS = 8
_WIDE = 100
_ROWS_FOR_ALL = 14
"""A screen of fewer rows leaves masters and TaskExecutors out."""

_HELP = (
    ("q", "quit"),
    ("space, p", "pause; go on"),
    ("+  -", "play faster, slower (only the past has a speed)"),
    ("right, .", "one event on"),
    ("left, ,", "one event back"),
    (
        "g",
        "go to an offset (4711), a time (08:30, 2026-11-22T08:30:05) or so long ago (-10m), and play from there",
    ),
    ("l", "live: the end of the log"),
    ("tab", "another panel: jobs, log, TaskExecutors"),
    ("arrows, page up, down, home, end", "move in the panel"),
    ("enter", "the job under the cursor: its tasks, checkpoints and log"),
    ("/", "show only jobs, TaskExecutors and events with a text in them"),
    ("esc", "back; no filter; the newest line of the log"),
    ("?", "this page"),
)
_MARKS = (
    ("!!", Style.WORST, "a failure that began here"),
    ("!", Style.BAD, "a failure that followed"),
    ("x", Style.DIM, "has no effect: an old leader said it, or it was not possible"),
)


class Screen(NamedTuple):
    """Just as many lines as the terminal has, and how many rows of them the panels have."""

    lines: list[Line]
    rows: Rows


def draw(
    view: View,
    look: UiState,
    status: PlayerStatus,
    presence: LiveProcesses,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> Screen:
    """`width` and `height` in cells."""
    canvas = Canvas(max(1, width), glyphs)
    if height < _FEWEST_ROWS:
        return Screen([_bar(canvas, view, status), *[canvas.blank()] * max(0, height - 1)][:height], Rows())
    lines = [_bar(canvas, view, status), *_draw_warning(canvas, view, look, status)]
    room = height - len(lines) - 1
    if view.offset < 0 and status.mode is PlayerMode.READING and look.page is not Page.HELP:
        waiting = [canvas.line(Span(" reads the log", Style.DIM)), *[canvas.blank()] * (room - 1)]
        return Screen([*lines, *waiting, _keys(canvas, look, status)], Rows())
    match look.page:
        case Page.MAIN:
            body, rows = _main(canvas, view, look, status, presence, room)
        case Page.JOB:
            body, visible = job_page(canvas, view, look, status.now, room)
            rows = Rows(tasks=visible)
        case Page.HELP:
            body, rows = _help(canvas), Rows()
    body = body[:room] + [canvas.blank()] * (room - len(body))
    return Screen([*lines, *body, _keys(canvas, look, status)], rows)


def _bar(canvas: Canvas, view: View, status: PlayerStatus) -> Line:
    left = f" tailrace top  {canvas.clean(view.cluster)}"
    if status.source:
        left += f"  {canvas.clean(status.source)}"
    return canvas.sides(
        [Span(left, Style.BAR)], [Span(f"  {_mode(canvas, status)}{_place(view, status)} ", Style.BAR)]
    )


def _mode(canvas: Canvas, status: PlayerStatus) -> str:
    match status.mode:
        case PlayerMode.READING:
            return f"READING {status.progress:4.0%}"
        case PlayerMode.PLAYING:
            return f"PLAYING {canvas.glyphs.times}{status.speed:g}"
        case PlayerMode.END:
            return "END"
        case PlayerMode.LIVE:
            return "LIVE" if status.trouble is None else "AWAY"
        case PlayerMode.PAUSED:
            return "PAUSED"


def _place(view: View, status: PlayerStatus) -> str:
    last = max(status.end - 1, view.offset)
    of = f" of {last:,}" if status.mode is not PlayerMode.LIVE else ""
    if view.offset < 0:
        return ""
    when = formatting.date_and_time(status.now if status.mode is PlayerMode.PLAYING else view.time)
    return f"  offset {view.offset:,}{of}  {when[:21] if status.mode is PlayerMode.PLAYING else when[:19]}"


def _draw_warning(canvas: Canvas, view: View, look: UiState, status: PlayerStatus) -> list[Line]:
    """What has to be known of all that is below; mostly nothing."""
    lines = []
    if status.trouble is not None:
        waits = "; tries again" if status.waits else ""
        lines.append(canvas.line(Span(f" {canvas.clean(status.trouble)}{waits}", Style.WORST)))
    if status.unreadable:
        count = formatting.format_count(len(status.unreadable), "record")
        said = f" passes over {count} that can't be read: {canvas.clean(status.unreadable[0])}"
        lines.append(canvas.line(Span(said, Style.BUSY)))
    if not view.whole:
        said = " the log's head is gone: what was before is known as far as a snapshot has it"
        lines.append(canvas.line(Span(said, Style.DIM)))
    if look.pattern:
        lines.append(
            canvas.line(Span(f" only what has '{canvas.clean(look.pattern)}' in it (esc: all)", Style.BUSY))
        )
    return lines


def _main(
    canvas: Canvas, view: View, look: UiState, status: PlayerStatus, presence: LiveProcesses, room: int
) -> tuple[list[Line], Rows]:
    lines: list[Line] = []
    executors = 1
    if room >= _ROWS_FOR_ALL - 3:
        found = panels.masters(canvas, view, presence, max(1, room // 8))
        lines += [canvas.title("Masters"), *found]
        most = max(2, room // (3 if look.panel is Panel.TASKEXECUTORS else 5))
        executors = min(panels.executor_height(canvas, view), most)
        rows, said = panels.executor_rows(canvas, view, look, executors)
        lines += [canvas.title("TaskExecutors", said, focus=look.panel is Panel.TASKEXECUTORS), *rows]
    left = room - len(lines) - 2
    share = left // 2 if look.panel is not Panel.LOG else left // 3
    if look.panel is Panel.JOBS and panels.job_height(canvas, view) > share:
        share = left * 3 // 5
    of_jobs = max(2, min(panels.job_height(canvas, view), share))
    rows, said = panels.jobs(canvas, view, look, status.now, of_jobs)
    lines += [canvas.title("Jobs", said, focus=look.panel is Panel.JOBS), *rows]
    of_log = max(1, room - len(lines) - 1)
    rows, said = panels.log(canvas, view, look, of_log)
    if status.passed_over and status.mode is not PlayerMode.LIVE:
        silence = f"{formatting.format_span(status.passed_over)} of silence left out"
        said = f"{silence}; {said}" if said else silence
    lines += [canvas.title("Log", said, focus=look.panel is Panel.LOG), *rows]
    return lines, Rows(jobs=max(1, of_jobs - 1), log=of_log, executors=executors)


def _help(canvas: Canvas) -> list[Line]:
    lines = [canvas.title("Keys", focus=True)]
    size = max(len(key) for key, _ in _HELP) + 2
    for key, said in _HELP:
        room = canvas.width - size - 3
        lines.append(canvas.line(Span("   "), Span(key.ljust(size), Style.KEY), Span(canvas.cut(said, room))))
    lines += [canvas.blank(), canvas.title("Marks in the log")]
    for mark, style, said in _MARKS:
        lines.append(canvas.line(Span("   "), Span(mark.ljust(size), style), Span(said)))
    return lines


def _keys(canvas: Canvas, look: UiState, status: PlayerStatus) -> Line:
    if look.question is not None:
        spans = [
            Span(f" {look.question.value}: ", Style.KEY),
            Span(canvas.clean(look.typed)),
            Span("_", Style.KEY),
        ]
        return canvas.sides(spans, [Span("enter  esc ", Style.DIM)])
    if status.notice is not None:
        return canvas.line(Span(f" {canvas.clean(status.notice)}", Style.BUSY))
    keys = [("q", "quit"), ("?", "help")]
    if look.page is not Page.MAIN:
        keys.append(("esc", "back"))
    if status.mode is PlayerMode.LIVE:
        keys += [("space", "pause"), ("g", "go to the past")]
    else:
        keys += [("space", "go on" if status.mode is PlayerMode.PAUSED else "pause"), ("+ -", "speed")]
        keys += [("left right", "step"), ("g", "go to"), ("l", "end")]
    keys += [("/", "filter")]
    if look.page is Page.MAIN:
        keys += [("tab", look.panel.value), *([("enter", "job")] if look.panel is Panel.JOBS else [])]
    gap = "   " if canvas.width >= _WIDE else "  "
    spans = [Span(" ")]
    for key, said in keys:
        spans += [Span(key, Style.KEY), Span(f" {said}{gap}")]
    return canvas.line(*spans)
