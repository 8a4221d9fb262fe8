"""Which events readers take notice of: a role's older epochs are not heard any more."""

from __future__ import annotations

from .events import Event


def role_of(address: str) -> str:
    """All JobMasters are led together; every other address by itself."""
    return "job_master" if address.startswith("job_master/") else address


class Fencing:
    """Who leads each role, so far."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}

    def admits(self, event: Event) -> bool:
        """Whether the event counts; takes note of it where it is a claim to lead."""
        role = role_of(event.sender)
        if event.name == "everyone.LeaderElected":
            wins = bool(event["role"] == role and event["epoch"] > self.epochs.get(role, 0))
            if wins:
                self.epochs[role] = event["epoch"]
            return wins
        return event.kind == "client" or event.epoch == self.epochs.get(role, 0)
