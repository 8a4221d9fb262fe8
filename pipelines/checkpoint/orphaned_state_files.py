"""Files of state that no checkpoint will ever name again.

A task puts files into the job's shared directory before a checkpoint that names them is complete, and an attempt that
is lost, or a checkpoint that is aborted, leaves some that none names. The names of files say who wrote them:

    <vertex id>-<subtask>-<attempt>-<incarnation>-<number>.full
    <vertex id>-<subtask>-<attempt>-<incarnation>-<anything else>

Of a subtask, an attempt writes only when those before it are over, and goes on from what a completed checkpoint names.
Hence, where a completed one names a file of a later attempt, no other will name what earlier attempts have written,
unless it does already; and where it names a full file, none will name an earlier one of the same writer. That needs no
clock, and holds for checkpoints that are under way, too. Whatever is called otherwise is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_FILE: Final = re.compile(r"([^-]+-[0-9]+)-([0-9]+)-([^-]+)-(?:([0-9]+)\.full|.+)")


class _File(NamedTuple):
    subtask: str
    attempt: int
    incarnation: str
    number: int
    """-1: of no full file."""


def orphaned_files(names: Iterable[str], named: Iterable[str]) -> set[str]:
    """Those of the names (of files in a shared directory) that no checkpoint will name that does not do so already.

    `named`: the files of completed checkpoints.
    """
    attempts: dict[str, int] = {}
    fulls: dict[tuple[str, int, str], int] = {}
    for each in named:
        if (file := _read(each)) is not None:
            attempts[file.subtask] = max(attempts.get(file.subtask, -1), file.attempt)
            fulls[file[:3]] = max(fulls.get(file[:3], -1), file.number)
    gone = set()
    for each in names:
        if (file := _read(each)) is not None:
            earlier = 0 <= file.number < fulls.get(file[:3], -1)
            if earlier or file.attempt < attempts.get(file.subtask, -1):
                gone.add(each)
    return gone


def _read(name: str) -> _File | None:
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    subtask, attempt, incarnation, number = found.groups()
    return _File(subtask, int(attempt), incarnation, -1 if number is None else int(number))
