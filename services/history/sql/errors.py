"""What can go wrong with a question in SQL, each in one line for a person."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...log import LogTruncated, LogUnavailable
from ..archive import errors as archive
from ..archive.errors import ArchiveError

_OURS = re.compile(r"^tailrace(?:\.\w+)*\.(\w+): (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")


class SqlError(Exception):
    """A question that has no answer."""


class SparkUnavailable(SqlError):
    """Spark did not start."""


class NoSuchTable(SqlError, LookupError):
    """The log has no table of that name."""

    def __init__(self, wanted: str, near: Sequence[str]) -> None:
        hint = f"did you mean {', '.join(near)}?" if near else "`tailrace sql --tables` lists those there are"
        super().__init__(f"there is no table {wanted!r}: {hint}")


class QueryFailed(SqlError):
    """Spark can't read it, or not do what it says."""


def translate_error(error: Exception) -> Exception:
    """What an exception of Spark says of a query, or of a log that its workers could not read: an ArchiveError,
    LogUnavailable or QueryFailed."""
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        name, message = ours.groups()
        if name in (LogUnavailable.__name__, LogTruncated.__name__):
            return LogUnavailable(message)
        if issubclass(getattr(archive, name, Exception), ArchiveError):
            return ArchiveError(message)
    lines = [each.strip() for each in text.strip().splitlines()] or [type(error).__name__]
    # An error of the JVM begins with a line that says nothing.
    said = next((each for each in lines if _CONDITION.match(each)), lines[0])
    return QueryFailed(_SQLSTATE.sub("", _CONDITION.sub("", said)).rstrip(" ;"))
