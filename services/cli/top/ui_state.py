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


class Question(StrEnum):
    """What is being typed."""

    PLACE = "go to (offset, time or -10m)"
    FILTER = "filter"


class Look(msgspec.Struct, frozen=True):
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
    question: Question | None = None
    typed: str = ""


class Ask(StrEnum):
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


class Pressed(msgspec.Struct, frozen=True):
    """What comes of a key."""

    look: Look
    ask: Ask | None = None
    place: str = ""


_ASKS = {
    "q": Ask.QUIT,
    "ctrl+c": Ask.QUIT,
    "space": Ask.PAUSE,
    "p": Ask.PAUSE,
    "+": Ask.FASTER,
    "=": Ask.FASTER,
    "-": Ask.SLOWER,
    "right": Ask.STEP,
    ".": Ask.STEP,
    "left": Ask.BACK,
    ",": Ask.BACK,
    "l": Ask.LIVE,
}
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


def press(look: Look, key: str, character: str | None, view: View, rows: Rows) -> Pressed:
    """`key`: its name as textual has it, or the character itself; `character`: what it would type, if anything."""
    if look.question is not None:
        return _typed(look, look.question, key, character)
    key = character if character is not None and character.isprintable() and character != " " else key
    if key in _ASKS:
        return Pressed(look, _ASKS[key])
    match key:
        case "g":
            return Pressed(replace(look, question=Question.PLACE, typed=""))
        case "/":
            return Pressed(replace(look, question=Question.FILTER, typed=look.pattern))
        case "?" | "h":
            return Pressed(replace(look, page=Page.MAIN if look.page is Page.HELP else Page.HELP))
        case "escape" | "backspace":
            return Pressed(_out(look))
        case "tab" | "shift+tab":
            panels = list(Panel)
            step = 1 if key == "tab" else -1
            after = panels[(panels.index(look.panel) + step) % len(panels)]
            return Pressed(replace(look, panel=after) if look.page is Page.MAIN else look)
        case "enter":
            return Pressed(_into(look, view))
        case _:
            return Pressed(_moved(look, key, view, rows))


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


def log_of(view: View, look: Look, job_id: str | None = None) -> list[LogLine]:
    """Those lines of the log that may be seen, oldest first; `job_id`: of that job only."""
    wanted = look.pattern.casefold()
    return [
        each
        for each in view.log
        if (job_id is None or each.job == job_id)
        and (not wanted or wanted in f"{each.who}: {each.text} {each.type} {each.job or ''}".casefold())
    ]


def chosen(look: Look, found: list[JobLine]) -> int:
    """The place of the cursor among jobs; 0 where what it was on is not to be seen any more."""
    return next((i for i, each in enumerate(found) if each.job.job_id == look.job), 0)


def looked_at(look: Look) -> str | None:
    """The job whose page is open."""
    return look.job if look.page is Page.JOB else None


def _typed(look: Look, question: Question, key: str, character: str | None) -> Pressed:
    typed = look.typed
    if key in ("escape", "ctrl+c"):
        return Pressed(replace(look, question=None, typed=""))
    if key == "enter":
        done = replace(look, question=None, typed="")
        if question is Question.FILTER:
            return Pressed(replace(done, pattern=typed.strip(), log_end=None, first_row=0))
        return Pressed(done, Ask.GO, typed.strip()) if typed.strip() else Pressed(done)
    if key in ("backspace", "ctrl+h"):
        typed = typed[:-1]
    elif key == "ctrl+u":
        typed = ""
    elif character is not None and character.isprintable():
        typed += character
    return Pressed(replace(look, typed=typed))


def _out(look: Look) -> Look:
    if look.page is not Page.MAIN:
        return replace(look, page=Page.MAIN, top=0, log_end=None)
    if look.pattern:
        return replace(look, pattern="")
    return replace(look, log_end=None)


def _into(look: Look, view: View) -> Look:
    found = jobs_of(view, look.pattern)
    if look.page is not Page.MAIN or look.panel is not Panel.JOBS or not found:
        return look
    return replace(look, page=Page.JOB, job=found[chosen(look, found)].job.job_id, top=0, log_end=None)


def _moved(look: Look, key: str, view: View, rows: Rows) -> Look:
    panel = look.panel if look.page is Page.MAIN else None
    by = _by(key, _rows(panel, rows))
    if by is None or look.page is Page.HELP:
        return look
    match panel:
        case Panel.JOBS:
            found = jobs_of(view, look.pattern)
            if not found:
                return look
            place = _bounded(chosen(look, found) + by, len(found))
            return replace(look, job=found[place].job.job_id)
        case Panel.TASKEXECUTORS:
            # How many rows there are depends on the width: the screen sees to what is too far.
            return replace(look, first_row=_bounded(look.first_row + by, len(view.taskexecutors) + 1))
        case Panel.LOG:
            return _scrolled(look, by, log_of(view, look), rows.log)
        case None:
            tasks = len(view.detail.tasks) if view.detail is not None else 0
            return replace(look, top=_bounded(look.top + by, max(1, tasks - rows.tasks + 1)))


def _scrolled(look: Look, by: int, lines: list[LogLine], room: int) -> Look:
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


def _bounded(place: int, count: int) -> int:
    return max(0, min(place, count - 1))
