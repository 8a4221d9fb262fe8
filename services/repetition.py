"""Whether a task fails again and again for the same reason: at the same record, where its place is known.

The first line of a failure says what was raised and, of a record of a topic, where it was read. A record that a
function can't process fails every attempt with the same line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_PLACE: Final = re.compile(r"topic \S+ \[\d+\] offset \d+|offset \d+ of \S+, partition \d+")
_ENDINGS: Final = {1: "st", 2: "nd", 3: "rd"}


def repetition(failures: Sequence[str], *, are_all: bool = True) -> str:
    """What is said of the last failure of a task, behind those before it; nothing where it is another one.

    `are_all`: whether the task has had no failure before those given; else more of them may have been the same.
    """
    lines = [each.partition("\n")[0] for each in failures]
    count = next((i for i, line in enumerate(reversed(lines)) if line != lines[-1]), len(lines))
    if count < 2:
        return ""
    place = _PLACE.search(lines[-1])
    where = f"at the same record, {place.group()}," if place else "with the same error"
    at_least = "" if are_all or count < len(lines) else "at least "
    return f"fails again {where} for {at_least}the {_ordinal(count)} time"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{_ENDINGS.get(number % 10, 'th')}"
