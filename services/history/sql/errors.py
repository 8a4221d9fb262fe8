"""The errors of SQL queries, each with a message of one line."""

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
    """A query failed."""


class SparkUnavailable(SqlError):
    """Spark did not start."""


class NoSuchTable(SqlError, LookupError):
    """The log has no table of that name."""

    def __init__(self, wanted: str, near: Sequence[str]) -> None:
        hint = f"did you mean {', '.join(near)}?" if near else "`tailrace sql --tables` lists those there are"
        super().__init__(f"there is no table {wanted!r}: {hint}")


class QueryFailed(SqlError):
    """Spark cannot parse or run the query."""


def translate_error(error: Exception) -> Exception:
    """Returns the error for an exception of Spark: ArchiveError or LogUnavailable if its workers could not read the
    log, otherwise QueryFailed."""
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        name, message = ours.groups()
        if name in (LogUnavailable.__name__, LogTruncated.__name__):
            return LogUnavailable(message)
        if issubclass(getattr(archive, name, Exception), ArchiveError):
            return ArchiveError(message)
    if "[FAILED_READ_FILE" in text:
        return ArchiveError("the Parquet file is damaged: Spark can't read it; export the log again")
    lines = [line.strip() for line in text.strip().splitlines()] or [type(error).__name__]
    # An error of the JVM begins with a useless line.
    message = next((line for line in lines if _CONDITION.match(line)), lines[0])
    return QueryFailed(_SQLSTATE.sub("", _CONDITION.sub("", message)).rstrip(" ;"))
