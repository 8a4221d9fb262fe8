"""foreach: a user's function receives the records one by one.

The guarantee is at least once: after a failure, the function receives the records of the uncommitted transaction again.
So the function should be idempotent; only files and Kafka topics are written exactly once.
"""

from __future__ import annotations

from ..records.batch import Batch
from .function_operator import FunctionOperator
from .operator import OperatorSetup
from .user_functions import OrderedCalls, method_of, user_code


class ForeachOperator(FunctionOperator):
    """Calls a function, or a SinkFunction's `invoke`, with each record, and ignores its result."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._invoke = method_of(self._function, "invoke")

    def process(self, batch: Batch, input_index: int = 0) -> None:
        invoke, records = self._invoke, OrderedCalls(batch)
        with user_code(self._config, records):
            for value in records:
                invoke(value)
