"""At most one leader of each role at any offset, and no leader acts before it has read its own claim.

`Fencing` says which events are accepted. This invariant holds for their senders: an epoch is used only after its claim
was read; a JobMaster acts only after its job was started; no epoch is used that the role never had.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event
from .fencing import is_job

_UNDER_ANY_EPOCH = ("everyone.LeaderElected", "everyone.SchemasRegistered")


class Leaders:
    """Follows claims of leadership."""

    def __init__(self) -> None:
        self._starts: dict[str, dict[int, int]] = {}
        """Role -> epoch -> the offset of the claim that counted."""
        self._started: set[str] = set()

    def see(self, event: Event) -> Iterator[str]:
        if event.name == "everyone.LeaderElected":
            self._starts.setdefault(event["role"], {})[event["epoch"]] = event.offset
        elif event.kind != "client":
            yield from self._spoken(event)
        if event.name == "job_master.StartJob":
            self._started.add(event["job_id"])

    def end(self) -> Iterator[str]:
        return iter(())

    def ignored(self, event: Event) -> Iterator[str]:
        """Handles an event that readers ignore: of a deposed leader, or a claim that comes too late."""
        if event.name not in _UNDER_ANY_EPOCH and event.epoch != 0 and not self._since(event):
            yield f"{event.name} from {event.sender} is said under epoch {event.epoch}, which nobody ever had"

    def _spoken(self, event: Event) -> Iterator[str]:
        who = f"{event.name} from {event.sender}"
        if is_job(event.sender) and event.by not in self._started:
            yield f"{who} is said before the job has begun"
        since = self._since(event)
        if since and event.decided_at is not None and event.decided_at < min(since):
            yield f"{who} is said under epoch {event.epoch} by one who had not read that this begins at {min(since)}"

    def _since(self, event: Event) -> list[int]:
        """Returns the offsets at which the epochs begin that the event may have."""
        claims = self._starts.get("dispatcher" if is_job(event.sender) else event.sender, {})
        return [claims[event.epoch]] if event.epoch in claims else []
