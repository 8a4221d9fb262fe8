"""Fencing: readers ignore the older epochs of a role, and what no process can have sent.

A JobMaster has the Dispatcher's epoch: nobody can claim a single job.
"""

from __future__ import annotations

from .events import Event
from .senders import is_possible

_LARGEST_STEP = 1 << 48


class Fencing:
    """The leader of each role so far."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}

    def accepts(self, event: Event) -> bool:
        """Returns whether readers accept the event; applies it if it is a claim of leadership."""
        role = event.sender
        if not is_possible(event):
            return False
        if event.name == "everyone.LeaderElected":
            step = event["epoch"] - self.epoch(role)
            wins = bool(event["role"] == role and event["epoch"] == event.epoch and 0 < step <= _LARGEST_STEP)
            if wins:
                self.epochs[role] = event["epoch"]
            return wins
        if event.name == "everyone.SchemasRegistered":
            return event.epoch >= 0
        if event.kind in ("client", "standby"):
            return event.epoch == 0
        return event.epoch == self.epoch(role) > 0

    def epoch(self, role: str) -> int:
        """Returns the current epoch of a role, 0 before the first claim."""
        return self.epochs.get("dispatcher" if is_job(role) else role, 0)


def is_job(role: str) -> bool:
    """Returns whether the role is a JobMaster."""
    return role.startswith("job_master/")
