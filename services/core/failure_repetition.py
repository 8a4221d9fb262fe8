"""Detects that a task fails repeatedly for the same reason: at the same position if it is known.

The first line of a failure states the error and its position: the record of a topic, file or source, the timer, or the
window. A record that a function cannot process fails every attempt at the same position, although the message may
differ, for example by an object's address. Failures without a position are compared by their first line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_POSITION: Final = re.compile(
    r", in operator (?:'[^']*'|\"[^\"]*\"), at (?P<place>.+)$"
    r"|(?P<topic>topic \S+ \[\d+\] offset \d+.*)$"
    r"|(?P<message>offset \d+ of \S+, partition \d+)"
)
_ENDINGS: Final = {1: "st", 2: "nd", 3: "rd"}


def describe_repetition(failures: Sequence[str], *, are_all: bool = True) -> str:
    """Returns a note for the last of these failures, or an empty string if it differs from the failure before it.

    `are_all`: whether `failures` is the complete history of the task. If not, the count in the note is a lower bound.
    """
    lines = [failure.partition("\n")[0] for failure in failures]
    positions = list(map(_position, lines))
    same = [
        position == positions[-1] if position else line == lines[-1]
        for line, position in zip(lines, positions, strict=True)
    ]
    count = next((i for i, is_same in enumerate(reversed(same)) if not is_same), len(same))
    if count < 2:
        return ""
    where = f"at the same position, {positions[-1]}," if positions[-1] else "with the same error"
    at_least = "" if are_all or count < len(lines) else "at least "
    return f"fails again {where} for {at_least}the {_ordinal(count)} time"


def _position(line: str) -> str | None:
    found = _POSITION.search(line)
    return None if found is None else next(filter(None, found.groups()))


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{_ENDINGS.get(number % 10, 'th')}"
