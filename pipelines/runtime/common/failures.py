"""Formats the failure of a task: type, message and the user's line first, then a short traceback.

The text is bounded and encodable: a reason that is too large for an event would prevent the report of the task's end.
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from ....infra.redaction import redacted
from ...types import RecordTypeError

_OURS = str(Path(__file__).resolve().parents[2])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_FRAMES_SHOWN = 8
MAX_FAILURE_LENGTH: Final = 8_000
"""Characters of a reason."""
_MAX_MESSAGE_LENGTH: Final = 2_000
_MAX_REASON_LENGTH: Final = 300
_MAX_KEY_LENGTH: Final = 120


class RecordError(Exception):
    """Something is wrong with a record. Whoever knows where the record was read says so on the way up."""

    index: int | None = None
    """Of the record in the batch of the operator that is asked; None: not known."""
    place: str | None = None
    """Where that record was read, or which timer or window it is about."""


class UserCodeError(RecordError):
    """A user's function raised; `__cause__` is what it raised, `operator` whose function it was."""

    def __init__(
        self, operator: str, location: str | None, index: int | None = None, key: str | None = None
    ) -> None:
        """`key`: of the record, for people; None: it has none, or none is known."""
        super().__init__(f"in operator {operator!r}")
        self.operator = operator
        self.location = location
        self.index = index
        self.key = key


def format_key(key: object) -> str:
    """A key for people: short, and on one line."""
    try:
        text = " ".join(repr(key).split())
    except Exception:
        text = f"of type {type(key).__name__}, which cannot be shown"
    return truncate(text, _MAX_KEY_LENGTH)


def format_offsets(topic: str, partition: int, first: int, last: int | None = None) -> str:
    """A place in a topic, for people: of one record, or of all between two offsets."""
    which = f"offset {first}" if last in (None, first) else f"offsets {first} to {last}"
    return f"topic {topic} [{partition}] {which}"


def format_record(
    topic: str, partition: int, offset: int, index: int | None, count: int, behind: str = ""
) -> str:
    """The place of a record in a buffer that holds so many; `behind`: which operator they have passed already."""
    place = format_offsets(topic, partition, offset)
    if count <= 1:
        return place
    return f"{place}, {'one' if index is None else f'record {index + 1}'} of {count}{behind}"


class TaskError(Exception):
    """A task cannot go on, for a reason that is not the user's code; the text says which and what to do."""


class StateTypeError(TaskError):
    """State or records of a checkpoint were written as a type that cannot be read as the declared one."""


class RecordRejected(RecordError, TaskError):
    """A record that an operator cannot take."""


class ProgressLostError(TaskError):
    """What an attempt was to go on from is gone: no other attempt fares better, the job has to go back."""


def describe_failure(error: BaseException) -> str:
    """One line for a person, then a short traceback where it helps; at most LONGEST characters."""
    return truncate(_describe(error))


def truncate(text: str, longest: int = MAX_FAILURE_LENGTH) -> str:
    """The beginning of the text, saying where it was cut, without secrets; characters that UTF-8 has not become
    question marks."""
    text = redacted(text.encode(errors="replace").decode())
    cut = f" [cut: {len(text)} characters]"
    return text if len(text) <= longest else text[: longest - len(cut)] + cut


def one_line(error: BaseException) -> str:
    """An error for a person, in a few words."""
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
        text = "its message could not be made"
    return truncate(f"{type(error).__name__}: {text}" if text else type(error).__name__, _MAX_MESSAGE_LENGTH)


def _user_line(trace: TracebackType | None) -> str | None:
    """file:line of the innermost frame that is neither ours nor a library's."""
    found = None
    for frame in traceback.extract_tb(trace):
        if not _is_foreign(frame.filename):
            found = f"{frame.filename}:{frame.lineno}"
    return found


def _is_foreign(filename: str) -> bool:
    example = f"{_OURS}/pipelines/examples/"
    if filename.startswith(example):
        return False
    # User code may live below the checkout (tests, scripts): ours is what the package ships.
    ours = any(
        filename.startswith(f"{_OURS}/{top}/") for top in ("pipelines", "services", "schemas", "infra")
    )
    return ours or filename.startswith(_LIBRARIES) or filename.startswith("<frozen")


def _short_traceback(error: BaseException) -> str:
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-_FRAMES_SHOWN)
    return "".join(lines).rstrip()
