"""Checks all invariants over one log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from .accumulators import Accumulators
from .attempts import Attempts
from .causes import Causes
from .checkpoint_answers import CheckpointAnswers
from .checkpoints import Checkpoints
from .events import Event
from .fencing import Fencing
from .leaders import Leaders
from .message_rules import MessageRules
from .requests import Requests
from .rescales import Rescales
from .restores import Restores
from .senders import is_possible
from .slots import Slots
from .statuses import Statuses


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant, and the offset at which it is detected."""

    offset: int
    invariant: str
    what: str

    def __str__(self) -> str:
        return f"offset {self.offset}: {self.what} ({self.invariant})"


class Invariant(Protocol):
    """Follows a log and yields violations, one line each."""

    def see(self, event: Event) -> Iterator[str]:
        """Processes the next accepted event."""
        ...

    def end(self) -> Iterator[str]:
        """Processes the end of a log in which all roles are idle."""
        ...


def check(events: Iterable[Event], *, settled: bool = True, outsiders: bool = False) -> list[Violation]:
    """Returns the violations in a log, in the order of their offsets; none if the log is correct.

    `settled`: all roles were idle when the log ended, so every missing answer is a violation. Otherwise the log may end
    in the middle of an exchange. `outsiders`: somebody who is no process of the cluster may have written events that no
    process can have sent; otherwise such an event is a violation. A duplicate event, by its id, counts once, unless the
    shell of a role sends it.
    """
    slots = Slots()
    attempts, causes, leaders = Attempts(slots), Causes(), Leaders()
    checkpoints, rescales = Checkpoints(slots, attempts), Rescales()
    invariants: list[Invariant] = [
        slots,
        attempts,
        Requests(slots),
        Statuses(),
        causes,
        leaders,
        MessageRules(slots),
        Accumulators(attempts),
        checkpoints,
        rescales,
        Restores(attempts, checkpoints, rescales),
        CheckpointAnswers(slots),
    ]
    fencing, ids, violations, offset = Fencing(), set[str](), list[Violation](), -1
    for event in events:
        if event.offset <= offset:
            violations.append(Violation(event.offset, "Order", f"it follows offset {offset}"))
        offset = event.offset
        if not fencing.accepts(event):
            causes.ignored(event)
            if outsiders:
                continue
            if not is_possible(event):
                what = f"{event.sender} cannot have sent {event.name} to {event.recipient}"
                violations.append(Violation(offset, "Senders", what))
            for what in leaders.ignored(event):
                violations.append(Violation(offset, type(leaders).__name__, what))
            continue
        # What a shell tells its own role is a fact as often as it is told.
        if event.event_id in ids and event.sender != event.recipient:
            causes.on_accepted(event)
            slots.echo(event)
            continue
        ids.add(event.event_id)
        for invariant in invariants:
            for what in invariant.see(event):
                violations.append(Violation(offset, type(invariant).__name__, what))
    if settled:
        for invariant in invariants:
            for what in invariant.end():
                violations.append(Violation(offset, type(invariant).__name__, f"at the end, {what}"))
    return violations
