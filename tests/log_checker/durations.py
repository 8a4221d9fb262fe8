"""Parses durations of the configuration."""

from __future__ import annotations

_UNITS = {"ms": 1_000, "s": 1_000_000, "sec": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}


def microseconds(text: str) -> int:
    """Parses a duration such as 300 s, 10s, 5 min, 500 ms; a number without unit is milliseconds."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
    return int(float(number) * _UNITS.get(text.strip()[len(number) :].strip(), 1_000))
