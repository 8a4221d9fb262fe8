"""What a simulation returns: who held each slot beside what really happened, and the differences in words.

Times are in milliseconds since the epoch. These are the types of the answer only: the simulation has a process of its
own (services/simulation/what_if/process.py), which makes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..process_stream import Update


class WhatIfSpan(msgspec.Struct, frozen=True):
    """A job holds a slot. `job`: its place in `jobs`. `tasks`: attempts of its subtasks that run there, by name.
    `attempt`: the largest number of these attempts; it begins at 0."""

    start: int
    end: int
    job: int
    attempt: int
    tasks: Sequence[str]


class WhatIfPeriod(msgspec.Struct, frozen=True):
    """A time in which a slot was registered."""

    start: int
    end: int


class WhatIfSlot(msgspec.Struct, frozen=True):
    """A slot of a TaskExecutor. `present`: when it was registered."""

    task_executor: str
    slot: int
    present: Sequence[WhatIfPeriod]
    spans: Sequence[WhatIfSpan]


class WhatIfSlots(msgspec.Struct, frozen=True):
    """All slots by TaskExecutor and number. `end`: until when they are known."""

    end: int
    slots: Sequence[WhatIfSlot]


class WhatIfJob(msgspec.Struct, frozen=True):
    """A job. `id` is Flink's, `job_id` tailrace's."""

    id: str
    job_id: str
    name: str


class WhatIfJobOutcome(msgspec.Struct, frozen=True):
    """What becomes of a job, in words. `job`: its place in `jobs`. `is_simulated`: else it is what really happened."""

    job: int
    is_simulated: bool
    ended: str
    waited_for_slots: str
    restarts: int
    interrupted: str


class WhatIfResult(msgspec.Struct, frozen=True):
    """The result of a scenario from the event at `offset` on. `really`: null if the log has no event in this time.
    `events`: the number of simulated events. `notes`: the events of the scenario without effect."""

    offset: int
    start: int
    end: int
    events: int
    jobs: Sequence[WhatIfJob]
    outcomes: Sequence[WhatIfJobOutcome]
    really: WhatIfSlots | None
    what_if: WhatIfSlots
    differences: Sequence[str]
    notes: Sequence[str]


class WhatIfUpdate(Update, frozen=True):
    """A message of a running simulation: how many events it has read and simulated."""

    read: int = 0
    simulated: int = 0
    result: WhatIfResult | None = None
