"""The result of one `decide` of a role: events to append, instructions for the shell, the next deadline.

`decide` and `instructions` fail independently. If a JobMaster can't decide any more, the deletion of its job's topics
and checkpoints is still instructed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .role import AnyRole, Instruction, OutgoingEvent, Time


class Decision(NamedTuple):
    """`error`: the first that came up; then nothing is owed, and there is no deadline."""

    events: Sequence[OutgoingEvent]
    deadline: Time | None
    instructions: Sequence[Instruction]
    error: Exception | None = None


def decide_role(role: AnyRole, state: Any, now: Time) -> Decision:
    """What is owed, when to look again, and what the shell is to perform. Raises nothing."""
    owed: Sequence[OutgoingEvent] = ()
    deadline, error = None, None
    instructions: Sequence[Instruction] = ()
    try:
        owed, deadline = role.decide(state, now), role.deadline(state)
    except Exception as fault:
        # Whatever it raises: the host makes it the failure of this one role.
        owed, error = (), fault
    try:
        instructions = role.instructions(state)
    except Exception as fault:
        owed, deadline, error = (), None, error or fault
    return Decision(owed, deadline, instructions, error)
