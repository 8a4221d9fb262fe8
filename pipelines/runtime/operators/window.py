"""window: creates the operator for the parameters of a window."""

from __future__ import annotations

from .operator import Operator, OperatorSetup
from .window_assigner import FixedWindowAssigner, GlobalAssigner, SessionAssigner, create_assignment
from .window_fixed import FixedWindows
from .window_session import SessionWindows
from .window_triggered import TriggeredWindows


def window(setup: OperatorSetup) -> Operator:
    """Creates the operator. Raises UserCodeError, ValueError."""
    parameters = setup.parameters
    assigner = create_assignment(parameters["assigner"]).assigner
    if parameters.get("trigger") is not None or parameters.get("evictor") is not None:
        return TriggeredWindows(setup, assigner)
    match assigner:
        case FixedWindowAssigner() as fixed:
            return FixedWindows(setup, fixed)
        case SessionAssigner() as session:
            return SessionWindows(setup, session)
        case GlobalAssigner():
            return TriggeredWindows(setup, assigner)
