"""The arguments of triggers and evictors: intervals (a timedelta, or seconds= and milliseconds=) and counts."""

from __future__ import annotations

from datetime import timedelta

_MILLISECOND = timedelta(milliseconds=1)


def interval_ms(what: str, interval: timedelta | None, seconds: float = 0, milliseconds: int = 0) -> int:
    """Returns the sum of the arguments in milliseconds, 1 or more. Raises ValueError."""
    if not isinstance(interval, timedelta | None):
        raise ValueError(f"the {what} is {interval!r}: give a timedelta, seconds= or milliseconds=")
    total = round(seconds * 1000 + milliseconds)
    if interval is not None:
        total += round(interval / _MILLISECOND)
    if total < 1:
        raise ValueError(
            f"the {what} is {total} ms, not 1 or more: give a timedelta, seconds= or milliseconds="
        )
    return total


def checked_count(what: str, count: object, least: int) -> int:
    """Returns the count. Raises ValueError if it is no integer, or below the least."""
    if type(count) is not int or count < least:
        raise ValueError(f"the {what} is {count!r}, not an integer of {least} or more")
    return count
