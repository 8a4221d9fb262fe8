"""where and select: expressions in SQL, evaluated on the columns of a batch. Records keep their timestamps.

A batch of rows stays one in `where`, and only the columns that an expression names are made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ...sql.checking import check_condition, check_types
from ...sql.evaluation import evaluate
from ...sql.syntax import parse_expression
from ...sql.tree import Node, column_names
from ...types import ClassOf, RecordType
from ..records.batch import Batch
from .operator import Operator, OperatorSetup
from .user_functions import came_from, user_code


class WhereOperator(Operator):
    """Emits the records for which the condition is true."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._config = setup.config
        (self._type,) = setup.input_types
        self._condition = check_condition(setup.parameters["condition"], self._type)
        self._names = column_names(self._condition)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        with user_code(self._config):
            columns = _columns(batch, self._type, self._names)
            holds = evaluate(self._condition, columns, len(batch)).fill_null(False)
        kept = np.flatnonzero(holds.to_numpy(zero_copy_only=False))
        if len(kept) == len(batch):
            self.output.emit(batch)
        elif len(kept):
            with came_from(lambda index: int(kept[index])):
                self.output.emit(batch.take(kept))


class SelectOperator(Operator):
    """Emits a record of the expressions' values for each record."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._config = setup.config
        (self._type,) = setup.input_types
        self._output_type = setup.record_type_parameter("output_type")
        self._nodes: list[Node] = [
            check_types(parse_expression(text), self._type) for _, text in setup.parameters["columns"]
        ]
        self._names = frozenset().union(*map(column_names, self._nodes))

    def process(self, batch: Batch, input_index: int = 0) -> None:
        with user_code(self._config):
            columns = _columns(batch, self._type, self._names)
            made = [evaluate(node, columns, len(batch)) for node in self._nodes]
        self.output.emit(Batch.from_columns(batch.timestamp_column(), made, self._output_type))


def _columns(batch: Batch, of: RecordType, names: Iterable[str]) -> Mapping[str, pa.Array]:
    """Returns the columns of these names. Raises RecordTypeError."""
    types = of.columns()
    if batch.is_columnar or not isinstance(of, ClassOf):
        return dict(zip((name for name, _ in types), batch.columns(of), strict=True))
    values: list[Any] = batch.values
    by_name = dict(types)
    return {name: by_name[name].encode([getattr(value, name) for value in values]) for name in names}
