"""What of the past people ask for although no state holds it: when jobs were submitted and ended, why they restart, how
their checkpoints went. As data, so that it can be kept beside a snapshot of the states (keeping.py).

It is what `HistoryProjection` has collected behind an offset; with the states of a snapshot of that offset a fold goes
on from there as if it had read the log from its first event. The story of the log (which event belongs to which job) is
not in it.
"""

from __future__ import annotations

import msgspec

from .checkpoint_history import CheckpointsView


class JobHistory(msgspec.Struct, frozen=True):
    """All of it. Times in microseconds since the epoch."""

    submitted: dict[str, int] = {}
    """Job id -> when it was submitted; rejected jobs are among them."""
    ended: dict[str, int] = {}
    """Job id -> when its end was told."""
    tasks: dict[str, str] = {}
    """Execution -> the name of its task, of those that states still know."""
    failures: dict[str, tuple[str | None, str | None]] = {}
    """Job id -> the failure that it counted last, and what that was."""
    checkpoints: dict[str, CheckpointsView] = {}
    """By job id."""
