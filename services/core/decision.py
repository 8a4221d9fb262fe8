"""The decisions of one process: which addresses decide, on which state, and when again.

The host, the simulator and the decision check share these rules. They differ in where a state comes from, and in what
they do with a decision.

1. An address decides after its state has changed, and when its deadline has passed.
2. All addresses of a turn decide on one state of the log, at one time, in the order in which they became due.
3. `decide` and `instructions` fail independently. A JobMaster whose `decide` raises still issues its instructions, so
   that the files of its job are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .deadline_heap import DeadlineHeap
from .role import AnyRole, Instruction, OutgoingEvent, Time


class Decision(NamedTuple):
    """What a role requires in one turn. `error` is the first exception; with an error there are no events and no
    deadline."""

    events: Sequence[OutgoingEvent]
    deadline: Time | None
    instructions: Sequence[Instruction]
    error: Exception | None = None


class Turn(NamedTuple):
    """The decision of one address, and the state that it decided on."""

    role_address: str
    state: Any
    decision: Decision


FindRole = Callable[[str], tuple[AnyRole, Any] | None]
"""Address -> its role and its state; None if the process does not decide for it."""


def decide_role(role: AnyRole, state: Any, now: Time) -> Decision:
    """Returns the events to append, the next deadline and the instructions for the shell. Raises nothing."""
    owed: Sequence[OutgoingEvent] = ()
    deadline: Time | None = None
    error: Exception | None = None
    instructions: Sequence[Instruction] = ()
    try:
        owed, deadline = role.decide(state, now), role.deadline(state)
        if deadline is not None and deadline <= now and not owed:
            # The deadline has passed and no event is due, so none will be in this state: do not wake up for it again.
            deadline = None
    except Exception as fault:
        # Catch everything: the caller turns the error into the failure of this one role.
        owed, error = (), fault
    try:
        instructions = role.instructions(state)
    except Exception as fault:
        owed, deadline, error = (), None, error or fault
    return Decision(owed, deadline, instructions, error)


class DecisionQueue:
    """The addresses of one process that have to decide."""

    def __init__(self) -> None:
        self._dirty: dict[str, int] = {}
        """Address -> the offset at which its state first changed since its last decision."""
        self._deadlines = DeadlineHeap()

    def mark(self, role_address: str, offset: int = -1) -> None:
        """The event at `offset` changed the state of the address: it has to decide."""
        self._dirty.setdefault(role_address, offset)

    def remove(self, role_address: str) -> None:
        """The process no longer decides for the address."""
        self._dirty.pop(role_address, None)
        self._deadlines.set(role_address, None)

    @property
    def has_changes(self) -> bool:
        """Whether a state changed since its last decision."""
        return bool(self._dirty)

    def next_deadline(self) -> Time | None:
        """Returns the earliest deadline, or None."""
        return self._deadlines.earliest()

    def decide(self, now: Time, find: FindRole, offset: int | None = None) -> list[Turn]:
        """Lets all addresses decide that are due. `offset`: without those whose states changed after it."""
        due: dict[str, None] | dict[str, int]
        if offset is None:
            due, self._dirty = self._dirty, {}
        else:
            due = {address: since for address, since in self._dirty.items() if since <= offset}
            for address in due:
                del self._dirty[address]
        turns = []
        for address in [*due, *(each for each in self._deadlines.pop_expired(now) if each not in due)]:
            found = find(address)
            if found is not None:
                role, state = found
                decision = decide_role(role, state, now)
                self._deadlines.set(address, decision.deadline)
                turns.append(Turn(address, state, decision))
        return turns
