"""window: from its parameters to the operator that keeps such windows."""

from __future__ import annotations

from .operator import Operator, Setup
from .window_assigner import FixedWindowAssigner, SessionAssigner, assignment_of
from .window_fixed import FixedWindows
from .window_session import SessionWindows


def window(setup: Setup) -> Operator:
    """Raises UserCodeError, ValueError."""
    match assignment_of(setup.parameters["assigner"]).assigner:
        case FixedWindowAssigner() as fixed:
            return FixedWindows(setup, fixed)
        case SessionAssigner() as session:
            return SessionWindows(setup, session)
