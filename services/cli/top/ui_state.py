"""What the person at the keys looks at, and what a key does to it: pure.

A key changes the Look, or asks the Player for something, or both. Cursors are kept by name and offset, not by row: what
is under them stays under them when rows come and go.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from .view import JobLine, LogLine, View


class Page(StrEnum):
    """What fills the screen."""

    MAIN = "main"
    JOB = "job"
    HELP = "help"


class Panel(StrEnum):
    """A part of the main page that can be moved in."""

    JOBS = "Jobs"
    LOG = "Log"
    TASKEXECUTORS = "TaskExecutors"


class UiPrompt(StrEnum):
    """What is being typed."""

    PLACE = "go to (offset, time or -10m)"
    FILTER = "filter"


class UiState(msgspec.Struct, frozen=True):
    """What is looked at."""

    page: Page = Page.MAIN
    panel: Panel = Panel.JOBS
    job: str | None = None
    """The one under the cursor; None: the first."""
    log_end: int | None = None
    """The offset of the last line of the log that is to be seen; None: the newest."""
    first_row: int = 0
    """Of the TaskExecutors that are to be seen."""
    top: int = 0
    """Of the job's page: how many tasks are scrolled away."""
    pattern: str = ""
    """Only what has this in it is to be seen, in any case."""
    question: UiPrompt | None = None
    typed: str = ""


class PlayerCommand(StrEnum):
    """What is wanted of the Player."""

    QUIT = "quit"
    PAUSE = "pause"
    FASTER = "faster"
    SLOWER = "slower"
    STEP = "step"
    BACK = "back"
    LIVE = "live"
    GO = "go"
    """To the place that was typed."""


class Rows(msgspec.Struct, frozen=True):
    """How many rows the panels have on the screen: by how much a page moves."""

    jobs: int = 1
    log: int = 1
    executors: int = 1
    tasks: int = 1


class KeyResult(msgspec.Struct, frozen=True):
    """What comes of a key."""

    look: UiState
    ask: PlayerCommand | None = None
    place: str = ""


_ASKS = {
    "q": PlayerCommand.QUIT,
    "ctrl+c": PlayerCommand.QUIT,
    "space": PlayerCommand.PAUSE,
    "p": PlayerCommand.PAUSE,
    "+": PlayerCommand.FASTER,
    "=": PlayerCommand.FASTER,
    "-": PlayerCommand.SLOWER,
    "right": PlayerCommand.STEP,
    ".": PlayerCommand.STEP,
    "left": PlayerCommand.BACK,
    ",": PlayerCommand.BACK,
    "l": PlayerCommand.LIVE,
}
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


def handle_key(look: UiState, key: str, character: str | None, view: View, rows: Rows) -> KeyResult:
    """`key`: its name as textual has it, or the character itself; `character`: what it would type, if anything."""
    if look.question is not None:
        return _on_text_key(look, look.question, key, character)
    key = character if character is not None and character.isprintable() and character != " " else key
    if key in _ASKS:
        return KeyResult(look, _ASKS[key])
    match key:
        case "g":
            return KeyResult(replace(look, question=UiPrompt.PLACE, typed=""))
        case "/":
            return KeyResult(replace(look, question=UiPrompt.FILTER, typed=look.pattern))
        case "?" | "h":
            return KeyResult(replace(look, page=Page.MAIN if look.page is Page.HELP else Page.HELP))
        case "escape" | "backspace":
            return KeyResult(_out(look))
        case "tab" | "shift+tab":
            panels = list(Panel)
            step = 1 if key == "tab" else -1
            after = panels[(panels.index(look.panel) + step) % len(panels)]
            return KeyResult(replace(look, panel=after) if look.page is Page.MAIN else look)
        case "enter":
            return KeyResult(_into(look, view))
        case _:
            return KeyResult(_move(look, key, view, rows))


def jobs_of(view: View, pattern: str) -> list[JobLine]:
    """Those that are to be seen."""
    if not pattern:
        return list(view.jobs)
    wanted = pattern.casefold()
    return [
        each
        for each in view.jobs
        if wanted in f"{each.job.job_id} {each.job.name} {each.job.status.value}".casefold()
    ]


def log_of(view: View, look: UiState, job_id: str | None = None) -> list[LogLine]:
    """Those lines of the log that may be seen, oldest first; `job_id`: of that job only."""
    wanted = look.pattern.casefold()
    return [
        each
        for each in view.log
        if (job_id is None or each.job == job_id)
        and (not wanted or wanted in f"{each.who}: {each.text} {each.type} {each.job or ''}".casefold())
    ]


def selected_row(look: UiState, found: list[JobLine]) -> int:
    """The place of the cursor among jobs; 0 where what it was on is not to be seen any more."""
    return next((i for i, each in enumerate(found) if each.job.job_id == look.job), 0)


def open_job(look: UiState) -> str | None:
    """The job whose page is open."""
    return look.job if look.page is Page.JOB else None


def _on_text_key(look: UiState, question: UiPrompt, key: str, character: str | None) -> KeyResult:
    typed = look.typed
    if key in ("escape", "ctrl+c"):
        return KeyResult(replace(look, question=None, typed=""))
    if key == "enter":
        done = replace(look, question=None, typed="")
        if question is UiPrompt.FILTER:
            return KeyResult(replace(done, pattern=typed.strip(), log_end=None, first_row=0))
        return KeyResult(done, PlayerCommand.GO, typed.strip()) if typed.strip() else KeyResult(done)
    if key in ("backspace", "ctrl+h"):
        typed = typed[:-1]
    elif key == "ctrl+u":
        typed = ""
    elif character is not None and character.isprintable():
        typed += character
    return KeyResult(replace(look, typed=typed))


def _out(look: UiState) -> UiState:
    if look.page is not Page.MAIN:
        return replace(look, page=Page.MAIN, top=0, log_end=None)
    if look.pattern:
        return replace(look, pattern="")
    return replace(look, log_end=None)


def _into(look: UiState, view: View) -> UiState:
    found = jobs_of(view, look.pattern)
    if look.page is not Page.MAIN or look.panel is not Panel.JOBS or not found:
        return look
    return replace(look, page=Page.JOB, job=found[selected_row(look, found)].job.job_id, top=0, log_end=None)


def _move(look: UiState, key: str, view: View, rows: Rows) -> UiState:
    panel = look.panel if look.page is Page.MAIN else None
    by = _by(key, _rows(panel, rows))
    if by is None or look.page is Page.HELP:
        return look
    match panel:
        case Panel.JOBS:
            found = jobs_of(view, look.pattern)
            if not found:
                return look
            place = _clamp(selected_row(look, found) + by, len(found))
            return replace(look, job=found[place].job.job_id)
        case Panel.TASKEXECUTORS:
            # How many rows there are depends on the width: the screen sees to what is too far.
            return replace(look, first_row=_clamp(look.first_row + by, len(view.taskexecutors) + 1))
        case Panel.LOG:
            return _scroll(look, by, log_of(view, look), rows.log)
        case None:
            tasks = len(view.detail.tasks) if view.detail is not None else 0
            return replace(look, top=_clamp(look.top + by, max(1, tasks - rows.tasks + 1)))


def _scroll(look: UiState, by: int, lines: list[LogLine], room: int) -> UiState:
    if not lines:
        return look
    last = len(lines) - 1
    place = last
    if look.log_end is not None:
        place = max((i for i, each in enumerate(lines) if each.offset <= look.log_end), default=last)
    place = max(min(place + by, last), min(room - 1, last))
    return replace(look, log_end=None if place == last else lines[place].offset)


def _rows(panel: Panel | None, rows: Rows) -> int:
    match panel:
        case Panel.JOBS:
            return rows.jobs
        case Panel.LOG:
            return rows.log
        case Panel.TASKEXECUTORS:
            return rows.executors
        case None:
            return rows.tasks


def _by(key: str, page: int) -> int | None:
    if key in _MOVES:
        return _MOVES[key]
    far = 1 << 40
    return {"pageup": -max(1, page), "pagedown": max(1, page), "home": -far, "end": far}.get(key)


def _clamp(place: int, count: int) -> int:
    return max(0, min(place, count - 1))
