"""Formats the failure of a task: type, message and the user's line first, then a short traceback.

The text is bounded and encodable: a reason that is too large for an event would prevent the report of the task's end.
"""

from __future__ import annotations

import signal
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from ....infra.redaction import redacted
from ...types import RecordTypeError

_OURS = str(Path(__file__).resolve().parents[3])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_FRAMES_SHOWN = 8
MAX_FAILURE_LENGTH: Final = 8_000
"""Characters of a reason."""
_MAX_MESSAGE_LENGTH: Final = 2_000
_MAX_REASON_LENGTH: Final = 300
_MAX_KEY_LENGTH: Final = 120


class RecordError(Exception):
    """An error of a record. The caller that knows where the record was read adds its location."""

    index: int | None = None
    """The index of the record in the batch of the current operator; None: unknown."""
    place: str | None = None
    """The location of that record, or the timer or window of the call."""


class UserCodeError(RecordError):
    """A user's function raised `__cause__`. `operator` has the function."""

    def __init__(
        self, operator: str, location: str | None, index: int | None = None, key: str | None = None
    ) -> None:
        """`key`: the record's key, formatted; None: it has none, or it is unknown."""
        super().__init__(f"in operator {operator!r}")
        self.operator = operator
        self.location = location
        self.index = index
        self.key = key


def format_key(key: object) -> str:
    """Returns a key for messages: short, and on one line."""
    try:
        text = " ".join(repr(key).split())
    except Exception:
        text = f"of type {type(key).__name__}, which cannot be shown"
    return truncate(text, _MAX_KEY_LENGTH)


def format_offsets(topic: str, partition: int, first: int, last: int | None = None) -> str:
    """Returns a location in a topic for messages: one record, or all records between two offsets."""
    which = f"offset {first}" if last in (None, first) else f"offsets {first} to {last}"
    return f"topic {topic} [{partition}] {which}"


def format_record(
    topic: str, partition: int, offset: int, index: int | None, count: int, behind: str = ""
) -> str:
    """Returns the location of a record in a buffer with `count` records. `behind`: the operator that has already
    processed them."""
    place = format_offsets(topic, partition, offset)
    if count <= 1:
        return place
    return f"{place}, {'one' if index is None else f'record {index + 1}'} of {count}{behind}"


class TaskError(Exception):
    """A task cannot continue, for a reason outside the user's code. The text says why and what to do."""


class RuntimeProcessDied(TaskError):
    """A process that all tasks of a TaskExecutor need has died, for example killed by the kernel for lack of memory."""

    def __init__(self, what: str, pid: int | None, status: int | None, hint: str = "") -> None:
        """`status`: as of a subprocess, negative for a signal. None: unknown. `hint` is appended to the message."""
        process = "" if pid is None else f" (process {pid})"
        super().__init__(
            f"{what}{process} {describe_status(status)}{hint}: the TaskExecutor ends, and its tasks start again where "
            "slots are free"
        )


def describe_status(status: int | None) -> str:
    """Returns how a process ended: `was killed by SIGKILL`, `ended with status 1`."""
    if status is None:
        return "has died"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class StateTypeError(TaskError):
    """State or records of a checkpoint have a type that cannot be read as the declared one."""


class StateDiskError(TaskError):
    """The database of keyed state cannot be read or written, for example because its disk is full."""


class RecordRejected(RecordError, TaskError):
    """An operator does not accept a record."""


class ProgressLostError(TaskError):
    """The state that an attempt should continue from is gone. Another attempt would fail too: the job must roll back
    to a checkpoint."""


def describe_failure(error: BaseException) -> str:
    """Returns one line for the user, then a short traceback if it helps; at most MAX_FAILURE_LENGTH characters."""
    return truncate(_describe(error))


def truncate(text: str, longest: int = MAX_FAILURE_LENGTH) -> str:
    """Returns the text without secrets, truncated with a mark. Characters that UTF-8 cannot encode become question
    marks."""
    text = redacted(text.encode(errors="replace").decode())
    cut = f" [cut: {len(text)} characters]"
    return text if len(text) <= longest else text[: longest - len(cut)] + cut


def one_line(error: BaseException) -> str:
    """Returns an error in one short line."""
    text = " ".join(str(error).split())[:_MAX_REASON_LENGTH]
    return (
        text
        if isinstance(error, (ValueError, RecordTypeError)) and text
        else f"{type(error).__name__}: {text}"
    )


def _describe(error: BaseException) -> str:
    if isinstance(error, RecordRejected):
        return f"{error}{_place(error)}"
    if isinstance(error, TaskError):
        return str(error)
    if not isinstance(error, UserCodeError) or error.__cause__ is None:
        return f"{_summary(error)}\n{_short_traceback(error)}"
    cause = error.__cause__
    where = _user_line(cause.__traceback__) or error.location
    at = f" at {where}" if where else ""
    key = f", key {error.key}" if error.key else ""
    first = f"{_summary(cause)}{at}, in operator {error.operator!r}{_place(error)}{key}"
    return f"{first}\n{_short_traceback(cause)}"


def _place(error: RecordError) -> str:
    return f", at {error.place}" if error.place else ""


def _summary(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "its message could not be created"
    return truncate(f"{type(error).__name__}: {text}" if text else type(error).__name__, _MAX_MESSAGE_LENGTH)


def _user_line(trace: TracebackType | None) -> str | None:
    """Returns file:line of the innermost frame that is not in tailrace or a library."""
    found = None
    for frame in traceback.extract_tb(trace):
        if not _is_foreign(frame.filename):
            found = f"{frame.filename}:{frame.lineno}"
    return found


def _is_foreign(filename: str) -> bool:
    example = f"{_OURS}/pipelines/examples/"
    if filename.startswith(example):
        return False
    # User code may be below the checkout (tests, scripts): only packaged folders count as tailrace's.
    ours = any(
        filename.startswith(f"{_OURS}/{top}/")
        for top in ("pipelines", "services", "schemas", "infra", "testing")
    )
    is_generated = filename.startswith("<") and not filename.startswith(("<stdin", "<ipython"))
    return ours or is_generated or filename.startswith(_LIBRARIES)


def _short_traceback(error: BaseException) -> str:
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-_FRAMES_SHOWN)
    return "".join(lines).rstrip()
