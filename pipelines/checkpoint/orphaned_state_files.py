"""Files of state that no checkpoint will ever refer to again.

A task puts files into the job's shared directory before a checkpoint that refers to them is complete. A lost attempt or
an aborted checkpoint leaves files that none refers to. The name of a file says who wrote it:

    <vertex id>-<subtask>-<attempt>-<incarnation>-<number>.full
    <vertex id>-<subtask>-<attempt>-<incarnation>-<anything else>

An attempt of a subtask writes only when the attempts before it have ended, and continues from the files of a completed
checkpoint. So if a completed checkpoint refers to a file of a later attempt, no new checkpoint will refer to files of
earlier attempts. If it refers to a full file, no new one will refer to an earlier file of the same writer. This needs
no clock, and also holds for checkpoints that are under way. Files with other names are never deleted.
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
    """-1 for files that are not full files."""


def orphaned_files(names: Iterable[str], named: Iterable[str]) -> set[str]:
    """Returns the names (of files in a shared directory) that no checkpoint refers to now or later.

    `named`: the files of completed checkpoints.
    """
    attempts: dict[str, int] = {}
    fulls: dict[tuple[str, int, str], int] = {}
    for name in named:
        if (file := _read(name)) is not None:
            attempts[file.subtask] = max(attempts.get(file.subtask, -1), file.attempt)
            fulls[file[:3]] = max(fulls.get(file[:3], -1), file.number)
    gone = set()
    for name in names:
        if (file := _read(name)) is not None:
            earlier = 0 <= file.number < fulls.get(file[:3], -1)
            if earlier or file.attempt < attempts.get(file.subtask, -1):
                gone.add(name)
    return gone


def _read(name: str) -> _File | None:
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    subtask, attempt, incarnation, number = found.groups()
    return _File(subtask, int(attempt), incarnation, -1 if number is None else int(number))
