"""Which events readers take notice of: a role's older epochs are not heard any more.

A JobMaster speaks under the Dispatcher's epoch until somebody has claimed that very job.
"""

from __future__ import annotations

from .events import Event

_LARGEST_STEP = 1 << 48


class Fencing:
    """Who leads each role, so far."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}

    def accepts(self, event: Event) -> bool:
        """Whether the event counts; takes note of it where it is a claim to lead."""
        role = event.sender
        if event.name == "everyone.LeaderElected":
            step = event["epoch"] - self.epoch(role)
            wins = bool(event["role"] == role and 0 < step <= _LARGEST_STEP)
            if wins:
                self.epochs[role] = event["epoch"]
            return wins
        return event.kind == "client" or event.epoch == self.epoch(role)

    def epoch(self, role: str) -> int:
        """The epoch that counts, 0 before the first."""
        return self.epochs.get(role, self.epochs.get("dispatcher", 0) if is_job(role) else 0)


def is_job(role: str) -> bool:
    """Whether the role is a JobMaster's."""
    return role.startswith("job_master/")
