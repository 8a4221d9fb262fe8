"""The common part of operators that call one function of the user's on a stream without keys.

The function may have operator state (functions/checkpointed.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...functions.checkpointed import CheckpointedFunction
from ..state_backend.operator_state import OperatorState
from ..state_backend.stateful import Origin
from .operator import Operator, OperatorSetup
from .user_functions import close_function, load, open_function, user_code


class FunctionOperator(Operator):
    """Opens and closes the function, and keeps its operator state."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._config = setup.config
        (self._function,) = load(setup.config)
        parts = (self._function, *getattr(self._function, "parts", ()))
        self._checkpointed = [part for part in parts if isinstance(part, CheckpointedFunction)]
        context = setup.context
        self._operator_state = OperatorState(context.subtask_index, context.parallelism, setup.config.name)

    def open(self) -> None:
        with user_code(self._config):
            for function in self._checkpointed:
                function.initialize_state(self._operator_state)
            open_function(self._function, self._setup.context)

    def close(self) -> None:
        with user_code(self._config):
            close_function(self._function)

    def before_commit(self) -> None:
        with user_code(self._config):
            for function in self._checkpointed:
                function.snapshot_state()

    def take_changes(self) -> Iterable[bytes]:
        return self._operator_state.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._operator_state.full())

    def restore_from(self, origin: Origin | None) -> None:
        self._operator_state.restore_from(origin)

    def restore(self, message: bytes) -> None:
        self._operator_state.restore(message)
