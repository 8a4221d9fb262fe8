"""The names of the processes of a local cluster, and the list of processes to run.

The name of a TaskExecutor is its resource id. A single jobmanager is called `jobmanager`; several have numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

JOBMANAGER = "jobmanager"
"""The name of the jobmanager's process, or its first part if there are several."""

SIMULATED = "simulated-taskexecutors"
"""The name of the process that serves all TaskExecutors of a simulated cluster."""

LEAST_SLOTS: Final = 4
"""The slots of all TaskExecutors together, by default, on a machine with fewer cores."""

_MASTER = re.compile(rf"{JOBMANAGER}(-[1-9][0-9]*)?")


def is_master(name: str) -> bool:
    """Whether a process of that name is a jobmanager."""
    return _MASTER.fullmatch(name) is not None


def masters(count: int | None, known: Iterable[str]) -> list[str]:
    """Returns the names of the jobmanagers to run: `count` (None: one), and all others that were started before.

    One that was started alone keeps its name, and is the first when others join it.
    """
    found = [name for name in known if is_master(name)]
    wanted = count or (0 if found else 1)
    alone = JOBMANAGER in found or (wanted == 1 and not found)
    first = [
        JOBMANAGER if alone and number == 1 else f"{JOBMANAGER}-{number}" for number in range(1, wanted + 1)
    ]
    return list(dict.fromkeys([*first, *found]))


def taskexecutors(count: int, known: Iterable[str]) -> list[str]:
    """Returns the names of the TaskExecutors to run: the first `count`, and all others that were started before."""
    first = [f"taskexecutor-{number + 1}" for number in range(count)]
    return list(dict.fromkeys([*first, *(name for name in known if not is_master(name))]))


def slots_per_taskexecutor(count: int, cores: int) -> int:
    """Returns the default number of slots of each of `count` TaskExecutors on a machine.

    Together they have one for each core, and at least LEAST_SLOTS.
    """
    return max(1, max(LEAST_SLOTS, cores) // count)
