"""Detects a task that fails repeatedly for the same reason: at the same position, if the failure names one.

The first line of a failure names the exception and its position: the record of a topic, file or source, the timer or
the window. A record that a function can't process fails every attempt at the same position, although the message may
differ, for example because it contains an object's address. Failures without a position are compared by their first
line.
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
    """What is said of the last failure of a task, behind those before it; nothing where it is another one.

    `are_all`: whether the task has had no failure before those given; else more of them may have been the same.
    """
    lines = [each.partition("\n")[0] for each in failures]
    positions = list(map(_position, lines))
    same = [
        position == positions[-1] if position else line == lines[-1]
        for line, position in zip(lines, positions, strict=True)
    ]
    count = next((i for i, each in enumerate(reversed(same)) if not each), len(same))
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
