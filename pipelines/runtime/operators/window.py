"""window: creates the operator for the parameters of a window."""

from __future__ import annotations

from .operator import Operator, OperatorSetup
from .window_assigner import FixedWindowAssigner, SessionAssigner, create_assignment
from .window_fixed import FixedWindows
from .window_session import SessionWindows


def window(setup: OperatorSetup) -> Operator:
    """Creates the operator. Raises UserCodeError, ValueError."""
    match create_assignment(setup.parameters["assigner"]).assigner:
        case FixedWindowAssigner() as fixed:
            return FixedWindows(setup, fixed)
        case SessionAssigner() as session:
            return SessionWindows(setup, session)
