"""Times, sizes and counts as the screen says them: short, since there is little room."""

from __future__ import annotations

from collections.abc import Mapping

from ....infra.sanitize import local_time
from ....schemas.types import ExecutionState, JobStatus
from ...core.role import Time
from .canvas import Style

_SECOND = 1_000_000
_SHORT = {
    ExecutionState.CREATED: "new",
    ExecutionState.SCHEDULED: "sched",
    ExecutionState.DEPLOYING: "depl",
    ExecutionState.INITIALIZING: "init",
    ExecutionState.RUNNING: "run",
    ExecutionState.CANCELING: "canc'ing",
    ExecutionState.CANCELED: "canc",
    ExecutionState.FINISHED: "fin",
    ExecutionState.FAILED: "fail",
}
_OF_JOBS = {
    JobStatus.RUNNING: Style.GOOD,
    JobStatus.FAILED: Style.WORST,
    JobStatus.FAILING: Style.BAD,
    JobStatus.RESTARTING: Style.BAD,
    JobStatus.FINISHED: Style.DIM,
    JobStatus.CANCELED: Style.DIM,
}
_OF_TASKS = {
    ExecutionState.RUNNING: Style.GOOD,
    ExecutionState.FAILED: Style.BAD,
    ExecutionState.FINISHED: Style.DIM,
    ExecutionState.CANCELED: Style.DIM,
}


def format_span(microseconds: int) -> str:
    """A length of time in at most six characters or so: 250ms, 3.2s, 4m, 2h10, 3d."""
    if microseconds < 0:
        return "0s"
    if microseconds < _SECOND:
        return f"{microseconds // 1000}ms"
    seconds = microseconds / _SECOND
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    if seconds < 3600:
        return f"{int(seconds) // 60}m{int(seconds) % 60:02}"
    if seconds < 86_400:
        return f"{int(seconds) // 3600}h{int(seconds) % 3600 // 60:02}"
    return f"{int(seconds) // 86_400}d"


def format_ago(time: Time | None, now: Time | None) -> str:
    """How long ago that was; empty where it is not known. Whole seconds: nobody wants to see them flicker."""
    if time is None or now is None:
        return ""
    passed = max(0, now - time) // _SECOND * _SECOND
    return (
        "0s"
        if passed < _SECOND
        else f"{passed // _SECOND}s"
        if passed < 60 * _SECOND
        else format_span(passed)
    )


def date_and_time(time: Time | None) -> str:
    """Local."""
    return "" if time is None else local_time(time, f"%Y-%m-%d %H:%M:%S.{time // 1000 % 1000:03}")


def format_clock(time: Time) -> str:
    """The time of day, local."""
    return local_time(time, f"%H:%M:%S.{time // 1000 % 1000:03}")


def format_tasks(counts: Mapping[str, int], room: int) -> str:
    """How many tasks are in which state, in as many words as there is room for."""
    there = [(ExecutionState(state), count) for state, count in counts.items() if count]
    there.sort(key=lambda each: list(ExecutionState).index(each[0]))
    full = ", ".join(f"{count} {state.value}" for state, count in there)
    if len(full) <= room:
        return full
    return " ".join(f"{count} {_SHORT[state]}" for state, count in there)


def job_style(status: JobStatus) -> Style:
    """By how well it is."""
    return _OF_JOBS.get(status, Style.BUSY)


def task_style(state: str) -> Style:
    """By how well it is."""
    return _OF_TASKS.get(ExecutionState(state), Style.BUSY)


def format_count(number: int, noun: str) -> str:
    """1 job, 2 jobs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def last_line(text: str) -> str:
    """What was raised: the last line of a stack, or the first of another text."""
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    if not lines:
        return ""
    return lines[-1] if len(lines) > 1 and lines[0].startswith("Traceback") else lines[0]
