"""Runs the pure functions of one role on its state, in one iteration of the host loop.

`decide` and `instructions` fail independently. A JobMaster whose `decide` raises still issues its instructions, so that
the files of its job are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .role import AnyRole, Instruction, OutgoingEvent, Time


class Decision(NamedTuple):
    """The result of one iteration. `error` is the first exception; with an error there are no events and no
    deadline."""

    events: Sequence[OutgoingEvent]
    deadline: Time | None
    instructions: Sequence[Instruction]
    error: Exception | None = None


def decide_role(role: AnyRole, state: Any, now: Time) -> Decision:
    """Returns the events to append, the next deadline and the instructions for the shell. Raises nothing."""
    owed: Sequence[OutgoingEvent] = ()
    deadline: Time | None = None
    error: Exception | None = None
    instructions: Sequence[Instruction] = ()
    try:
        owed, deadline = role.decide(state, now), role.deadline(state)
        if deadline is not None and deadline <= now and not owed:
            # It requires no event now, so it never will in this state: do not wake up for it again.
            deadline = None
    except Exception as fault:
        # Catch everything: the host turns the error into the failure of this one role.
        owed, error = (), fault
    try:
        instructions = role.instructions(state)
    except Exception as fault:
        owed, deadline, error = (), None, error or fault
    return Decision(owed, deadline, instructions, error)
