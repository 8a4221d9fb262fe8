"""Formats sizes, durations, counts and times for people."""

from __future__ import annotations

from ....infra.sanitize import local_time

_SECOND = 1_000_000


def format_amount(value: float) -> str:
    """Formats a number: whole numbers without a point."""
    return f"{int(value):,}" if value.is_integer() else f"{value:,}"


def format_count(number: int, noun: str) -> str:
    """1 job, 2 jobs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_size(count: int) -> str:
    """Bytes: 12 B, 1.2 MiB."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def format_duration(microseconds: int) -> str:
    """A duration in words: 84 ms, 3.2 s, 4 min 3 s."""
    if microseconds < _SECOND:
        return f"{microseconds / 1000:.3g} ms" if microseconds < 999_500 else "1 s"
    seconds = microseconds / _SECOND
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s"


def format_span(microseconds: int) -> str:
    """A duration in whole seconds, in few characters: 3s, 4m03, 2h10, 3d; 0s for a negative one."""
    seconds = max(0, microseconds) // _SECOND
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}"
    return f"{seconds // 86_400}d"


def format_time(microseconds: int | None) -> str:
    """The local date and time; empty for None."""
    return "" if microseconds is None else local_time(microseconds, "%Y-%m-%d %H:%M:%S")


def format_clock(microseconds: int) -> str:
    """The local time of day, with milliseconds."""
    return local_time(microseconds, f"%H:%M:%S.{microseconds // 1000 % 1000:03}")
