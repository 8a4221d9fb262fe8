"""Durations as programs give them: a timedelta, or seconds= and milliseconds=."""

from __future__ import annotations

from datetime import timedelta

from ..graph.errors import ProgramError
from .checks import is_number
from .source_location import caller_location

_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(
    what: str,
    duration: timedelta | None,
    seconds: float = 0,
    milliseconds: int = 0,
    *,
    operator: str | None = None,
    at_least: int = 1,
    keywords: str = "seconds= or milliseconds=",
) -> int:
    """Returns the sum of the arguments in milliseconds. `keywords`: those that the caller has, or none. Raises
    ProgramError if it is below `at_least`."""

    def refuse(reason: str) -> ProgramError:
        return ProgramError(reason, operator=operator, location=caller_location())

    if not isinstance(duration, timedelta | None):
        raise refuse(
            f"the {what} is {duration!r}: give a timedelta{f', or the keyword {keywords}' if keywords else ''}"
        )
    if not (is_number(seconds) and is_number(milliseconds)):
        raise refuse(f"the {what} is {seconds!r} s and {milliseconds!r} ms: give numbers")
    total = round(seconds * 1000 + milliseconds)
    if duration is not None:
        total += round(duration / _MILLISECOND)
    if total < at_least:
        advice = f": give a timedelta, {keywords}" if keywords else ""
        raise refuse(f"the {what} is {total} ms, not {at_least} or more{advice}")
    return total


def timedelta_ms(what: str, duration: timedelta, operator: str, at_least: int = 1) -> int:
    """Returns an argument that may only be a timedelta in milliseconds. Raises ProgramError."""
    return to_milliseconds(what, duration, operator=operator, at_least=at_least, keywords="")
