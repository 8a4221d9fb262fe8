"""Accumulators of a job: the valid names, and how counts are summed.

An accumulator belongs to the state of a subtask: it is committed with the subtask's transactions, and a new attempt
continues from the last committed value. So an attempt reports for its whole subtask, and the last report is right:
committed work counts once, also if a process was killed before it could report, and uncommitted counts do not count. A
job's accumulators are the sums over its subtasks.

Names and numbers are checked where functions count. Readers of the log take the valid part, all in the same way.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping

from ...infra.config.characters import is_plain

MAX_ACCUMULATORS = 256
"""Accumulators of a job: they travel in heartbeats and in the log."""
MAX_ACCUMULATOR_NAME_LENGTH = 128
_LARGEST = sys.float_info.max


def fault(name: object) -> str | None:
    """Returns why an accumulator cannot have that name, or None."""
    if not isinstance(name, str) or not name.strip():
        return f"the name of an accumulator is {name!r}, not one or more characters"
    if len(name) > MAX_ACCUMULATOR_NAME_LENGTH:
        return (
            f"the accumulator {name[:MAX_ACCUMULATOR_NAME_LENGTH]!r}... has a name of more than "
            f"{MAX_ACCUMULATOR_NAME_LENGTH} characters"
        )
    if not is_plain(name):
        return f"the accumulator {name!r} has a name that can't be printed"
    return None


def bounded(counts: Mapping[str, float]) -> dict[str, float]:
    """Returns the valid part of a report: finite numbers under valid names, the first MOST by name."""
    possible = sorted(name for name, value in counts.items() if fault(name) is None and math.isfinite(value))
    return {name: counts[name] for name in possible[:MAX_ACCUMULATORS]}


def total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the sums, in the order of names; the first MOST. A sum that is too large for a float becomes the
    largest float."""
    values: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.items():
            values.setdefault(name, []).append(value)
    return {name: _sum(values[name]) for name in sorted(values)[:MAX_ACCUMULATORS]}


def _sum(values: list[float]) -> float:
    # Summed with exact rounding, so that the order in which subtasks end does not matter; scaled down, so that no
    # partial sum overflows.
    bits = len(values).bit_length()
    small = math.fsum(math.ldexp(value, -bits) for value in values)
    try:
        return math.ldexp(small, bits)
    except OverflowError:
        return math.copysign(_LARGEST, small)
