"""At most one effective leader of each role at any offset, and nobody leads who has not read so in the log.

`Fencing` says which events count. Here is what must hold of those who speak: under an epoch only after having read the
claim that began it; a job's master only once the job has begun; and nobody under an epoch that the role never had.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event
from .fencing import is_job


class Leaders:
    """Follows claims."""

    def __init__(self) -> None:
        self._begun: dict[str, dict[int, int]] = {}
        """Role -> epoch -> the offset of the claim that counted."""
        self._started: set[str] = set()

    def see(self, event: Event) -> Iterator[str]:
        if event.name == "everyone.LeaderElected":
            self._begun.setdefault(event["role"], {})[event["epoch"]] = event.offset
        elif event.kind != "client":
            yield from self._spoken(event)
        if event.name == "job_master.StartJob":
            self._started.add(event["job_id"])

    def end(self) -> Iterator[str]:
        return iter(())

    def ignored(self, event: Event) -> Iterator[str]:
        """An event that no reader takes notice of: of a leader that was deposed, or a claim that came too late."""
        if event.name != "everyone.LeaderElected" and event.epoch != 0 and not self._since(event):
            yield f"{event.name} from {event.sender} is said under epoch {event.epoch}, which nobody ever had"

    def _spoken(self, event: Event) -> Iterator[str]:
        who = f"{event.name} from {event.sender}"
        if is_job(event.sender) and event.by not in self._started:
            yield f"{who} is said before the job has begun"
        since = self._since(event)
        if since and event.decided_at is not None and event.decided_at < min(since):
            yield f"{who} is said under epoch {event.epoch} by one who had not read that this begins at {min(since)}"

    def _since(self, event: Event) -> list[int]:
        """Where the epochs begin that the event may be said in."""
        roles = [event.sender, "dispatcher"] if is_job(event.sender) else [event.sender]
        return [self._begun[role][event.epoch] for role in roles if event.epoch in self._begun.get(role, {})]
