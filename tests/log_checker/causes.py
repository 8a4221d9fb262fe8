"""Every cause is an earlier event that the sender had read, that was not fenced, and that concerned the sender."""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event


class Causes:
    """Remembers the recipients and senders of each event."""

    def __init__(self) -> None:
        self._concerns: dict[int, tuple[str, str]] = {}
        self._ignored: set[int] = set()

    def ignored(self, event: Event) -> None:
        """Handles an event that readers ignore."""
        self._ignored.add(event.offset)

    def on_accepted(self, event: Event) -> None:
        """Handles an event that may be the cause of others."""
        self._concerns[event.offset] = (event.sender, event.recipient)

    def see(self, event: Event) -> Iterator[str]:
        cause, decided_at = event.cause, event.decided_at
        who = f"{event.name} from {event.sender}"
        if cause is not None:
            if cause in self._ignored:
                yield f"{who} has the cause {cause}, which no reader takes notice of"
            elif cause not in self._concerns:
                yield f"{who} has the cause {cause}, where there is no event"
            elif decided_at is not None and cause > decided_at:
                yield f"{who} has the cause {cause}, but was decided at {decided_at}"
            elif not self._is_concerned(cause, event.sender):
                sender, recipient = self._concerns[cause]
                yield f"{who} has the cause {cause}, which {sender} said to {recipient}"
        self.on_accepted(event)

    def end(self) -> Iterator[str]:
        return iter(())

    def _is_concerned(self, cause: int, address: str) -> bool:
        sender, recipient = self._concerns[cause]
        return recipient == "*" or address in (sender, recipient)
