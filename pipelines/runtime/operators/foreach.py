"""foreach: a user's function receives the records one by one.

The guarantee is at least once: after a failure, the function receives the records of the uncommitted transaction again.
So the function should be idempotent; only files and Kafka topics are written exactly once.
"""

from __future__ import annotations

from ..records.batch import Batch
from .operator import Operator, OperatorSetup
from .user_functions import OrderedCalls, close_function, load, method_of, open_function, user_code


class ForeachOperator(Operator):
    """Calls a function, or a SinkFunction's `invoke`, with each record, and ignores its result."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        (self._function,) = load(setup.config)
        self._invoke = method_of(self._function, "invoke")

    def open(self) -> None:
        with user_code(self._setup.config):
            open_function(self._function, self._setup.context)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        invoke, records = self._invoke, OrderedCalls(batch)
        with user_code(self._setup.config, records):
            for value in records:
                invoke(value)

    def close(self) -> None:
        with user_code(self._setup.config):
            close_function(self._function)
