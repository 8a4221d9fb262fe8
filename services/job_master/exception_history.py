"""The last failures of a job's tasks: what was raised, where and when (Flink's exception history).

Stack traces are kept, truncated if they are long, so that the root cause of a failure or restart can be shown long
after.
"""

from __future__ import annotations

import msgspec

from ..core.role import Time

MAX_EXCEPTIONS = 16
_LONGEST = 8_000


class TaskException(msgspec.Struct, frozen=True):
    """A task failed, or was lost with its TaskExecutor."""

    time: Time
    offset: int
    """The offset of the event that reported it."""
    task: str
    """Its vertex's name and, in parentheses, its subtask counted from 1; with the number of tasks that failed with
    it."""
    resource_id: str | None
    text: str
    """The exception, with its stack trace."""


def append_exception(
    history: tuple[TaskException, ...], exception: TaskException
) -> tuple[TaskException, ...]:
    """Appends a failure; the oldest are dropped."""
    text = exception.text
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        cut = f"{text[:half]}\n[... {len(text) - _LONGEST} characters left out ...]\n{text[-half:]}"
        exception = msgspec.structs.replace(exception, text=cut)
    return (*history, exception)[-MAX_EXCEPTIONS:]
